"""What a training step remembers from call to call: parameters, slots of optimisers, counters.

    kept = Variables(Names())
    m = kept.add("m/w", zeros)                      # an input `w_m` of the step, at first zeros
    kept.new[m] = 0.9 * m + dw                      # what it becomes: an output `w_m_new`

Keys are "what/parameter": parameters/w, m/w, gradients/w; counters/steps belongs to the whole step.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph.graph import Input, Value
from minidlc.support.names import Names


def zeros(type: TensorType) -> Array:
    """What a variable of this type starts with, unless somebody says otherwise."""
    return np.zeros(type.dims, type.dtype.numpy)


@dataclass(frozen=True)
class Variable:
    """A key of the state, an input of the step, the array it starts with, what it becomes."""

    key: str
    input: Input
    initial: Array
    new: Value

    @property
    def changes(self) -> bool:
        """False for what only is read: a frozen parameter."""
        return self.new is not self.input

    @property
    def is_trained(self) -> bool:
        """Whether an optimiser moves it."""
        return self.changes and self.key.startswith("parameters/")


@dataclass
class Variables:
    """The variables of a step while its graph is built; `names` are those of inputs."""

    names: Names
    kept: dict[Input, tuple[str, Array]] = field(default_factory=dict[Input, tuple[str, Array]])
    new: dict[Input, Value] = field(default_factory=dict[Input, Value])

    def add(self, key: str, initial: Array, input: Input | None = None) -> Input:
        """One more variable; its input is made unless the graph has it already."""
        if input is None:
            what, _, parameter = key.partition("/")
            name = parameter if what == "counters" else f"{parameter}_{what}"
            type = TensorType(dtype(initial.dtype), initial.shape)
            input = Input(self.names.fresh(name), type)
        self.kept[input] = key, initial
        return input

    def all(self) -> tuple[Variable, ...]:
        """Every variable; one that was given no new value stays as it is."""
        kept = self.kept.items()
        return tuple(Variable(key, i, initial, self.new.get(i, i)) for i, (key, initial) in kept)
