"""The records of grading: what a task is, and what came of it.

    task = assignment.task("1.2")                   # Task: function, points, hints, withheld parts
    row = Row("test_ties", True, Status.PASSED, earned=1, out_of=1)
    result = TaskResult(task.id, task.title, task.points, (row,))
    result.earned                                   # of task.points, by the rows

Everything here is plain data that JSON can hold; nothing here runs anything.
Read by every part of the grader. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Status(StrEnum):
    """What became of one expected test."""

    PASSED = "passed"
    FAILED = "failed"  # a wrong answer
    ERROR = "error"  # the student's code raised
    TIMEOUT = "timeout"
    CRASHED = "crashed"  # the process of the student's code ended by itself
    OOM = "oom"
    OUTPUT_LIMIT = "output_limit"
    NOT_RUN = "not_run"  # an earlier test of the task ended the process
    MISSING = "missing"  # no function of that name was handed in
    GRADER_ERROR = "grader_error"  # our fault: never exported as 0 points


@dataclass(frozen=True)
class Task:
    """One graded task, as `assignment.toml` states it."""

    id: str  # "1.2"
    title: str
    function: str  # its name in the notebook; "" for the end-to-end run, which takes them all
    points: float
    minutes: int
    difficulty: int  # 1 to 3
    topic: str
    section: str  # of the course: "02 A graph IR, 'Plug yours in'"
    extension: tuple[str, ...] = ()  # points of `mc.use` at which it runs in the compiler
    withheld: tuple[str, ...] = ()  # "minidlc.graph.graph:_toposort", or a whole module
    prerequisites: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()  # common ones
    hints: tuple[str, ...] = ()  # three, each says more than the one before
    seconds: float = 10.0  # wall deadline of all its tests together
    public_tests: int = 0
    hidden_tests: int = 0

    @property
    def end_to_end(self) -> bool:
        """True for the run of all parts together."""
        return not self.function


@dataclass(frozen=True)
class Assignment:
    """The manifest of an assignment and the folder it stands in."""

    id: str  # "a1_graph_ir"
    title: str
    folder: Path
    tasks: tuple[Task, ...]
    version: str = ""
    llvm: bool = False  # its workers start with LLVM loaded: for tasks that compile

    def task(self, id: str) -> Task:
        """The task of that id; KeyError if there is none."""
        for task in self.tasks:
            if task.id == id:
                return task
        raise KeyError(id)

    @property
    def points(self) -> float:
        """Full marks."""
        return sum(task.points for task in self.tasks)


@dataclass(frozen=True)
class Row:
    """One expected test and its outcome. There is always one for each test of the manifest."""

    test: str  # "test_ties" or "test_ties[case]"
    public: bool
    status: Status
    earned: float = 0.0  # of `out_of`, in the weights of the tests
    out_of: float = 1.0
    claim: str = ""  # what the test asks for: the first line of its docstring
    sentence: str = ""  # what was seen, in one human sentence
    exception: str = ""  # class of what the student's code raised
    frames: tuple[str, ...] = ()  # the student's own, innermost last: "cell 1.2, line 4: return x"
    details: str = ""  # smallest failing input, expected and got; only of public tests
    expected: str = ""  # graph texts for the picture "expected / yours"; only of public tests
    yours: str = ""
    private: str = ""  # the same details of a hidden test, for the instructor only


@dataclass(frozen=True)
class TaskResult:
    """All rows of a task; its points are shared out by the weights of the rows."""

    id: str
    title: str
    points: float  # full marks
    rows: tuple[Row, ...]
    calls: int = 0  # of the function, as the student's process reports: no score rests on it
    hint: str = ""  # one hint with its section, if something failed
    output: str = ""  # the first of what it printed
    override: float | None = None  # an instructor's word, kept in the gradebook

    @property
    def earned(self) -> float:
        """Points, rounded to hundredths."""
        if self.override is not None:
            return self.override
        whole = sum(row.out_of for row in self.rows)
        return round(self.points * sum(r.earned for r in self.rows) / whole, 2) if whole else 0.0

    @property
    def status(self) -> Status:
        """The first outcome that is not `passed`."""
        return next((r.status for r in self.rows if r.status != Status.PASSED), Status.PASSED)

    @property
    def counts(self) -> bool:
        """False if a fault of ours touched it, or no test is there: then it has no score yet."""
        ours = any(row.status == Status.GRADER_ERROR for row in self.rows)
        return self.override is not None or bool(self.rows and not ours)


@dataclass(frozen=True)
class Result:
    """One submission, graded."""

    student: str
    assignment: str
    tasks: tuple[TaskResult, ...]
    error: str = ""  # a named fault of the whole submission, in one sentence
    public_only: bool = False
    isolation: str = ""  # the level that was active
    seed: int = 0  # of this student's hidden inputs
    digest: str = ""  # of submission, assignment and grader: the key of the result cache
    submitted: str = ""  # ISO 8601, if known
    late: str = ""  # what the late policy said
    factor: float = 1.0  # what it left of the points
    times: dict[str, float] = field(default_factory=dict[str, float])  # never compared

    @property
    def out_of(self) -> float:
        """Full marks."""
        return sum(task.points for task in self.tasks)

    @property
    def score(self) -> float:
        """Points after the late policy, rounded to hundredths."""
        return round(self.factor * sum(task.earned for task in self.tasks), 2)

    @property
    def counts(self) -> bool:
        """False if any task has no score yet through a fault of ours."""
        return all(task.counts for task in self.tasks)


def to_json(record: Task | Row | TaskResult | Result) -> dict[str, Any]:
    """The record as plain data, in the order of its fields."""
    return dataclasses.asdict(record)


def result_from_json(data: dict[str, Any]) -> Result:
    """The Result that `to_json` wrote and JSON read back."""
    tasks = tuple(_task_from(task) for task in data["tasks"])
    fixed: dict[str, Any] = {"tasks": tasks}
    return Result(**{**data, **fixed})


def _task_from(data: dict[str, Any]) -> TaskResult:
    fixed: dict[str, Any] = {"rows": tuple(_row_from(row) for row in data["rows"])}
    return TaskResult(**{**data, **fixed})


def _row_from(data: dict[str, Any]) -> Row:
    fixed: dict[str, Any] = {"status": Status(data["status"]), "frames": tuple(data["frames"])}
    return Row(**{**data, **fixed})
