"""The toy accelerator: its sizes, and how many cycles a transfer or an op takes.

    machine = Machine(sram=64 << 10)                # a smaller one
    machine.transfer_cycles(1 << 10)                # 192: 64 to begin, then 8 bytes a cycle
    machine.cycles(node)                            # of a conv_integer: multiply-adds / 256

One memory on the chip, one engine that moves data (DMA), a square of multiply-add units for 8-bit
integers with sums of 32 bits, and lanes for what is done element by element. The numbers are those
of no product; they are of the size that small inference chips have. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minidlc.graph.graph import Node, tensor_type

PRODUCTS = ("conv_integer", "matmul_integer")
VIEWS = ("reshape", "flatten", "squeeze", "unsqueeze")


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes, rates per cycle."""

    name: str = "npu"
    sram: int = 128 << 10  # bytes on the chip
    macs: int = 256  # multiply-adds of 8-bit integers
    lanes: int = 16  # elements of anything else
    dma_bytes: int = 8
    dma_start: int = 64  # cycles before the first byte of a transfer
    launch: int = 1000  # cycles to begin a region
    host_macs: int = 8  # the host, in the same cycles
    host_lanes: int = 4
    host_start: int = 200  # cycles a kernel of the host takes to begin

    def transfer_cycles(self, nbytes: int) -> int:
        """One transfer between the chip and the host's memory."""
        return self.dma_start + -(-nbytes // self.dma_bytes) if nbytes else 0

    def cycles(self, node: Node) -> int:
        """A node on the accelerator, its operands on the chip."""
        return self.work_cycles(node, tensor_type(node).dims)

    def work_cycles(self, node: Node, dims: tuple[int, ...]) -> int:
        """The part of a node that gives a result of these sizes."""
        if node.op.name in VIEWS:
            return 0
        if node.op.name in PRODUCTS:
            return -(-math.prod(dims) * products_of_each(node) // self.macs)
        return -(-math.prod(dims) * window_of(node) // self.lanes)

    def host_cycles(self, node: Node) -> int:
        """A node on the host."""
        if node.op.name in VIEWS:
            return 0
        size = tensor_type(node).size
        if node.op.name in PRODUCTS:
            return self.host_start + -(-size * products_of_each(node) // self.host_macs)
        return self.host_start + -(-size * window_of(node) // self.host_lanes)


def products_of_each(node: Node) -> int:
    """Multiply-adds for each element of a product."""
    x, w = (tensor_type(v).dims for v in node.inputs[:2] if v is not None)
    return x[-1] if node.op.name == "matmul_integer" else math.prod(w[1:])


def window_of(node: Node) -> int:
    """Elements that an element of the result is made of: 1 but for pools."""
    return math.prod(node.op.attributes().get("kernel_shape") or (1,))
