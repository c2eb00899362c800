"""What minidlc/lesson.py shows, and what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minidlc as mc
from minidlc import lesson
from minidlc.support.errors import OptionError


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_source_is_the_files_own_text(capsys: pytest.CaptureFixture[str]) -> None:
    lesson.source(mc.verify, mc.Graph.of)
    text = shown(capsys)
    assert text.startswith("# minidlc/graph/verify.py\ndef verify(graph: Graph) -> None:\n")
    assert "# minidlc/graph/graph.py\n@staticmethod\n" in text or "def of(" in text


def test_a_part_of_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    lesson.source(lesson.digits, lines="2:2")
    expected = (
        '# …\n"""40 images for lenet, f32[40, 1, 1, 28, 28] in 0 … 255, and their labels."""\n# …'
    )
    assert expected in shown(capsys)


@pytest.mark.parametrize("lines", ["0:2", "3:2", "1:999", "a:b", "4"])
def test_lines_that_are_not_there(lines: str) -> None:
    with pytest.raises(OptionError, match=f"lines='{lines}' of a text of") as e:
        lesson.source(mc.verify, lines=lines)
    assert e.value.code == "MDLC1001"


def test_a_thing_without_source() -> None:
    with pytest.raises(OptionError, match="has no Python source"):
        lesson.source(len)


def test_a_table_lines_up_also_with_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    lesson.table([["计算图", 1234, 0.5], ["a", 7, "`x`"]], header=["term", "n", "y"])
    assert shown(capsys).split("\n")[:4] == [
        "term    n      y",
        "──────────────────",
        "计算图  1,234  0.5",
        "a       7      `x`",
    ]


def test_a_table_as_html() -> None:
    bundle = lesson._table([["<b>", "`x`", 3]], [])._repr_mimebundle_()
    assert "&lt;b&gt;" in bundle["text/html"]
    assert "<code>x</code>" in bundle["text/html"]
    assert "text-align:right" in bundle["text/html"]


def test_rows_of_different_length() -> None:
    with pytest.raises(OptionError, match="a row of 1 cells, expected 2"):
        lesson.table([["a"]], header=["x", "y"])


def test_times_are_medians_and_ratios(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = {"slow": [4.0, 4.0, 9.0], "fast": [1.0, 2.0, 2.0]}
    monkeypatch.setattr(lesson, "interleaved", lambda candidates, **_: ticks)
    assert lesson.times({"slow": int, "fast": int}) == {"slow": 4.0, "fast": 2.0}
    assert shown(capsys).split("\n")[2:4] == [
        "slow  4 s             1.00 ×",
        "fast  2 s             2.00 ×",
    ]


def test_times_run_what_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    counter = itertools.count()
    seconds = lesson.times({"count": lambda: next(counter)}, rounds=2, seconds=0.001)
    assert next(counter) > 4
    assert 0 < seconds["count"] < 1


@pytest.mark.parametrize(
    ("yours", "truth", "verdict"),
    [
        (None, 3, "Your turn"),
        (3, 3, "✓ `3`. because"),
        (3.0, lambda: 3, "✓ `3`. because"),
        (4, 3, "✗ not `4`. look"),
        ("More ", "more", "✓"),
        ([1, 2], (1, 2), "✓"),
        ({1, 2}, {2, 1}, "✓"),
        (np.ones(2), np.ones(2), "✓"),
        (np.ones(3), np.ones(2), "✗"),
        ([[1], [1, 2]], [1], "✗"),
        ("x", 3, "✗"),
        (True, True, "✓"),
    ],
)
def test_questions(
    yours: object, truth: object, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson.ask("how many?", yours, truth, hint="look", why="because")
    assert shown(capsys).startswith(f"how many?\n{verdict}")


def test_a_number_may_be_near(capsys: pytest.CaptureFixture[str]) -> None:
    lesson.ask("how long?", 95, 100, within=0.1)
    lesson.ask("how long?", 80, 100, within=0.1)
    assert [line[0] for line in shown(capsys).split("\n")[1::2][:2]] == ["✓", "✗"]


def test_the_truth_is_measured_also_without_an_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        lesson.ask("broken?", None, lambda: 1 // 0)


def test_the_model_and_its_digits() -> None:
    images, labels = lesson.digits()
    (node,) = mc.load_onnx(lesson.model("lenet")).inputs
    assert images[0].shape == node.type.dims
    assert len(images) == len(labels) == 40
    with pytest.raises(OptionError, match="no model 'lenett'") as e:
        lesson.model("lenett")
    assert "lenet" in str(e.value)


def test_source_in_a_notebook_is_a_block_of_code_in_one_font(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[lesson.Shown] = []
    monkeypatch.setattr(lesson, "display", seen.append)
    lesson.source(lesson.digits)
    markdown = seen[0]._repr_mimebundle_()["text/markdown"]
    assert 'monospace">\n\n```python\ndef digits()' in markdown  # a blank line: Markdown goes on
    assert markdown.endswith("\n```\n\n</div>")
