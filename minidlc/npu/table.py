"""What the toy accelerator takes, as the data that `legalise` and `partition` read.

    backend = back_end(Machine(sram=64 << 10, name="small"))
    backend.reason_against(node)                    # 'conv_integer: groups of channels'

Products of 8-bit integers, sums in 32 bits; then scaling, bias, relu and rounding back to 8 bits,
element by element, and pools. A node is taken only if its smallest tile fits into half of the
memory on the chip, so that a plan can always be made. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from minidlc.graph.graph import Constant, Node, tensor_type
from minidlc.npu.machine import VIEWS, Machine
from minidlc.npu.tiles import footprint, smallest_tile
from minidlc.transform.partition.backend import BackEnd, Takes, register_backend
from minidlc.transform.partition.legalise import integers, opened, sub_as_add

Check: TypeAlias = Callable[[Node], str | None]

BYTES = ("i8", "u8")
NUMBERS = ("i8", "u8", "i32", "f32")
WIDE = ("i32", "f32")


def back_end(machine: Machine) -> BackEnd:
    """The accelerator as a back end, and known by its name from now on."""
    return register_backend(back_end_of(machine))


def back_end_of(machine: Machine) -> BackEnd:
    """The accelerator as a back end."""
    fits = partial(_too_large, machine=machine)
    rows = (
        ("conv_integer", BYTES, (), _conv),
        ("matmul_integer", BYTES, (), _matmul),
        ("quantize_linear", ("f32",), BYTES, _one_scale),
        ("dequantize_linear", (*BYTES, "i32"), ("f32",), _one_scale),
        ("cast", ("i32",), ("f32",), None),
        *((op, WIDE, (), None) for op in ("add", "mul", "neg", "relu")),
        *((op, NUMBERS, (), None) for op in ("maximum", "minimum", "clip")),
        ("max_pool", NUMBERS, (), _pool),
        *((op, NUMBERS, (), None) for op in ("reshape", "flatten")),
    )
    table = tuple(
        Takes(op, elements, result, partial(_first, checks=(when, fits)))
        for op, elements, result, when in rows
    )
    forms = (opened("gemm"), sub_as_add, *integers)
    return BackEnd(
        machine.name, table, forms,
        cycles=machine.cycles, host_cycles=machine.host_cycles,
        transfer_cycles=machine.transfer_cycles, launch_cycles=machine.launch,
    )  # fmt: skip


def _first(node: Node, checks: Sequence[Check | None]) -> str | None:
    """The first reason that a check gives."""
    reasons = (check(node) for check in checks if check is not None)
    return next((reason for reason in reasons if reason is not None), None)


def _conv(node: Node) -> str | None:
    if tensor_type(node).rank != 4:
        return "conv_integer: not of two dimensions"
    if node.op.attributes()["group"] != 1:
        return "conv_integer: groups of channels"
    return _known_zeros(node)


def _matmul(node: Node) -> str | None:
    ranks = [tensor_type(v).rank for v in node.inputs[:2] if v is not None]
    if min(ranks) < 2:
        return "matmul_integer: an input has one axis"
    return _known_zeros(node)


def _known_zeros(node: Node) -> str | None:
    zeros = [v for v in node.inputs[2:] if v is not None]
    if not all(isinstance(z, Constant) for z in zeros):
        return f"{node.op.name}: a zero point is no constant"
    one = [tensor_type(z).size == 1 for z in zeros]
    return None if all(one) else f"{node.op.name}: a zero point for each row or column"


def _one_scale(node: Node) -> str | None:
    scale, *zeros = node.inputs[1:]
    if not all(isinstance(v, Constant) for v in (scale, *zeros) if v is not None):
        return f"{node.op.name}: a scale that is no constant"
    return (
        None
        if scale is not None and tensor_type(scale).size == 1
        else (f"{node.op.name}: a scale for each index of an axis")
    )


def _pool(node: Node) -> str | None:
    return None if tensor_type(node).rank == 4 else "max_pool: not of two dimensions"


def _too_large(node: Node, machine: Machine) -> str | None:
    """Half of the chip is for the tiles of a layer, both of the two that are there at once."""
    if node.op.name in VIEWS:
        return None
    least = footprint((node,), smallest_tile(node))
    if least <= machine.sram // 2:
        return None
    return f"{node.op.name}: its smallest tile takes {least} bytes of {machine.sram // 2}"
