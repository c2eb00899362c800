"""A small class with every kind of outcome, and names that try the formats."""

from __future__ import annotations

from grader.model import Result, Row, Status, TaskResult
from grader.reports.klass import Class

SECRET = "hidden value 271828"


def rows(*statuses: Status) -> tuple[Row, ...]:
    return tuple(
        Row(
            test=f"test_{i}",
            public=i == 0,
            status=status,
            earned=float(status == Status.PASSED),
            claim=f"claim {i}",
            sentence="" if status == Status.PASSED else "seen: <b>, & and \x00",
            exception="ZeroDivisionError" if status == Status.ERROR else "",
            frames=("cell 1.1, line 2: return 1 / x",) if status == Status.ERROR else (),
            private="" if status == Status.PASSED or i == 0 else SECRET,
        )
        for i, status in enumerate(statuses)
    )


def task(id: str, points: float, *statuses: Status, hint: str = "") -> TaskResult:
    return TaskResult(id, f"task {id}", points, rows(*statuses), calls=3, hint=hint)


PASS, FAIL = Status.PASSED, Status.FAILED


def result(student: str, *tasks: TaskResult, **more: object) -> Result:
    return Result(student, "a1", tasks, **more)  # pyright: ignore[reportArgumentType]


ADA = result("ada", task("1.1", 10, PASS, PASS), task("1.2", 5, PASS, PASS), times={"wall": 1.6})
BOB = result(
    'Bob, the "Builder"\nÜmlaut',
    task("1.1", 10, PASS, FAIL, hint="Count from the right (lesson 02)."),
    task("1.2", 5, Status.ERROR, Status.NOT_RUN),
    late="2 days late: 80 % of the points",
    factor=0.8,
    submitted="2026-11-30T12:00:00+00:00",
)
EVE = result("=cmd()", task("1.1", 10, PASS, PASS), task("1.2", 5, Status.GRADER_ERROR, PASS))
MAX = result("max", task("1.1", 10, Status.MISSING), error="The notebook is cut off in line 3.")

CLASS = Class("a1", "A graph IR", (ADA, BOB, EVE, MAX), frozenset({"max"}))
