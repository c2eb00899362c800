"""Schedules: a trace of primitives over stages, and handles to write one.

    sch = create_schedule([C])
    io, ii = sch[C].split("i", 14)
    sch[C].reorder(io, "j", ii).vectorize("j")      # refused here: 'ii' lies inside 'j'
    sch.show()                                      # the loops so far
    fn = sch.lower("matmul")                        # LoopFunction

The outputs, the trace and the states are immutable; a primitive rebinds what the handle holds.
Replaying the trace always gives the same program. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from minidlc.loop.nodes import Kind, LoopFunction
from minidlc.loop.simplify import simplify_stmt
from minidlc.loop.verify import verify_function
from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import ScheduleError
from minidlc.support.locations import caller
from minidlc.te.knob import Knob
from minidlc.te.legality import RegisterError, check_nesting, check_unrolled
from minidlc.te.lower import cut, init_loops, lower, lower_init, lower_state
from minidlc.te.primitive import Primitive, Trace, apply_primitive, checked_step
from minidlc.te.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Parallel,
    Prefetch,
    Prepack,
    Reorder,
    RFactor,
    SetScope,
    Split,
    StoreAt,
    Tensorize,
    Tile,
    TransformLayout,
    Unroll,
    Vectorize,
)
from minidlc.te.stage import State, initial_state
from minidlc.te.tensor import Tensor


def create_schedule(
    outputs: Tensor | Iterable[Tensor], *, constants: Iterable[str] = (), checked: bool = True
) -> Schedule:
    """The schedule that computes every tensor whole, in plain loops, one after another.

    `constants` names placeholders that are known at compile time: see `StageHandle.prepack`.
    checked=True verifies the plain loops, so that no tensor is read outside its shape (VerifyError
    MDLC0455), and lowers after each primitive, so that a wrong one is refused where it stands; it
    also refuses unrolled loops of no constant extent, which are legal but slow. Schedules that are
    known to be right (those of the library) save that time: they are checked once, by `lower`.
    """
    wanted = (outputs,) if isinstance(outputs, Tensor) else outputs
    return Schedule(wanted, constants=constants, checked=checked)


def replay(
    outputs: Iterable[Tensor], trace: Iterable[Primitive], constants: Iterable[str] = ()
) -> State:
    """The state after a trace; ScheduleError at the first step that is illegal."""
    state = initial_state(outputs, constants)
    for step in Trace(trace):
        state = _apply(checked_step(step), state)
    return state


def check_state(state: State) -> None:
    """Refuse (ScheduleError) what cannot be lowered, or leaves an unrolled loop without extent.

    Scopes are not checked: a buffer may be set to registers before the loops around are unrolled.
    """
    unrolled = any(kind is Kind.UNROLLED for stage in state.stages for _, kind in stage.kinds)
    for fn in (lower_state(state), *init_loops(state)):
        check_nesting(fn)
        if unrolled:
            check_unrolled(cut(fn))


def _apply(step: Primitive, state: State, *, checked: bool = False) -> State:
    try:
        new = apply_primitive(step, state)
        if checked:
            check_state(new)
    except ScheduleError as error:
        raise _explained(error, step, state) from None
    return new


def _explained(error: ScheduleError, step: Primitive, before: State) -> ScheduleError:
    """The error with the step that is refused, its caller's line, and the loops before it."""
    nest = str(lower_state(before)).rstrip("\n").replace("\n", "\n      ")
    return ScheduleError(
        f"{step.name}: {error.message}",
        loc=error.place or caller(),
        notes=(f"step: {step}", *error.notes, f"loops before this step:\n      {nest}"),
        hint=error.hint,
        code=error.code,
    )


