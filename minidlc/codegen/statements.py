"""The five statements as LLVM text: loops, stores, allocations, conditions, blocks.

    e = Emitter(module, target, spilled)
    e.bind_parameters(fn); e.emit(fn.body); e.function_text(…)

Serial loops become basic blocks with a phi; vectorised loops become chunks of lanes; unrolled
loops are replayed with numbers for the variable; parallel loops become functions of their own.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.expressions import Expressions, split_condition, under
from minidlc.codegen.lanes import check_order
from minidlc.codegen.math import Functions
from minidlc.codegen.memory import Buffer, Memory
from minidlc.codegen.module import Module, stem
from minidlc.codegen.outline import call_parallel, load_context
from minidlc.codegen.positions import Chunk, Positions, Scalar, weights
from minidlc.codegen.prefetch import prefetch
from minidlc.codegen.stores import Stores, loads
from minidlc.codegen.values import Builder, lane_numbers, memory_type
from minidlc.codegen.workspace import WorkspaceSize, local_bytes, power_of_two, strides, where
from minidlc.expr.index import Cond
from minidlc.expr.nodes import Expr
from minidlc.expr.types import TensorType
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, Scope, Stmt, Store, values, walk
from minidlc.support.errors import CodegenError
from minidlc.target import Target

MAX_INSTRUCTIONS = 100_000  # a kernel larger than this takes LLVM many seconds
_REPLAYED_CHUNKS = 8  # more chunks than this of one vectorised loop become a serial loop


class Emitter:
    """Writes the body of one function; a parallel loop gets an Emitter of its own."""

    def __init__(
        self, module: Module, target: Target, spilled: frozenset[tuple[str, TensorType]]
    ) -> None:
        self.module = module
        self.target = target
        self.spilled = spilled
        self.lanes = target.lanes(32)
        self.b = Builder()
        self.positions = Positions(self.b)
        self.memory = Memory(self.b, self.positions, target)
        self.ops = Operators(self.b, target)
        self.buffers: dict[str, Buffer] = {}
        functions = Functions(self.ops, module.declare)
        self.expressions = Expressions(
            self.b, self.positions, self.memory, self.ops, self.buffers, functions.call
        )
        self.stores = Stores(self.b, self.memory, self.ops, self.expressions)
        self.chunk: Chunk | None = None
        self.workspace, self.workspace_used = "%.workspace", 0
        self.threads: str | None = "%.threads"  # None inside a parallel loop
        self._stack: dict[tuple[str, TensorType], str] = {}

    def emit(self, s: Stmt) -> None:
        """Emit one statement."""
        if isinstance(s, Block):
            for child in s.stmts:
                self.emit(child)
            return
        outer, self.b.mark = self.b.mark, self.module.mark(s)
        self._emit(s)
        self.b.mark = outer

    def _emit(self, s: For | Store | Alloc | If) -> None:
        match s:
            case Store():
                self.stores.emit(s, self.chunk)
            case Alloc():
                self._alloc(s)
            case If(Cond() as cond, body):
                self._if(cond, lambda: self.emit(body))
            case If(cond, body):
                assert not isinstance(cond, Cond)
                self._if_value(cond, lambda: self.emit(body))
            case For():
                self._loop(s)

    # loops

    def _loop(self, s: For) -> None:
        if self.b.instructions > MAX_INSTRUCTIONS:
            raise CodegenError(
                f"the kernel has more than {MAX_INSTRUCTIONS} instructions at loop {s.var.name!r}",
                hint="unroll less",
                code="MDLC0810",
            )
        if self.chunk is not None and self.chunk.var in s.extent.vars():
            raise CodegenError(
                f"the extent of loop {s.var.name!r} differs between the lanes of "
                f"{self.chunk.var.name!r}: {s.extent}",
                hint="vectorise an inner loop instead",
                code="MDLC0806",
            )
        match s.kind:
            case Kind.SERIAL:
                self._serial(s)
            case Kind.UNROLLED:
                self._unrolled(s)
            case Kind.VECTORIZED:
                self._vectorized(s)
            case Kind.PARALLEL:
                self._parallel(s)

    def _serial(self, s: For) -> None:
        extent = self.positions.scalar(s.extent)
        if isinstance(extent, int) and extent <= 1:
            if extent == 1:
                self.positions.bind(s.var, 0, (0, 0))
                self.emit(s.body)
                self.positions.unbind(s.var)
            return
        span = self.positions.span(s.extent)

        def body(i: str) -> None:
            self.positions.bind(s.var, i, (0, max(span[1] - 1, 0)) if span else None)
            prefetch(s, self.b, self.memory, self.positions, self.buffers)
            self.emit(s.body)
            self.positions.unbind(s.var)

        self.count(0, extent, stem(s.var.name), s.body, body)

    def count(
        self, first: Scalar, end: Scalar, name: str, s: Stmt, body: Callable[[str], None]
    ) -> None:
        """A loop from `first` to `end`, whose body emits `s`."""
        for written in {x.buffer for x in walk(s) if isinstance(x, Store)}:
            self.b.forget(written)
        before, head, exit = (
            self.b.block,
            self.b.fresh(f"loop.{name}", ""),
            self.b.fresh("exit", ""),
        )
        with self.b.region(head) as region:
            i = self.b.fresh(name)
            self.b.define(i)
            body(i)
            following = self.b.value(f"add nuw nsw i64 {i}, 1", name)
            again = self.b.value(f"icmp slt i64 {following}, {end}")
            phi = f"phi i64 [ {first}, %{before} ], [ {following}, %{self.b.block} ]"
            region.lines.insert(1, f"  {i} = {phi}{self.b.mark}")
            self.b.line(f"br i1 {again}, label %{head}, label %{exit}{weights(first, end)}")
        if isinstance(first, int) and isinstance(end, int):
            self.b.line(f"br label %{head}")
        else:
            some = self.b.same(f"icmp sgt i64 {end}, {first}")
            self.b.line(f"br i1 {some}, label %{head}, label %{exit}")
        self.b.append(region)
        self.b.label(exit)

    def _unrolled(self, s: For) -> None:
        extent, span = self.positions.scalar(s.extent), self.positions.span(s.extent)
        if not isinstance(extent, int) and span is None:
            self._serial(s)
            return
        count = extent if isinstance(extent, int) else span[1] if span else 0
        for i in range(count):
            self.positions.bind(s.var, i, (i, i))
            if isinstance(extent, int):
                self.emit(s.body)
            else:
                self._if(Cond((s.extent - 1 - i,)), lambda: self.emit(s.body))
            self.positions.unbind(s.var)

    def _vectorized(self, s: For) -> None:
        if self.chunk is not None:
            raise CodegenError(
                f"vectorised loop {s.var.name!r} inside vectorised loop {self.chunk.var.name!r}",
                hint="unroll the outer one",
                code="MDLC0811",
            )
        check_order(s, self.positions.ranges)
        extent, n = self.positions.scalar(s.extent), self.lanes
        if not isinstance(extent, int):
            self._vectorized_dynamic(s, extent)
            return
        whole = extent // n
        if whole > _REPLAYED_CHUNKS and not self._uses_registers(s.body):
            span = (0, whole * n - 1)

            def chunk_body(c: str) -> None:
                self._chunk(s, Chunk(s.var, self.positions.times(c, n), n, n), span)

            self.count(0, whole, stem(s.var.name), s.body, chunk_body)
        else:
            for c in range(whole):
                self._chunk(s, Chunk(s.var, c * n, n, n), (c * n, c * n + n - 1))
        rest = extent % n
        if extent > 0 and rest:
            width = power_of_two(rest)
            mask = None if width == rest else lane_numbers([t < rest for t in range(width)], "i1")
            span = (whole * n, extent - 1)
            if width == 1:
                self.positions.bind(s.var, whole * n, (whole * n, whole * n))
                self.emit(s.body)
                self.positions.unbind(s.var)
            else:
                self._chunk(s, Chunk(s.var, whole * n, width, rest, mask), span)

    def _vectorized_dynamic(self, s: For, extent: str) -> None:
        """A vectorised loop whose extent is known at run time only: every chunk is masked."""
        span, n = self.positions.span(s.extent), self.lanes
        inside = (0, max(span[1] - 1, 0)) if span else None

        def chunk_body(base: Scalar, width: int) -> None:
            left = self.positions.scalar(s.extent) if base == 0 else None
            if left is None:
                left = self.b.same(f"sub nsw i64 {extent}, {base}")
            splat = self.positions.splat(str(left), "i64", width)
            steps = lane_numbers(list(range(width)), "i64")
            mask = self.b.same(f"icmp slt <{width} x i64> {steps}, {splat}")
            self._chunk(s, Chunk(s.var, base, width, 0, mask), inside)

        if span is not None and (span[1] <= n or self._uses_registers(s.body)):
            for base in range(0, span[1], n):  # registers have numbers as positions
                width = power_of_two(min(n, span[1] - base))
                self._if(Cond((s.extent - 1 - base,)), partial(chunk_body, base, width))
            return
        chunks = self.positions.scalar((s.extent + (n - 1)) // n)
        self.count(
            0, chunks, stem(s.var.name), s.body, lambda c: chunk_body(self.positions.times(c, n), n)
        )

    def _chunk(self, s: For, chunk: Chunk, span: tuple[int, int] | None) -> None:
        self.chunk = chunk
        self.positions.bind(s.var, chunk.base, span)
        self.emit(s.body)
        self.positions.unbind(s.var)
        self.chunk = None

    def _uses_registers(self, s: Stmt) -> bool:
        names = {x.buffer for x in walk(s) if isinstance(x, Store)} | _loaded(s)
        return any(n in self.buffers and self.buffers[n].scope is Scope.REGISTER for n in names)

    # conditions

    def _if_value(self, cond: Expr, body: Callable[[], None]) -> None:
        """`body` where a value holds: a branch, or a mask if lanes differ."""
        chunk, test = self.chunk, self.expressions.emit(cond, self.chunk)
        if chunk is None or not test.width:
            self._branch(test.text, body)
            return
        self.chunk = under(self.positions, test.text, chunk)
        body()
        self.chunk = chunk

    def _if(self, cond: Cond, body: Callable[[], None]) -> None:
        uniform, varying = split_condition(self.positions, cond, self.chunk)
        test = self.positions.test(uniform)
        if test is True:
            self._under_mask(varying, body)
        elif test is not False:
            self._branch(test, lambda: self._under_mask(varying, body))

    def _branch(self, test: str, body: Callable[[], None]) -> None:
        """`body` in a block of its own."""
        then, exit = self.b.fresh("then", ""), self.b.fresh("endif", "")
        with self.b.region(then) as region:
            body()
            self.b.line(f"br label %{exit}")
        self.b.line(f"br i1 {test}, label %{then}, label %{exit}")
        self.b.append(region)
        self.b.label(exit)

    def _under_mask(self, varying: Cond, body: Callable[[], None]) -> None:
        chunk = self.chunk
        if chunk is None or not varying.ge:
            body()
            return
        simple = Cond(tuple(self.positions.simplified(e) for e in varying.ge))
        test = self.positions.lane_test(simple, chunk)
        if isinstance(test, list) and not any(test):
            return
        if not (isinstance(test, list) and all(test)):
            self.chunk = under(self.positions, test, chunk)
        body()
        self.chunk = chunk

    # allocations

    def _alloc(self, s: Alloc) -> None:
        if self.chunk is not None:
            raise CodegenError(
                f"buffer {s.buffer!r} is allocated inside vectorised loop {self.chunk.var.name!r}: "
                "each lane would need its own",
                hint="compute it outside the vectorised loop",
                code="MDLC0813",
            )
        scope, dims = where(s, self.spilled), s.type.dims
        used, outer = self.workspace_used, self.buffers.get(s.buffer)
        if scope is Scope.ARENA:
            pointer = self._in_workspace(used, stem(s.buffer))
            self.workspace_used += local_bytes(s.type, self.lanes)
        else:
            pointer = self._on_stack(s.buffer, s.type)
        steps = strides(dims, self.lanes)
        self.buffers[s.buffer] = Buffer(
            s.buffer, s.type.dtype, dims, steps, pointer, scope, private=True
        )
        self.b.forget(s.buffer)
        self.emit(s.body)
        self.workspace_used = used
        del self.buffers[s.buffer]
        if outer is not None:
            self.buffers[s.buffer] = outer

    def _in_workspace(self, offset: int, name: str) -> str:
        text = f"getelementptr i8, ptr {self.workspace}, i64 {offset}"
        return self.b.pure(text, self.workspace, stem=name) if offset else self.workspace

    def _on_stack(self, name: str, type: TensorType) -> str:
        """Stack memory, the same one for every copy of an unrolled allocation."""
        if (name, type) not in self._stack:
            count = local_bytes(type, self.lanes) // type.dtype.itemsize
            element = memory_type(type.dtype)
            pointer = self.b.alloca(f"[{count} x {element}]", 64, stem(name))
            self._stack[name, type] = pointer
        return self._stack[name, type]

    # parallel loops

    def _parallel(self, s: For) -> None:
        if self.chunk is not None:
            raise CodegenError(
                f"parallel loop {s.var.name!r} inside vectorised loop {self.chunk.var.name!r}",
                code="MDLC0811",
            )
        extent = self.positions.scalar(s.extent)
        if self.threads is None or (isinstance(extent, int) and extent <= 1):
            self._serial(s)
            return
        used = {x.buffer for x in walk(s.body) if isinstance(x, Store)} | _loaded(s.body)
        shared = [b for n, b in self.buffers.items() if n in used]
        for b in shared:
            if b.scope is Scope.REGISTER:
                raise CodegenError(
                    f"register buffer {b.name!r} is used inside parallel loop {s.var.name!r}",
                    hint="allocate it inside the loop, or on the stack",
                    code="MDLC0814",
                )
        outer = {n: x for n, x in self.positions.bound.items() if isinstance(x, str)}
        body = self.module.fresh(f"{stem(s.var.name)}.body")
        slots = [("ptr", self._in_workspace(self.workspace_used, "scratch"))]
        slots += [("ptr", b.pointer) for b in shared] + [("i64", x) for x in outer.values()]
        call_parallel(self.b, body, slots, extent, str(self.threads))
        self._outline(s, body, shared, list(outer), slots)
        for name in used:
            self.b.forget(name)

    def _outline(
        self,
        s: For,
        name: str,
        shared: list[Buffer],
        outer: list[str],
        slots: list[tuple[str, str]],
    ) -> None:
        """Emit the body of a parallel loop as a function of a range of iterations."""
        inner = Emitter(self.module, self.target, self.spilled)
        inner.threads = None
        inner.b.mark = self.b.mark
        workspace, *rest = load_context(inner.b, slots)
        size = WorkspaceSize(self.lanes, self.spilled).per_worker(s.body)
        if size:
            offset = inner.b.value(f"mul nuw nsw i64 %worker.wide, {size}")
            workspace = inner.b.value(f"getelementptr i8, ptr {workspace}, i64 {offset}")
        inner.workspace = workspace
        for buffer, pointer in zip(shared, rest, strict=False):
            inner.buffers[buffer.name] = replace(buffer, pointer=pointer, private=False)
        inner.positions.ranges.update(self.positions.ranges)
        inner.positions.bound.update(self.positions.bound)
        inner.positions.bound.update(zip(outer, rest[len(shared) :], strict=True))
        span = self.positions.span(s.extent)

        def body(i: str) -> None:
            inner.positions.bind(s.var, i, (0, max(span[1] - 1, 0)) if span else None)
            prefetch(s, inner.b, inner.memory, inner.positions, inner.buffers)
            inner.emit(s.body)

        inner.count("%low", "%high", stem(s.var.name), s.body, body)
        inner.b.line("ret void")
        arguments = "ptr %context, i64 %low, i64 %high, i32 %worker"
        self.module.function(f"define internal void @{name}({arguments})", inner.b.text())


def _loaded(s: Stmt) -> set[str]:
    return set[str]().union(*(loads(e) for x in walk(s) for e in values(x)))
