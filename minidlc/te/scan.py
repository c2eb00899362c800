"""Recurrences: tensors whose steps along the first axis need the steps before.

    c = te.state(f32[8], init=0.0, name="c")                # what the steps so far have left
    C = te.scan(c, lambda t: c[t - 1] + x[t])               # cumsum: c[-1] is 0.0

    h = te.state(f32[T, n], init=lambda i: h0[i], name="h")
    z = te.compute((T, n), lambda t, i: te.sum(h[t - 1, j] * U[j, i], j), name="z")
    H = te.scan(h, lambda t, i: te.tanh(z[t, i] + x[t, i])) # one layer of an RNN

The loop over the first axis runs in order, outermost; stages between the state and the scan (z) are
computed in it, step by step. The other axes are scheduled as any. As TVM's scan (T. Chen et al.,
2018), with the value before the first step in place of a tensor of first rows.
Reads and writes tensors. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from minidlc.expr.index import Cond, Index, Var
from minidlc.expr.nodes import Expr, Load, select
from minidlc.expr.printing import print_expr
from minidlc.expr.types import TensorType
from minidlc.loop.regions import loads
from minidlc.support.arguments import expect
from minidlc.support.errors import LoweringError
from minidlc.te.tensor import Tensor, compute, placeholder, stages


@dataclass(frozen=True, eq=False)
class Recurrent(Tensor):
    """The steps of a scan as its own expressions read them; before the first step it is `init`."""

    init: Callable[..., object] = field(kw_only=True, repr=False)

    def __getitem__(self, index: object) -> Expr:
        load = super().__getitem__(index)
        assert isinstance(load, Load)
        return select(Cond((load.index[0],)), load, self.init(*load.index[1:]))

    def __str__(self) -> str:
        return f"{self.name} = state({self.type})"


@dataclass(frozen=True, eq=False)
class Scan(Tensor):
    """A tensor computed step by step along its first axis; it has the name of its state."""

    state: Recurrent = field(kw_only=True, repr=False)

    def __str__(self) -> str:
        head = ", ".join(self.axes)
        assert self.body is not None
        return f"{self.name} = scan({self.type}, lambda {head}: {print_expr(self.body)})"


def state(type: TensorType, init: Callable[..., object] | float = 0, name: str = "S") -> Recurrent:
    """What the steps of a scan have left so far: read it at `[t - 1, …]`, or further back.

    `init` is the value before the first step, a number or a function of the other axes.
    """
    expect("state", "type", type, TensorType, hint="te.state(f32[4, 8], name='h')")
    expect("state", "init", init, int, float, Callable, hint="a number, or lambda i: h0[i]")  # pyright: ignore[reportArgumentType]
    if type.rank == 0:
        raise _wrong(f"{name}: a scan needs an axis of steps, got {type}")
    steps = placeholder(type, name)

    def value(*_: Index) -> object:
        return init

    start = init if callable(init) else value
    return Recurrent(steps.name, steps.type, steps.axes, init=start)


def scan(before: Recurrent, update: Callable[..., object]) -> Tensor:
    """The tensor whose step t is `update(t, i, …)`, a function of steps before t.

    LoweringError (MDLC0729) for a step that reads itself or a later one, another element type than
    that of the state, or what reads the state and is no part of the step.
    """
    expect("scan", "before", before, Recurrent, hint="te.state(f32[4, 8], name='h')")
    return scan_of(compute(before.shape, update, before.name, element=before.dtype), before)


def scan_of(made: Tensor, before: Recurrent) -> Scan:
    """The scan whose step is a computed tensor; errors as for `scan`."""
    if made.type != before.type:
        raise _wrong(f"{before.name}: a step is {made.type}, the state {before.type}")
    whole = Scan(before.name, made.type, made.axes, made.body, made.inputs, state=before)
    within = [t for t in stages((whole,)) if before in _needed(t)]
    for tensor in within:
        if isinstance(tensor, Scan) and tensor is not whole:
            raise _wrong(
                f"the scans {tensor.name!r} and {whole.name!r} need each other",
                hint="make them one scan, with an axis that says which",
            )
        _check_steps(tensor, before, within)
    return whole


def _needed(tensor: Tensor) -> tuple[Tensor, ...]:
    """Everything that a computed tensor reads, directly or not."""
    return stages(tensor.inputs)


def _check_steps(tensor: Tensor, before: Recurrent, within: list[Tensor]) -> None:
    """Step t of a tensor reads earlier steps of the state and step t of what is in between."""
    assert tensor.body is not None
    step = Index.of(Var(tensor.axes[0])) if tensor.axes else None
    inner = {t.name for t in within if not isinstance(t, Scan)}
    for load in loads(tensor.body):
        if load.buffer == before.name:
            back = None if step is None else step - load.index[0]
            if back is None or not back.is_const or back.const < 1:
                raise _wrong(
                    f"{tensor.name} reads {print_expr(load)}, which is no step before {step}",
                    hint=f"such as {before.name}[{step} - 1, …], the first axis being the steps",
                )
        elif load.buffer in inner and load.index[0] != step:
            raise _wrong(f"step {step} of {tensor.name} reads {print_expr(load)}, another step")


def check_scans(order: Iterable[Tensor]) -> None:
    """Refuse (MDLC0729) what reads the state of a scan from outside."""
    tensors = tuple(order)
    scans = {t.state: t for t in tensors if isinstance(t, Scan)}
    for tensor in tensors:
        for before in tensor.inputs:
            if not isinstance(before, Recurrent):
                continue
            whole = scans.get(before)
            if whole is None or (tensor is not whole and tensor not in _needed(whole)):
                raise _wrong(
                    f"{tensor.name} reads the state {before.name!r}, but is no part of its step",
                    hint="read the tensor that te.scan returns",
                )


def _wrong(message: str, hint: str | None = None) -> LoweringError:
    return LoweringError(message, hint=hint, code="MDLC0729")
