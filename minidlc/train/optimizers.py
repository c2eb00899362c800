"""Optimisers: how a parameter moves, as ops on values.

    optimizer = mc.train.adam(1e-3)                 # a record of numbers; it keeps nothing itself
    optimizer.slots(f32[3])                         # {"m": zeros, "v": zeros}: what it remembers
    w_new, slots = optimizer.update(w, dw, {"m": m, "v": v}, step, learning_rate)

An optimiser is anything with `learning_rate`, `slots` and `update`. The compiled step calls
`update` once for each parameter, while it builds its graph: so the update is compiled with the
gradient, and slots are arrays that the step keeps. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias, runtime_checkable

from minidlc.expr.types import Array, TensorType, f64
from minidlc.graph.graph import Value, apply
from minidlc.ops.composing import cast_to, narrowed, scalar
from minidlc.support.arguments import expect_each
from minidlc.train.limits import checked
from minidlc.train.variables import zeros

Slots: TypeAlias = Mapping[str, Value]
Updated: TypeAlias = tuple[Value, dict[str, Value]]


@runtime_checkable
class Optimizer(Protocol):
    """What `mc.compile_train_step` asks of an optimiser."""

    @property
    def learning_rate(self) -> float:
        """The rate that training starts with; a step takes it as an input."""
        ...

    def slots(self, type: TensorType) -> dict[str, Array]:
        """What is remembered of a parameter of this type, by name: the arrays to start with."""
        ...

    def update(
        self, parameter: Value, gradient: Value, slots: Slots, step: Value, learning_rate: Value
    ) -> Updated:
        """The parameter after update number `step` (i64[()], from 1), and its slots after it.

        `gradient` has the type of `parameter`, `learning_rate` its element type.
        """
        ...


@dataclass(frozen=True)
class Sgd:
    """w = w - rate * dw: gradient descent on a batch (Robbins and Monro, 1951)."""

    learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        _check(self, "learning_rate")

    def slots(self, type: TensorType) -> dict[str, Array]:
        """Nothing is remembered."""
        return {}

    def update(
        self, parameter: Value, gradient: Value, slots: Slots, step: Value, learning_rate: Value
    ) -> Updated:
        """One step downhill."""
        return parameter - learning_rate * gradient, {}


@dataclass(frozen=True)
class Momentum:
    """m = momentum * m + dw; w = w - rate * m (Polyak, 1964).

    `nesterov` looks one step ahead: w = w - rate * (dw + momentum * m) (Sutskever et al., 2013).
    """

    learning_rate: float = 1e-2
    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check(self, "learning_rate", below_one=("momentum",))

    def slots(self, type: TensorType) -> dict[str, Array]:
        """`m`: the velocity."""
        return {"m": zeros(type)}

    def update(
        self, parameter: Value, gradient: Value, slots: Slots, step: Value, learning_rate: Value
    ) -> Updated:
        """One step along the velocity."""
        m = self.momentum * slots["m"] + gradient
        direction = gradient + self.momentum * m if self.nesterov else m
        return parameter - learning_rate * direction, {"m": m}


@dataclass(frozen=True)
class Adam:
    """m and v are running means of dw and dw²; w = w - rate * m̂ / (sqrt(v̂) + epsilon).

    m̂ = m / (1 - beta1^t) and v̂ = v / (1 - beta2^t) undo that both start at zero (Kingma and Ba,
    2015, algorithm 1).
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _check(self, "learning_rate", "epsilon", below_one=("beta1", "beta2"))

    def slots(self, type: TensorType) -> dict[str, Array]:
        """`m` and `v`: the running means."""
        return {"m": zeros(type), "v": zeros(type)}

    def update(
        self, parameter: Value, gradient: Value, slots: Slots, step: Value, learning_rate: Value
    ) -> Updated:
        """One step; its length is about the rate, whatever the size of the gradient."""
        m = self.beta1 * slots["m"] + (1 - self.beta1) * gradient
        v = self.beta2 * slots["v"] + (1 - self.beta2) * (gradient * gradient)
        # the corrections are numbers of the whole step: multiplied in, not computed per element
        rate = learning_rate / _from_zero(self.beta1, step, parameter)
        spread = apply("sqrt", v) * (1.0 / apply("sqrt", _from_zero(self.beta2, step, parameter)))
        return parameter - rate * m / (spread + self.epsilon), {"m": m, "v": v}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay beside the gradient: w loses rate * weight_decay * w in each step.

    `exclude` names parameters that do not decay, usually biases and norms; "*_bias" is a pattern
    (Loshchilov and Hutter, 2019).
    """

    weight_decay: float = 1e-2
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, "weight_decay")
        hint = 'exclude=("*_bias",)'
        names = expect_each("adamw", "exclude", self.exclude, str, hint=hint)
        object.__setattr__(self, "exclude", names)

    def update(
        self, parameter: Value, gradient: Value, slots: Slots, step: Value, learning_rate: Value
    ) -> Updated:
        """Decay, then Adam's step from there."""
        start = parameter
        if not any(fnmatchcase(parameter.name, pattern) for pattern in self.exclude):
            start = parameter * (1.0 - learning_rate * self.weight_decay)
        return super().update(start, gradient, slots, step, learning_rate)


@dataclass(frozen=True)
class RmsProp:
    """v is a running mean of dw²; w = w - rate * dw / (sqrt(v) + epsilon) (Hinton, 2012)."""

    learning_rate: float = 1e-2
    decay: float = 0.99
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _check(self, "learning_rate", "epsilon", below_one=("decay",))

    def slots(self, type: TensorType) -> dict[str, Array]:
        """`v`: the running mean."""
        return {"v": zeros(type)}

    def update(
        self, parameter: Value, gradient: Value, slots: Slots, step: Value, learning_rate: Value
    ) -> Updated:
        """One step, each element divided by how large its gradients were of late."""
        v = self.decay * slots["v"] + (1 - self.decay) * (gradient * gradient)
        spread = apply("sqrt", v) + self.epsilon
        return parameter - learning_rate * gradient / spread, {"v": v}


# The names of the API: an optimiser reads like a call, `mc.train.adam(1e-3)`.
sgd, momentum, adam, adamw, rmsprop = Sgd, Momentum, Adam, AdamW, RmsProp


def _from_zero(beta: float, step: Value, like: Value) -> Value:
    """1 - beta^t: the weight that a running mean which started at zero has collected.

    In f64: with beta = 0.999 and t = 1 the difference would lose four of seven digits of f32.
    """
    power = apply("pow", scalar(beta, f64), cast_to(step, f64))
    return narrowed(1.0 - power, like)


def _check(optimizer: Optimizer, *at_least_zero: str, below_one: Sequence[str] = ()) -> None:
    """Refuse numbers with which no training works."""
    for which in at_least_zero:
        _set(optimizer, which, "a finite number of at least 0", lambda n: 0 <= n < math.inf)
    for which in below_one:
        _set(optimizer, which, "a number from 0 up to, not with, 1", lambda n: 0 <= n < 1)


def _set(optimizer: Optimizer, which: str, wanted: str, fits: Callable[[float], bool]) -> None:
    """The number as one of Python's: beside one of NumPy an op would be NumPy's."""
    hint = "the learning rate comes first: adam(1e-3)" if which == "learning_rate" else None
    name, given = type(optimizer).__name__.lower(), getattr(optimizer, which)
    number = checked(name, which, given, wanted, fits, hint=hint)
    object.__setattr__(optimizer, which, number)
