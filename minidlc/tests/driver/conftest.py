"""The four models of the thin path, each with inputs and the right outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from minidlc.benchmarks.models import MODELS

PACKAGED = Path(__file__).parents[2] / "models"
NAMES = ("mnist_cntk", "mlp_b1", "mlp_b64", "lenet")
TOLERANCE = 1e-4  # of the largest expected value


@dataclass(frozen=True)
class Case:
    """A model, its inputs by name and its expected outputs in order."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: tuple[np.ndarray, ...]

    def check(self, outputs: list[np.ndarray]) -> None:
        """Each output within TOLERANCE of the expected one, with its type and shape."""
        assert len(outputs) == len(self.expected)
        for got, want in zip(outputs, self.expected, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


@cache
def case(name: str) -> Case:
    """The case of that name: mnist_cntk against stored outputs, the others against onnx."""
    if name == "mnist_cntk":
        with np.load(PACKAGED / "mnist_cntk.case0.npz") as stored:
            feeds = {k[4:]: stored[k] for k in stored.files if k.startswith("in::")}
            outputs = tuple(stored[k] for k in stored.files if k.startswith("out::"))
        return Case(name, onnx.load(PACKAGED / "mnist_cntk.onnx"), feeds, outputs)
    model, feeds = MODELS[name]()
    return Case(name, model, feeds, tuple(ReferenceEvaluator(model).run(None, feeds)))
