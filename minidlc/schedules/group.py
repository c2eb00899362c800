"""What a schedule gets to see: the stages of one kernel, its anchor, and a few measures of them.

    group = Group(outputs=(relu,), anchor=matmul)     # two tensors
    group.anchor.shape, group.last.name, group.intermediate()

A group is the stages of one fused graph node: at most one *anchor* (the stage that does the
arithmetic) and pointwise stages before and after it. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minidlc.te.tensor import Tensor, stages


@dataclass(frozen=True)
class Group:
    """Outputs of a kernel and the stage its schedule is built around (None: all pointwise).

    `constants` names the placeholders that are known at compile time: copies can be prepacked.
    `made_for` is the implementation that gave the stages; "" if they are the ops' own.
    """

    outputs: tuple[Tensor, ...]
    anchor: Tensor | None = None
    constants: frozenset[str] = frozenset()
    made_for: str = ""

    @property
    def last(self) -> Tensor:
        """The stage computed last: the one whose loops the others hang on."""
        return self.outputs[-1]

    def stages(self) -> tuple[Tensor, ...]:
        """Computed stages, inputs before readers, placeholders left out."""
        return tuple(t for t in stages(self.outputs) if t.body is not None)

    def intermediate(self) -> tuple[Tensor, ...]:
        """Computed stages that are not outputs."""
        return tuple(t for t in self.stages() if t not in self.outputs)

    def readers(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """The stages that read `tensor`."""
        return tuple(t for t in self.stages() if tensor in t.inputs)

    def before_anchor(self) -> tuple[Tensor, ...]:
        """Stages the anchor needs (padding, casts), in order."""
        if self.anchor is None:
            return ()
        return tuple(t for t in stages((self.anchor,))[:-1] if t.body is not None)

    def after_anchor(self) -> tuple[Tensor, ...]:
        """Intermediate stages that come after the anchor: the epilogue without its last stage."""
        before = (*self.before_anchor(), self.anchor)
        return tuple(t for t in self.intermediate() if t not in before)


def work(tensor: Tensor) -> int:
    """Number of times the body of `tensor` is evaluated."""
    return math.prod(tensor.shape) * math.prod(extent for _, extent in tensor.reduce_axes)


def divisors(n: int, at_most: int | None = None) -> list[int]:
    """The divisors of n that are not above `at_most`, in order (none for n = 0)."""
    most = n if at_most is None else min(n, at_most)
    return [d for d in range(1, most + 1) if n % d == 0]


def largest_divisor(n: int, at_most: int) -> int:
    """The largest divisor of n that is not above `at_most` (1 for n = 0)."""
    return next((d for d in range(min(n, at_most), 0, -1) if n % d == 0), 1)