class Schedule:
    """Outputs to compute and the trace that says how; `sch[C]` is the handle of a stage."""

    def __init__(
        self,
        outputs: Iterable[Tensor],
        trace: Iterable[Primitive] = (),
        *,
        constants: Iterable[str] = (),
        checked: bool = True,
    ) -> None:
        self.outputs = expect_each("schedule", "outputs", outputs, Tensor)
        self.checked = checked
        self._trace = Trace()
        self._knobs: dict[str, Knob] = {}
        self._state = initial_state(self.outputs, constants)
        if checked:
            verify_function(lower_state(self._state))
        for step in Trace(trace):
            self.apply(step)

    @property
    def trace(self) -> Trace:
        """The primitives so far; `str(sch.trace)` is the text `parse_trace` reads."""
        return self._trace

    @property
    def state(self) -> State:
        """The stages as the trace leaves them."""
        return self._state

    def apply(self, step: Primitive) -> Schedule:
        """Add one primitive; ScheduleError, and nothing changed, if it is illegal here."""
        step = checked_step(step)
        for knob in Trace((step,)).knobs.values():
            self._declare(knob)
        self._state = _apply(step, self._state, checked=self.checked)
        self._trace = Trace((*self._trace, step))
        return self

    def knob(self, name: str, value: int, candidates: Sequence[int] = ()) -> Knob:
        """A number that stays open: primitives take it as `value`, the trace keeps its name.

        Arithmetic on it gives a plain number, which is no longer tied to it. ScheduleError for a
        value that is no candidate (MDLC0631), a name that is another knob already (MDLC0630).
        """
        return self._declare(Knob(name, value, candidates))

    def _declare(self, knob: Knob) -> Knob:
        known = self._knobs.setdefault(knob.name, knob)
        if known.declaration != knob.declaration:
            raise ScheduleError(
                f"knob {knob.name!r} is there already: {known.declaration}",
                loc=caller(),
                code="MDLC0630",
            )
        return known

    def __getitem__(self, stage: StageHandle | Tensor | str) -> StageHandle:
        name = _name(stage)
        expect("schedule[…]", "stage", name, str, Tensor, hint='sch[C], or sch["C"] by name')
        try:
            self._state.stage(name)
        except ScheduleError as error:
            raise error.at(caller()) from None
        return StageHandle(self, name)

    def prefixes(self) -> tuple[Schedule, ...]:
        """The schedule after 0, 1, 2, … primitives: each one lowers and prints."""
        known = self._state.constants
        found = [Schedule(self.outputs, constants=known, checked=False)]
        for step in self._trace:
            so_far = found[-1].trace
            again = Schedule(self.outputs, so_far, constants=known, checked=False)
            found.append(again.apply(step))
        return tuple(found)

    def lower(
        self,
        name: str = "kernel",
        params: Sequence[str] | None = None,
        *,
        partition: bool = True,
        lanes: int | None = None,
    ) -> LoopFunction:
        """The loops; see `minidlc.te.lower.lower`."""
        return lower(self, name, params, partition=partition, lanes=lanes)

    def lower_init(
        self, name: str = "kernel", *, lanes: int | None = None
    ) -> tuple[LoopFunction, ...]:
        """The loops of the prepacked stages; see `minidlc.te.lower.lower_init`."""
        return lower_init(self, name, lanes=lanes)

    def show(self, *, partition: bool = False) -> None:
        """Print the loops as scheduled, or cut as code generation gets them.

        Those that run once, at compile time, come first. Loops of one iteration are left away.
        """
        for fn in (*self.lower_init(), self.lower(partition=partition)):
            print(replace(fn, body=simplify_stmt(fn.body, {}, drop_unit_loops=True)), end="")

    def blame(self, error: ScheduleError) -> ScheduleError:
        """The error of lowering with the step of the trace that is at fault."""
        scoped = [s for s in self._trace if isinstance(error, RegisterError) and _sets(s, error)]
        state = initial_state(self.outputs, self._state.constants)
        for step in self._trace:
            try:
                new = apply_primitive(step, state)
                for fn in (lower_state(new), *init_loops(new)):
                    check_nesting(fn)
            except ScheduleError as cause:
                return _explained(cause, step, state)
            if scoped and step is scoped[-1]:
                return _explained(error, step, state)
            state = new
        error.at(caller())
        return error

    def __repr__(self) -> str:
        names = ", ".join(t.name for t in self.outputs)
        return f"<schedule of {names}: {len(self._trace)} primitives>"


def _sets(step: Primitive, error: RegisterError) -> bool:
    """Whether a step put the buffer of the error into registers."""
    match step:
        case SetScope(stage=stage):
            return stage == error.buffer
        case CacheWrite(stage=stage):
            return error.buffer.startswith(f"{stage}_c")
        case _:
            return False


def _name(stage: StageHandle | Tensor | str) -> str:
    """The name that a primitive takes for a stage; anything else is left for it to refuse."""
    return stage.name if isinstance(stage, (StageHandle, Tensor)) else stage


