"""A process beside this one: answers, and how it is told that there is none."""

from __future__ import annotations

import sys
import time

import pytest

from minidlc.support.child import Child, ChildLost

pytestmark = pytest.mark.ch06

ECHO = """
import sys; sys.path[:] = {path!r}
import pickle
from minidlc.support.child import streams
questions, answers = streams()
print("what is printed is no answer", flush=True)
while True:
    pickle.dump(eval(pickle.load(questions)), answers)
    answers.flush()
"""


def test_questions_and_answers() -> None:
    child = Child.start(ECHO)
    assert child is not None
    assert child.ask("6 * 7", 20) == 42
    assert child.ask("'x' * 1000000", 20) == "x" * 1000000
    assert child.ask("sys.path") == sys.path
    with pytest.raises(AttributeError):  # what cannot be sent
        child.ask(lambda: 0)
    assert child.ask("1") == 1
    child.end()
    assert child.process.poll() is not None
    child.close()


@pytest.mark.parametrize(
    ("question", "text", "late"),
    [
        ("__import__('time').sleep(100)", "no answer within 0.5 s", True),
        ("__import__('os')._exit(3)", "it ended with status 3", False),
        ("__import__('os').kill(__import__('os').getpid(), 11)", "it died of SIGSEGV", False),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "it died of SIGKILL", False),
        ("1 / 0", "it ended with status 1", False),
        ("answers.write(b'nonsense') and answers.flush() or sys.exit(0)", "it ", False),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_without_an_answer(question: str, text: str, late: bool) -> None:
    child = Child.start(ECHO)
    assert child is not None
    assert child.ask("1", 20) == 1
    start = time.monotonic()
    with pytest.raises(ChildLost) as caught:
        child.ask(question, 0.5 if late else 20)
    assert str(caught.value).startswith(text)
    assert caught.value.late is late
    assert time.monotonic() - start < 10
    with pytest.raises(ChildLost):
        child.ask("1", 5)
    child.end()
    child.close()


def test_the_child_ends_with_its_input() -> None:
    child = Child.start(ECHO)
    assert child is not None
    child.close()
    assert child.process.wait(20) is not None


def test_no_python_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    assert Child.start(ECHO) is None
