"""Parallel loops: the body is a function of its own, what it needs travels in a context.

    call_parallel(builder, "k.body", slots, extent, "%.threads")
    names = load_context(inner_builder, slots)      # the same slots, inside the body

`body(ptr context, i64 low, i64 high, i32 worker)` runs iterations low..high-1. With one thread it
is called directly; else `minidlc_parallel_for` (runtime/pool.py) hands out ranges to workers.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from minidlc.codegen.positions import Scalar
from minidlc.codegen.values import Builder

PARALLEL_FOR = "declare void @minidlc_parallel_for(ptr, ptr, i64, i32)"
Slots = list[tuple[str, str]]


def call_parallel(b: Builder, body: str, slots: Slots, extent: Scalar, threads: str) -> None:
    """Store `slots` (type, value) in a context and run `body` over 0..extent-1."""
    context = b.alloca(f"[{len(slots)} x i64]", 8, "context")
    for n, (type, text) in enumerate(slots):
        b.line(f"store {type} {text}, ptr {_slot(b, context, n)}, align 8")
    several = b.same(f"icmp sgt i32 {threads}, 1")
    labels = [b.fresh(name, "") for name in ("fork", "alone", "joined")]
    b.line(f"br i1 {several}, label %{labels[0]}, label %{labels[1]}")
    calls = (
        f"call void @minidlc_parallel_for(ptr @{body}, ptr {context}, i64 {extent}, i32 {threads})",
        f"call void @{body}(ptr {context}, i64 0, i64 {extent}, i32 0)",
    )
    for label, call in zip(labels, calls, strict=False):
        b.label(label)
        b.line(call)
        b.line(f"br label %{labels[2]}")
    b.label(labels[2])


def load_context(b: Builder, slots: Slots) -> list[str]:
    """Load every slot in the outlined function; also defines `%worker.wide`, an i64."""
    b.line("%worker.wide = zext i32 %worker to i64")
    return [
        b.value(f"load {type}, ptr {_slot(b, '%context', n)}, align 8", "shared")
        for n, (type, _) in enumerate(slots)
    ]


def _slot(b: Builder, context: str, n: int) -> str:
    return b.value(f"getelementptr i64, ptr {context}, i64 {n}") if n else context
