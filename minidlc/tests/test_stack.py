"""Own parts in a folder: loaded, run in the compiler, listed; what is wrong with one is said."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import minidlc as mc
from minidlc import stack
from minidlc.support.errors import OptionError

RULE = 'def relu_type(op, x):\n    return x\n\nPARTS = {"type_rule.relu": relu_type}\n'
ORDER = """
from minidlc.graph import toposort

calls = []

def order(outputs):
    calls.append(len(outputs))
    return toposort(outputs)

PARTS = {"toposort": order}
"""
INDEX = """
[[part]]
task = "1.10"
title = "An order"
points = ["toposort"]

[[part]]
task = "1.2"
title = "A verifier"
points = ["verify"]

[[part]]
task = "1.9"
title = "A type rule"
points = ["type_rule.relu"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "part_1_10.py", ORDER)
    write(tmp_path, "part_1_9.py", RULE)
    write(tmp_path, "stack.toml", INDEX)
    write(tmp_path, "notes.py", "raise RuntimeError('no part, never run')\n")
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_parts_run_in_the_compiler(folder: Path) -> None:
    mine = stack.load(folder)
    assert list(mine.parts) == ["type_rule.relu", "toposort"]
    with mc.use(**mine.parts):
        graph = mc.trace(lambda x: mc.relu(x + 1.0), mc.f32[3])
        (y,) = mc.interpret(graph, [np.array([-3, 0, 2], np.float32)])
    assert y.tolist() == [0, 1, 3]
    order = mine.parts["toposort"]
    assert order.__globals__["calls"]  # pyright: ignore[reportFunctionMemberAccess]


def test_every_known_part_is_listed_in_the_order_of_tasks(folder: Path) -> None:
    assert stack.load(folder).rows() == [
        ("1.2", "A verifier", "verify", ""),
        ("1.9", "A type rule", "type_rule.relu", "part_1_9.py"),
        ("1.10", "An order", "toposort", "part_1_10.py"),
    ]
    lines = str(stack.load(folder)).splitlines()
    assert lines[0] == "2 of 3 parts are your own"
    assert [line.split()[-1] for line in lines[1:]] == ["supplied", "part_1_9.py", "part_1_10.py"]


def test_parts_up_to_a_task(folder: Path) -> None:
    assert list(stack.load(folder).up_to("1.9").parts) == ["type_rule.relu"]


def test_no_list_no_parts(tmp_path: Path) -> None:
    assert stack.load(tmp_path).parts == {}
    write(tmp_path, "part_2_1.py", RULE)
    assert stack.load(tmp_path).rows() == [("2.1", "", "type_rule.relu", "part_2_1.py")]


@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("part_1_1.py", "def f(:\n", "MDLC1034", ["SyntaxError", "part_1_1.py:1"]),
        ("part_1_1.py", "x = 1\ny = x / 0\n", "MDLC1034", ["ZeroDivisionError", "part_1_1.py:2"]),
        ("part_1_1.py", "def f():\n    pass\n", "MDLC1034", ["does not say where it runs"]),
        ("part_1_1.py", "PARTS = {'verify': 3}\n", "MDLC1034", ["does not say where it runs"]),
        ("part_1_1.py", RULE, "MDLC1035", ["'type_rule.relu': part_1_1.py and part_1_9.py"]),
        ("stack.toml", "[[part]]\ntitle = 'x'\n", "MDLC1033", ["KeyError: 'task'"]),
        ("stack.toml", "[[part]\n", "MDLC1033", ["TOMLDecodeError"]),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, name: str, text: str, code: str, words: list[str]
) -> None:
    write(folder, name, text)
    with pytest.raises(OptionError) as error:
        stack.load(folder)
    assert error.value.code == code
    assert all(word in str(error.value) for word in words)
    assert error.value.hint


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as error:
        stack.load(tmp_path / "none")
    assert error.value.code == "MDLC1033"
    assert "none is no folder" in str(error.value)


@pytest.mark.llvm
def test_doctor_says_what_is_own_and_runs_it(folder: Path) -> None:
    from minidlc.doctor import doctor

    text = io.StringIO()
    assert doctor(Console(file=text, width=200), folder)
    said = text.getvalue()
    assert "2 of 3 parts are your own" in said
    assert "digit classifier with your parts: right, compiled and interpreted" in said
    assert "your parts that ran: type_rule.relu, toposort\n" in said
    assert "did not run" not in said


@pytest.mark.llvm
def test_doctor_runs_what_the_kernel_does_not_need(folder: Path) -> None:
    from minidlc.doctor import doctor

    parts = {
        "interpret": "(graph, inputs): return mc.interpret(graph, inputs)",
        "parse": "(text, weights, file): return mc.parse(text, weights, file=file)",
        "trace": "(fn, types): return mc.trace(fn, **types)",
        "verify": "(graph): return mc.verify(graph)",
        "type_rule.add": "(op, a, b): return op.type_rule(a, b)",
    }
    for number, (point, text) in enumerate(parts.items(), 1):
        how = f"import minidlc as mc\n\ndef part{text}\n\nPARTS = {{{point!r}: part}}\n"
        write(folder, f"part_1_{number}.py", how)
    out = io.StringIO()
    assert doctor(Console(file=out, width=200), folder), out.getvalue()
    (ran,) = [line for line in out.getvalue().splitlines() if "your parts that ran" in line]
    assert parts.keys() < set(ran.partition(": ")[2].split(", "))


@pytest.mark.llvm
def test_doctor_names_the_part_to_look_at(folder: Path) -> None:
    from minidlc.doctor import doctor

    write(folder, "part_1_10.py", ORDER.replace("toposort(outputs)", "toposort(outputs)[1:]"))
    text = io.StringIO()
    assert not doctor(Console(file=text, width=200), folder)
    assert "to look at: part_1_10.py (fails also without your other parts)" in text.getvalue()
    assert "MDLC0404" in text.getvalue()
    assert "-->" not in text.getvalue()


@pytest.mark.llvm
def test_doctor_fails_for_a_part_that_raises(folder: Path) -> None:
    from minidlc.doctor import doctor

    wrong = RULE.replace("return x", "raise ValueError('later')")
    write(folder, "part_1_9.py", wrong)
    text = io.StringIO()
    assert not doctor(Console(file=text, width=200), folder)
    assert "the override of 'type_rule.relu' failed: ValueError: later" in text.getvalue()
