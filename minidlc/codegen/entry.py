"""The one native function of a static model: it calls the kernels in order.

    call = KernelCall("k_1", (Operand("input", 0), Operand("arena", offset=64)), Operand("arena"))
    text = emit_entry("main", (call,))              # or Branch, Repeat, Flag, Commit
    # define void @main(ptr %arena, ptr %inputs, ptr %outputs, ptr %constants, i32 %threads)

Branches and loops (codegen/control.py) are blocks of this function: control never leaves native
code. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from minidlc.codegen.compile import compile_text
from minidlc.codegen.control import (
    Branch,
    Commit,
    Flag,
    KernelCall,
    Operand,
    Repeat,
    Steps,
    kernel_calls,
)
from minidlc.support.errors import CodegenError
from minidlc.target import Target

_BASES = {"arena": "%arena", "constant": "%constants", "input": "%inputs", "output": "%outputs"}
_FOREVER = (1 << 63) - 1  # runs of a loop that only its condition ends


@dataclass(frozen=True)
class Clock:
    """Where an entry notes how long its kernels take: two i64 a kernel call, ticks and calls.

    `address` is that of the array, call sites in the order of `kernel_calls`; `counter` is LLVM's
    intrinsic that reads the time.
    """

    address: int
    counter: str


def emit_entry(
    name: str, steps: Steps, clock: Clock | None = None, stop: Operand | None = None
) -> str:
    """Return the LLVM text of the entry `name`; the kernels are declared, not defined.

    With a clock it adds up the time of every kernel call. Between kernels, up to a Commit, it
    returns if the i64 at `stop` is not 0.
    """
    declared = [
        f"declare void @{symbol}({', '.join(['ptr'] * (n + 1))}, i32)"
        for symbol, n in _arity(steps).items()
    ]
    header = (
        f"define void @{name}(ptr %arena, ptr %inputs, ptr %outputs, ptr %constants, i32 %threads)"
    )
    writer = _Writer(clock, stop)
    writer.steps(steps)
    writer.block("end")
    body = "\n".join([*writer.loads, *writer.lines, "  ret void"])
    return "\n".join(declared) + f"\n\n{header} nounwind {{\n{body}\n}}\n"


def _arity(steps: Steps) -> dict[str, int]:
    """Symbol -> number of operands, one number for each (MDLC0822)."""
    arity: dict[str, int] = {}
    for call in kernel_calls(steps):
        if arity.setdefault(call.symbol, len(call.operands)) != len(call.operands):
            raise CodegenError(
                f"{call.symbol} is called with {len(call.operands)} and with "
                f"{arity[call.symbol]} operands",
                code="MDLC0822",
            )
    return arity


@dataclass
class _Writer:
    """The lines of the function; addresses of arrays are loaded first, so that all blocks see them.

    Blocks are named for what they belong to: `then.4`, `head.2`.
    """

    clock: Clock | None = None
    stop: Operand | None = None
    sites: int = 0  # kernel calls so far
    committed: bool = False  # inputs are being written: nothing stops the call any more
    loads: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    loaded: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    count: int = 0

    def line(self, text: str) -> None:
        """One instruction."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """An instruction with a result; returns its name."""
        self.count += 1
        self.line(f"%v.{self.count} = {text}")
        return f"%v.{self.count}"

    def block(self, label: str, *, enter: bool = True) -> None:
        """Start a block; the one before runs into it unless `enter` is False."""
        if enter:
            self.line(f"br label %{label}")
        self.lines.append(f"{label}:")

    def steps(self, steps: Steps) -> None:
        """Write steps, one after the other."""
        for step in steps:
            match step:
                case KernelCall():
                    self.call(step)
                case Branch():
                    self.branch(step)
                case Repeat():
                    self.repeat(step)
                case Flag():
                    self.flag(step)
                case Commit():
                    self.commit(step)

    def call(self, call: KernelCall) -> None:
        """Call one kernel, unless somebody has lost patience during the one before."""
        if self.stop is not None and self.sites and not self.committed:
            self.leave_if_told(self.stop)
        self.sites += 1
        places = [self.place(x) for x in (*call.operands, call.workspace)]
        arguments = ", ".join(f"ptr {p}" for p in places)
        text = f"call void @{call.symbol}({arguments}, i32 %threads)"
        if self.clock is None:
            self.line(text)
        else:
            self.timed(text, self.clock.address + 16 * (self.sites - 1), self.clock.counter)

    def commit(self, step: Commit) -> None:
        """Leave now or not at all."""
        if self.stop is not None:
            self.leave_if_told(self.stop)
        for number in range(step.flags):
            self.leave_if_told(Operand("output", step.output, 8 * number))
        self.committed = True

    def leave_if_told(self, stop: Operand) -> None:
        """br end  go.N:"""
        word = self.value(f"load volatile i64, ptr {self.place(stop)}, align 8")
        going = self.value(f"icmp eq i64 {word}, 0")
        label = f"go.{self.count}"
        self.line(f"br i1 {going}, label %{label}, label %end")
        self.block(label, enter=False)

    def timed(self, text: str, address: int, counter: str) -> None:
        """A call, and the time it took added to the two numbers of its site."""
        begin = self.value(f"call i64 @{counter}()")
        self.line(text)
        end = self.value(f"call i64 @{counter}()")
        ticks = self.value(f"sub i64 {end}, {begin}")
        for number, amount in enumerate((ticks, "1")):
            place = f"inttoptr (i64 {address + 8 * number} to ptr)"
            old = self.value(f"load i64, ptr {place}, align 8")
            new = self.value(f"add i64 {old}, {amount}")
            self.line(f"store i64 {new}, ptr {place}, align 8")

    def branch(self, step: Branch) -> None:
        """then.N: …  else.N: …  join.N:"""
        holds = self.condition(step.condition)
        number = self.count
        self.line(f"br i1 {holds}, label %then.{number}, label %else.{number}")
        self.block(f"then.{number}", enter=False)
        self.steps(step.then_steps)
        self.line(f"br label %join.{number}")
        self.block(f"else.{number}", enter=False)
        self.steps(step.else_steps)
        self.block(f"join.{number}")

    def repeat(self, step: Repeat) -> None:
        """before.N: → head.N: tests → body.N: … latch.N: → head.N; end.N:"""
        n = step.loop
        limit = str(_FOREVER if step.trips is None else step.trips)
        if isinstance(step.trips, Operand):
            limit = self.value(f"load i64, ptr {self.place(step.trips)}, align 8")
        start = "true" if step.start is None else self.condition(step.start)
        self.block(f"before.{n}")
        self.block(f"head.{n}")
        self.line(f"%run.{n} = phi i64 [ 0, %before.{n} ], [ %next.{n}, %latch.{n} ]")
        self.line(f"%holds.{n} = phi i1 [ {start}, %before.{n} ], [ %again.{n}, %latch.{n} ]")
        more = self.value(f"icmp slt i64 %run.{n}, {limit}")
        both = self.value(f"and i1 {more}, %holds.{n}")
        if step.stop is not None and not self.committed:
            word = self.value(f"load volatile i64, ptr {self.place(step.stop)}, align 8")
            going = self.value(f"icmp eq i64 {word}, 0")
            both = self.value(f"and i1 {both}, {going}")
        self.line(f"br i1 {both}, label %body.{n}, label %end.{n}")
        self.block(f"body.{n}", enter=False)
        self.line(f"store i64 %run.{n}, ptr {self.place(step.counter)}, align 8")
        self.line(f"store i8 1, ptr {self.place(step.flag)}, align 1")  # or we were not here
        self.steps(step.steps)
        proceed = "true" if step.proceed is None else self.condition(step.proceed)
        self.block(f"latch.{n}")
        self.line(f"%next.{n} = add i64 %run.{n}, 1")
        self.line(f"%again.{n} = and i1 {proceed}, true")
        self.line(f"br label %head.{n}")
        self.block(f"end.{n}", enter=False)

    def flag(self, step: Flag) -> None:
        """Note a fault for the runtime to report."""
        raised = self.value(f"load i64, ptr {self.place(step.source)}, align 8")
        where = self.place(Operand("output", step.output, 8 * step.number))
        old = self.value(f"load i64, ptr {where}, align 8")
        new = self.value(f"or i64 {old}, {raised}")
        self.line(f"store i64 {new}, ptr {where}, align 8")

    def condition(self, x: Operand) -> str:
        """The byte at `x` as an i1."""
        byte = self.value(f"load i8, ptr {self.place(x)}, align 1")
        return self.value(f"icmp ne i8 {byte}, 0")

    def place(self, x: Operand) -> str:
        """The SSA name of an operand's address."""
        base = _BASES[x.space]
        if x.space in ("input", "output"):
            key = (x.space, x.index)
            if key not in self.loaded:
                name = self.loaded[key] = f"%{x.space}.{x.index}"
                self.loads += _load(name, base, x.index)
            base = self.loaded[key]
        if x.offset:
            base = self.value(f"getelementptr i8, ptr {base}, i64 {x.offset}")
        for loop, nbytes in x.moves:
            distance = self.value(f"mul i64 %run.{loop}, {nbytes}")
            base = self.value(f"getelementptr i8, ptr {base}, i64 {distance}")
        return base


def _load(name: str, base: str, index: int) -> Iterator[str]:
    """The address of an array out of the table of inputs or outputs."""
    yield f"  {name}.slot = getelementptr ptr, ptr {base}, i64 {index}"
    yield f"  {name} = load ptr, ptr {name}.slot, align 8"


def compile_entry(
    name: str,
    steps: Steps,
    target: Target,
    clock: Clock | None = None,
    stop: Operand | None = None,
) -> bytes:
    """Return the object file of the entry; errors as for `compile_text`."""
    return compile_text(emit_entry(name, steps, clock, stop), target, what=name)
