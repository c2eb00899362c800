"""What passes tell about their work: rewrites done, rewrites refused and why, fusion decisions.

    with collecting() as events:
        g = canonicalize(g)
    [str(e) for e in events]                        # ['add-zero at h: done', 'mul-one at y: …']

    with limited(3): canonicalize(g)                # its first three rewrites, and no more

A pass stays a function from graph to graph; the pipeline opens a log around each and keeps it in
the record. A pass asks `permitted` before each rewrite: that counts it, reports it, and lets a
search find the one that goes wrong. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias

from minidlc.support.locations import Loc


@dataclass(frozen=True)
class Rewrite:
    """Something was changed: by which rule, at the node of which name."""

    rule: str
    node: str
    loc: Loc | None = None

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}: done"


@dataclass(frozen=True)
class Refusal:
    """Something looked possible and was not done, with the reason."""

    rule: str
    node: str
    reason: str
    loc: Loc | None = None

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}: {self.reason}"


@dataclass(frozen=True)
class Pair:
    """A decision of the fuse pass on a node and one that reads it, and what it is worth.

    `bytes_saved` of the value need not go through memory between the two, and `flops_repeated`
    operations are done again for it; if the pair was not fused, that is what it would have been.
    None: sizes are not known.
    """

    producer: str
    consumer: str
    fused: bool
    reason: str
    bytes_saved: int | None = None
    flops_repeated: int | None = None

    def __str__(self) -> str:
        verdict = "fused" if self.fused else "not fused"
        saved = "? bytes" if self.bytes_saved is None else f"{self.bytes_saved:,} bytes"
        again = "? FLOPs" if self.flops_repeated is None else f"{self.flops_repeated:,} FLOPs"
        numbers = f"{saved} saved, {again} repeated"
        return f"{self.producer} -> {self.consumer}: {verdict}: {self.reason} ({numbers})"


Event: TypeAlias = Rewrite | Refusal | Pair

_events: ContextVar[dict[Event, None] | None] = ContextVar("events", default=None)


@contextmanager
def collecting() -> Generator[dict[Event, None], None, None]:
    """Collect what passes report inside the block: each event once, in order (a dict as a set)."""
    events: dict[Event, None] = {}
    token = _events.set(events)
    try:
        yield events
    finally:
        _events.reset(token)


@dataclass
class Count:
    """The rewrites that a pass has done, and how many it may do (None: all)."""

    limit: int | None
    done: list[Rewrite] = field(default_factory=list[Rewrite])


_count: ContextVar[Count | None] = ContextVar("count", default=None)


@contextmanager
def limited(limit: int | None) -> Generator[Count, None, None]:
    """Count the rewrites inside the block, and permit the first `limit` of them."""
    count = Count(limit)
    token = _count.set(count)
    try:
        yield count
    finally:
        _count.reset(token)


@contextmanager
def counted(limit: int | None) -> Generator[Count, None, None]:
    """Like `limited`; where somebody counts already, a pipeline or a pass around, that goes on."""
    count = _count.get()
    if count is not None:
        yield count
        return
    with limited(limit) as count:
        yield count


def permitted(rule: str, node: str, loc: Loc | None = None) -> bool:
    """Ask before a rewrite. True counts and reports it; False: leave the node as it is."""
    count = _count.get()
    if count is not None:
        if count.limit is not None and len(count.done) >= count.limit:
            return False
        count.done.append(Rewrite(rule, node, loc))
    report(lambda: Rewrite(rule, node, loc))
    return True


def report(event: Callable[[], Event]) -> None:
    """Add an event; it is only made if somebody collects."""
    events = _events.get()
    if events is not None:
        events[event()] = None
