"""Random convolutions and pools, of every layout, element type, precision and width of vectors."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import dtype
from minidlc.graph import apply
from minidlc.tests.codegen.helpers import WIDTHS

BOUNDS = {"f32": 2e-4, "f64": 1e-9, "f16": 3e-2, "i32": 0}
EPILOGUES = (
    lambda y, other: y,
    lambda y, other: mc.relu(y),
    lambda y, other: y * mc.sigmoid(y),
    lambda y, other: mc.relu(y + other),
)


class Draw:
    """A random window, and an op over it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.element = self.pick("f32", "f32", "f32", "f64", "f16", "i32")
        self.size = tuple(int(self.rng.integers(6, 21)) for _ in range(2))
        self.kernel = self.pick(1, 2, 3), self.pick(1, 3, 4)
        self.strides = self.pick(1, 1, 2, 3), self.pick(1, 1, 2, 3)
        self.pads = tuple(int(self.rng.integers(0, min(3, k))) for k in self.kernel * 2)
        self.block = self.pick(2, 4, 8, 8, 16)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def tensor(self, name, *shape):
        return mc.Input(name, dtype(self.element)[shape])

    def node(self):
        """Inputs and the result."""
        batch, channels, outputs = self.pick(1, 2), self.pick(1, 2, 3), self.pick(1, 2, 4)
        lanes, window = self.block, {"strides": self.strides, "pads": self.pads}
        match self.pick("plain", "blocked", "stem", "depthwise", "pool"):
            case "plain":
                groups, each = self.pick(1, 1, 2), self.pick(3, 4, 8, 16)
                x = self.tensor("x", batch, groups * channels, *self.size)
                w = self.tensor("w", groups * each, channels, *self.kernel)
                inputs = [x, w, self.tensor("b", groups * each)]
                return inputs, mc.conv(*inputs, group=groups, **window)
            case "blocked":
                x = self.tensor("x", batch, channels, *self.size, lanes)
                w = self.tensor("w", outputs, channels, *self.kernel, lanes, 8)
                inputs = [x, w, self.tensor("b", outputs, 8)]
                return inputs, apply("conv2d_nchwc", *inputs, **window)
            case "stem":
                x = self.tensor("x", batch, channels, *self.size)
                inputs = [x, self.tensor("w", outputs, channels, *self.kernel, lanes)]
                return inputs, apply("conv2d_nchwc", *inputs, **window)
            case "depthwise":
                x = self.tensor("x", batch, channels, *self.size, lanes)
                inputs = [x, self.tensor("w", channels, *self.kernel, lanes)]
                return inputs, apply("depthwise_nchwc", *inputs, **window)
            case _:
                x = self.tensor("x", batch, channels, *self.size, lanes)
                window = {"strides": (*self.strides, 1), "kernel_shape": (*self.kernel, 1)}
                pads = (*self.pads[:2], 0, *self.pads[2:], 0)
                return [x], apply("max_pool", x, pads=pads, **window)

    def array(self, value):
        whole = self.element == "i32"
        shape = value.type.dims
        numbers = self.rng.integers(-3, 4, shape) if whole else self.rng.standard_normal(shape)
        return numbers.astype(value.type.dtype.numpy)


@pytest.mark.llvm
@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_random(seed):
    draw = Draw(seed)
    inputs, y = draw.node()
    other = mc.Input("other", y.type)
    epilogue = draw.pick(*EPILOGUES) if draw.element != "i32" else EPILOGUES[0]
    given = [*inputs, other] if epilogue is EPILOGUES[-1] else inputs
    graph = mc.Graph.of("g", given, [epilogue(y, other)])
    arrays = [draw.array(v) for v in given]
    target = mc.target.host(vector_width=draw.pick(*WIDTHS))
    precision, threads = draw.pick("default", "strict"), draw.pick(1, 2)
    exe = mc.compile(graph, threads=threads, precision=precision, target=target, cache=False)
    bound = BOUNDS[draw.element]
    want = np.asarray(mc.interpret(graph, arrays)[0], np.float64)
    np.testing.assert_allclose(np.asarray(exe(*arrays)[0], np.float64), want, bound, bound)
