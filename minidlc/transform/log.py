"""What passes tell about their work: rewrites done, rewrites refused and why, fusion decisions.

    with collecting() as events:
        g = canonicalize(g)
    [str(e) for e in events]                        # ['add-zero at h: done', 'mul-one at y: …']

A pass stays a function from graph to graph; the pipeline opens a log around each and keeps it in
the record. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
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
    """A decision of the fuse pass on a node and one that reads it."""

    producer: str
    consumer: str
    fused: bool
    reason: str

    def __str__(self) -> str:
        verdict = "fused" if self.fused else "not fused"
        return f"{self.producer} -> {self.consumer}: {verdict}: {self.reason}"


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


def report(event: Callable[[], Event]) -> None:
    """Add an event; it is only made if somebody collects."""
    events = _events.get()
    if events is not None:
        events[event()] = None
