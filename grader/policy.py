"""Deadlines: when an assignment is due, what lateness costs, who has longer.

    due = 2026-10-14T23:59:00+02:00                 # policy.toml
    grace_minutes = 10
    percent_per_day = 10                            # of the points, for each day begun
    days = 3                                        # later than that, nothing counts
    [extensions]
    ada = 2026-10-17T23:59:00+02:00

    load_policy(path).judge("ada", submitted)       # Verdict(1.0, "in time, with an extension …")

Applied to results when they are exported, never when they are graded: a policy may change.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from grader.files import read_text
from minidlc.support.errors import nearest

_KEYS = ("due", "grace_minutes", "percent_per_day", "days", "extensions")
_DAY = timedelta(days=1)


class PolicyError(Exception):
    """The policy cannot be used; the text says file, key and rule."""


@dataclass(frozen=True)
class Verdict:
    """What is left of the points, and why in one sentence."""

    factor: float
    sentence: str


@dataclass(frozen=True)
class Policy:
    """The rule of one assignment in one course."""

    due: datetime | None = None
    grace_minutes: float = 0.0
    percent_per_day: float = 0.0
    days: float = 0.0  # that are accepted after the deadline
    extensions: Mapping[str, datetime] = field(default_factory=dict[str, datetime])

    def judge(self, student: str, submitted: str, extension: datetime | None = None) -> Verdict:
        """`submitted` as ISO 8601, "" if unknown; the later one of two extensions counts."""
        if self.due is None:
            return Verdict(1.0, "")
        given = [t for t in (self.extensions.get(student), extension) if t is not None]
        due = max([self.due, *given])
        longer = f", with an extension to {due:%Y-%m-%d %H:%M}" if due > self.due else ""
        if not submitted:
            return Verdict(1.0, "When it was handed in is not known.")
        late = datetime.fromisoformat(submitted) - due
        if late <= timedelta(minutes=self.grace_minutes):
            return Verdict(1.0, f"In time{longer}.")
        days = math.ceil(late / _DAY)
        text = f"{days} day{'s' if days > 1 else ''} late{longer}"
        if days > self.days:
            return Verdict(0.0, f"{text}: more than the {self.days:g} that are accepted.")
        lost = min(100.0, days * self.percent_per_day)
        return Verdict(round(1.0 - lost / 100.0, 4), f"{text}: {lost:g} % off.")


def load_policy(path: Path) -> Policy:
    """The policy in that file. Raises PolicyError."""
    try:
        text = read_text(path)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PolicyError(str(error)) from None
    return parse_policy(text, str(path))


def parse_policy(text: str, name: str = "policy.toml") -> Policy:
    """The policy in that text. Raises PolicyError."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{name}: not valid TOML: {error}") from None
    for key in data:
        if key not in _KEYS:
            raise PolicyError(f"{name}: {key}: no such key; {nearest(key, _KEYS)}")
    numbers = {key: _number(name, key, data.get(key, 0)) for key in _KEYS[1:4]}
    extensions = data.get("extensions", {})
    if not isinstance(extensions, dict):
        raise PolicyError(f"{name}: extensions: expected a table of students")
    pairs = cast(dict[str, Any], extensions)
    longer = {who: _time(name, f"extensions.{who}", when) for who, when in pairs.items()}
    due = _time(name, "due", data["due"]) if "due" in data else None
    if due is None and (numbers["percent_per_day"] or longer):
        raise PolicyError(f"{name}: due: missing; without it nothing is late")
    return Policy(due, extensions=longer, **numbers)


def _number(name: str, key: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e6:
        raise PolicyError(f"{name}: {key}: got {value!r}, expected a number, 0 or more")
    return float(value)


def _time(name: str, key: str, value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        rule = "a time with its zone, as 2026-10-14T23:59:00+02:00"
        raise PolicyError(f"{name}: {key}: got {value}, expected {rule}")
    return value
