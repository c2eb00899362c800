"""The table of the graph optimiser: no more kernels than ONNX Runtime has nodes, no more FLOPs."""

from __future__ import annotations

import os

import pytest

from minidlc.benchmarks.models import MODELS
from minidlc.benchmarks.optimiser import TABLE, measured, seconds_by_pass
from minidlc.transform import Fuse, MergeProducts, Pipeline

pytestmark = [pytest.mark.llvm, pytest.mark.ch02]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    missing = name not in MODELS and "MINIDLC_MODELS" not in os.environ
    skipped = pytest.mark.skipif(missing, reason="MINIDLC_MODELS is not set")
    return [skipped] if name == "bert_layer" else [skipped, pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(n, marks=_marks(n)) for n in TABLE])
def test_kernels_and_flops(name: str) -> None:
    row = measured(name)
    assert row.kernels <= row.onnxruntime_nodes
    for before, after in (row.flops, row.bytes_moved):
        assert before is not None
        assert after is not None
        assert after <= before
    assert row.peak_bytes <= row.arena_bytes <= 1.05 * row.peak_bytes
    assert f"| {name} |" in str(row)
    assert "| fuse |" in seconds_by_pass([row])


def test_merged_products_save_two_kernels() -> None:
    """Queries, keys and values are one product; its three parts are free."""
    plain = measured("bert_layer")
    merged = measured("bert_layer", Pipeline.default().insert_before("fuse", MergeProducts()))
    assert merged.kernels == plain.kernels - 2
    assert merged.flops == plain.flops


@pytest.mark.slow
@pytest.mark.parametrize("style", ["xla", "stitch"])
@pytest.mark.parametrize("name", [n for n in TABLE if n in MODELS])
def test_no_style_needs_more_kernels(name: str, style: str) -> None:
    other = measured(name, Pipeline.default().replace("fuse", Fuse(style=style)))
    assert other.kernels <= measured(name).kernels
