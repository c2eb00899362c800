"""The table of a tuned model: what it says of a default that stays, and of the whole model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidlc.tests.tuning.results import planted, tuning_of

pytestmark = pytest.mark.ch06


def row(**changed: object) -> str:
    """The last column of a kernel's row."""
    r = planted(8)
    kept = {"best": r.task.default, "best_seconds": r.default_seconds}
    text = str(tuning_of(replace(r, **(kept | changed))))  # pyright: ignore[reportArgumentType]
    return text.splitlines()[2]


def test_a_default_stays_only_where_it_was_checked() -> None:
    assert row().endswith("  default stays")
    assert "  not checked; the search saw 0." in row(is_checked=False)
    default = planted(1).trials
    assert row(is_checked=False, trials=default).endswith("  not checked")
    lost = "in the model: 1.02 of the default"
    assert row(lost=lost).endswith(f"  default stays; {lost}")


def test_a_model_that_came_out_slower_is_said_to_be_as_before() -> None:
    before = (0.01, 0.0101, 0.0099)
    tuning = replace(tuning_of(planted(8)), seconds=before, undone=(0.0102, 0.0103, 0.0101))
    said = "whole model: 10 ms, 1.020 of it with the winners of the kernels: undone"
    assert said in str(tuning)
    assert tuning.ratio == 1


def test_a_ratio_whose_interval_holds_1_is_said_to_be_noise() -> None:
    tuning, noise = tuning_of(planted(8)), ": no gain that can be told from noise"
    assert noise not in str(tuning)
    before = (0.01, 0.0101, 0.0099)
    assert str(replace(tuning, seconds=(0.0101, 0.0099, 0.01))).endswith(noise)
    assert noise not in str(replace(tuning, seconds=before))  # the default itself


def test_a_tuning_is_short_at_a_prompt_and_a_table_in_a_notebook() -> None:
    tuning = replace(tuning_of(planted(8)), model="<b>", trials=1)
    assert repr(tuning) == "<<b>: 1 kernel tuned, 1 trial in 12 s, 1 thread>"
    shown = tuning._repr_html_()
    assert shown.startswith("<pre>&lt;b&gt;: 1 kernel tuned")
    assert "whole model: " in shown


def test_where_nothing_was_tuned_there_is_no_empty_table() -> None:
    none = replace(tuning_of(), seconds=(), default_seconds=(), notes=("fewer than 64 trials",))
    lines = str(none).splitlines()
    assert lines[0].startswith("net.onnx: 0 kernels tuned, 0 trials")
    assert lines[1:] == ["not tuned, one way and no knobs: 1 (k9_copy)", "fewer than 64 trials"]
