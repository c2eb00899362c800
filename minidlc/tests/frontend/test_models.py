"""Whole models: import, interpret, and compare with stored outputs or with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minidlc.frontend
from minidlc.benchmarks.models import MODELS
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import difference, interpret, parse, verify, weights_of
from minidlc.support.locations import OnnxLoc

MODELS_DIR = Path(minidlc.frontend.__file__).parents[1] / "models"
pytestmark = pytest.mark.ch01


def test_mnist_cntk() -> None:
    graph = load_onnx(MODELS_DIR / "mnist_cntk.onnx")
    verify(graph)
    with np.load(MODELS_DIR / "mnist_cntk.case0.npz") as case:
        (image,) = (case[k] for k in case.files if k.startswith("in::"))
        (wanted,) = (case[k] for k in case.files if k.startswith("out::"))
    (got,) = interpret(graph, [image])
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_weights_of_old_models_are_constants_although_listed_as_inputs() -> None:
    graph = load_onnx(MODELS_DIR / "mnist_cntk.onnx")
    assert [i.name for i in graph.inputs] == ["Input3"]
    assert "Parameter193" in [c.name for c in graph.constants]


def test_every_value_knows_its_onnx_node() -> None:
    graph = load_onnx(MODELS_DIR / "mnist_cntk.onnx")
    assert graph.nodes[0].loc == OnnxLoc("mnist_cntk.onnx", "Convolution28", "Conv")
    assert graph.nodes[0].name == "Convolution28_Output_0"
    assert all(isinstance(n.loc, OnnxLoc) for n in graph.nodes)


def test_the_digits() -> None:
    graph = load_onnx(MODELS_DIR / "mnist_cntk.onnx")
    with np.load(MODELS_DIR / "mnist_digits_40.npz") as digits:
        arrays = {k: digits[k] for k in digits.files}
    labels = next(a for a in arrays.values() if a.ndim == 1)
    images = next(a for a in arrays.values() if a.ndim > 1).astype(np.float32)
    for image, label in zip(images[:8], labels[:8], strict=True):
        (scores,) = interpret(graph, [image.reshape(1, 1, 28, 28)])
        assert scores.argmax() == label


@pytest.mark.parametrize("name", ["mlp_b1", "mlp_b64", "lenet"])
def test_benchmark_models(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model, feeds = MODELS[name]()
    graph = load_onnx(model)
    verify(graph)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, feeds)
    for got, right in zip(interpret(graph, feeds), wanted, strict=True):
        assert np.abs(got - right).max() <= 1e-4 * np.abs(right).max()


@pytest.mark.parametrize("name", ["mlp_b1", "lenet"])
def test_round_trips_of_models(name: str) -> None:
    graph = load_onnx(MODELS[name]()[0])
    assert difference(graph, load_onnx(to_onnx(graph))) is None
    assert difference(graph, parse(str(graph), weights=weights_of(graph))) is None
