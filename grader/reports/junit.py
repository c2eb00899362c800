"""JUnit XML: a suite for each student, a case for each task, points as properties.

    write(klass, Path("out"))                       # out/junit.xml

A task without full marks is a failure; one that a fault of the grader touched is an error.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from grader.files import put
from grader.model import Result, Status, TaskResult
from grader.reports.klass import Class, Roster, feedback, number, summary

# XML 1.0, section 2.2: what no document may hold, not even as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(klass: Class, out: Path, roster: Roster | None = None) -> list[Path]:
    """One file for the class."""
    return [put(out / "junit.xml", document(klass))]


def document(klass: Class) -> bytes:
    """The XML, UTF-8."""
    suites = ET.Element("testsuites", name=_clean(klass.title))
    for result in klass.results:
        _suite(suites, result)
    ET.indent(suites)
    return ET.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"


def _suite(suites: ET.Element, result: Result) -> None:
    failed = [t for t in result.tasks if t.counts and t.status != Status.PASSED]
    errors = [t for t in result.tasks if not t.counts]
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=_clean(result.student),
        tests=str(len(result.tasks)),
        failures=str(len(failed)),
        errors=str(len(errors)),
    )
    if result.error:
        _properties(suite, {"error": result.error})
    for task in result.tasks:
        _case(suite, result, task)


def _case(suite: ET.Element, result: Result, task: TaskResult) -> None:
    name = _clean(f"{task.id} {task.title}")
    case = ET.SubElement(suite, "testcase", classname=_clean(result.assignment), name=name)
    points = {"points_possible": number(task.points)}
    if task.counts:
        points["points"] = number(task.earned)
    _properties(case, points)
    if task.counts and task.status == Status.PASSED:
        return
    kind = "failure" if task.counts else "error"
    problem = ET.SubElement(case, kind, type=str(task.status), message=_clean(summary(task)))
    problem.text = _clean("\n".join(feedback(task)))


def _properties(parent: ET.Element, values: dict[str, str]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