def _pairs(tiles: Mapping[int, int] | tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Tiles as a primitive takes them; anything else is left for it to refuse."""
    return tuple(tiles.items()) if isinstance(tiles, Mapping) else tiles


@dataclass(frozen=True)
class StageHandle:
    """A stage of a schedule by name: each method adds one primitive to the schedule.

    Methods that make loops return their names, the others the handle, so calls can be chained.
    What each does, before -> after, stands in minidlc/te/primitives; all raise ScheduleError.
    """

    schedule: Schedule
    name: str

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops of the stage, outermost first."""
        return self.schedule.state.stage(self.name).leaves

    def split(
        self, axis: str, factor: int, names: tuple[str, str] | None = None, tail: str = "cut"
    ) -> tuple[str, str]:
        """`axis` -> outer, inner; returns their names (`io`, `ii` unless given)."""
        made = (f"{axis}o", f"{axis}i") if names is None else names
        self.schedule.apply(Split(self.name, axis, factor, made, tail))
        outer, inner = made
        return outer, inner

    def fuse(self, outer: str, inner: str, name: str | None = None) -> str:
        """Two adjacent loops -> one; returns its name."""
        fused = f"{outer}_{inner}" if name is None else name
        self.schedule.apply(Fuse(self.name, outer, inner, fused))
        return fused

    def reorder(self, *axes: str) -> StageHandle:
        """The named loops in this order, outermost first."""
        self.schedule.apply(Reorder(self.name, axes))
        return self

    def tile(
        self, i: str, j: str, rows: int, columns: int, names: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        """`i`, `j` -> io, jo, ii, ji; returns their names."""
        made = (f"{i}o", f"{j}o", f"{i}i", f"{j}i") if names is None else names
        self.schedule.apply(Tile(self.name, (i, j), made, rows, columns))
        return tuple(made)

    def unroll(self, *axes: str) -> StageHandle:
        """Unroll each of the loops."""
        for axis in axes:
            self.schedule.apply(Unroll(self.name, axis))
        return self

    def vectorize(self, axis: str) -> StageHandle:
        """Iterations of `axis` become lanes."""
        self.schedule.apply(Vectorize(self.name, axis))
        return self

    def parallel(self, axis: str) -> StageHandle:
        """Iterations of `axis` go to threads."""
        self.schedule.apply(Parallel(self.name, axis))
        return self

    def compute_at(self, target: StageHandle | Tensor | str, axis: str) -> StageHandle:
        """Compute this stage inside a loop of another."""
        self.schedule.apply(ComputeAt(self.name, _name(target), axis))
        return self

    def store_at(self, target: StageHandle | Tensor | str, axis: str) -> StageHandle:
        """Keep the elements at a loop around the one where they are computed."""
        self.schedule.apply(StoreAt(self.name, _name(target), axis))
        return self

    def compute_inline(self) -> None:
        """Compute this stage where it is read."""
        self.schedule.apply(ComputeInline(self.name))

    def tensorize(self, axis: str, intrinsic: str = "dot4") -> StageHandle:
        """Compute the innermost loop `axis` by an instruction."""
        self.schedule.apply(Tensorize(self.name, axis, intrinsic))
        return self

    def prefetch(self, tensor: StageHandle | Tensor | str, axis: str, distance: int) -> StageHandle:
        """In each iteration of `axis`, ask for what a later one reads of `tensor`."""
        self.schedule.apply(Prefetch(self.name, _name(tensor), axis, distance))
        return self

    def prepack(self) -> StageHandle:
        """Compute this stage, which depends on constants only, once at compile time."""
        self.schedule.apply(Prepack(self.name))
        return self

    def set_scope(self, scope: str) -> StageHandle:
        """Where the elements live: "arena", "stack", "register"."""
        self.schedule.apply(SetScope(self.name, scope))
        return self

    def cache_write(self, scope: str) -> StageHandle:
        """Compute in a buffer `C_c`, which this stage copies; returns the handle of `C_c`."""
        self.schedule.apply(CacheWrite(self.name, scope))
        (cache,) = self.schedule.state.stage(self.name).reads
        return StageHandle(self.schedule, cache)

    def rfactor(self, half: str, position: str = "last") -> StageHandle:
        """Partial results `S_rf` over the other reduction loops, this stage over `half`."""
        self.schedule.apply(RFactor(self.name, half, position))
        (partial,) = self.schedule.state.stage(self.name).reads
        return StageHandle(self.schedule, partial)

    def transform_layout(self, tiles: Mapping[int, int]) -> StageHandle:
        """Compute this stage in a blocked layout: {dimension: factor}."""
        self.schedule.apply(TransformLayout(self.name, _pairs(tiles)))
        return self

    def cache_read(
        self,
        tensor: StageHandle | Tensor | str,
        tiles: Mapping[int, int] | None = None,
        readers: Sequence[str] = (),
    ) -> StageHandle:
        """Read `tensor` from a copy `B_p` of blocked layout, shared with `readers`; its handle."""
        others = expect_each("cache_read", "readers", readers, str)
        blocks = _pairs({} if tiles is None else tiles)
        before = self.schedule.state.names()
        self.schedule.apply(CacheRead(_name(tensor), (self.name, *others), blocks))
        (copy,) = self.schedule.state.names() - before
        return StageHandle(self.schedule, copy)
