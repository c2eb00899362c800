"""Quantised models for tests: a CNN with a residual branch, random ones, all with QDQ pairs."""

from __future__ import annotations

import random

import numpy as np

import minidlc.ops  # noqa: F401  registers the ops
from minidlc.expr.types import f32
from minidlc.graph import Constant, Graph, Input, Value, apply


def quantized(x: Value, scale: float, zero: int = 0, to: str = "i8") -> Value:
    """x through a quantize_linear and a dequantize_linear."""
    numbers = np.float32(scale), np.array(zero, np.int8 if to == "i8" else np.uint8)
    return apply("dequantize_linear", apply("quantize_linear", x, *numbers, to=to), *numbers)


class Weights:
    """Constants by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape: int, axis: int | None = 0) -> Value:
        """Dequantized i8 weights: a scale for each index of `axis`, or one."""
        stored = Constant("w", self.rng.integers(-127, 128, shape).astype(np.int8))
        if axis is None:
            return apply("dequantize_linear", stored, np.float32(0.004), np.int8(0))
        scale = self.rng.uniform(0.001, 0.004, shape[axis]).astype(np.float32)
        return apply("dequantize_linear", stored, scale, np.zeros(shape[axis], np.int8), axis=axis)

    def bias(self, size: int) -> Constant:
        """Floats."""
        return Constant("b", self.rng.standard_normal(size).astype(np.float32))


def block(w: Weights, x: Value, inputs: int, outputs: int, stride: int = 1) -> Value:
    """A convolution of 3 by 3, relu, and back to 8 bits."""
    attributes = {"pads": (1,) * 4, "strides": (stride, stride)}
    y = apply("conv", x, w.weight(outputs, inputs, 3, 3), w.bias(outputs), **attributes)
    return quantized(apply("relu", y), 0.05, -128)


def small_cnn(size: int = 32) -> Graph:
    """Three convolutions, a residual branch, pools, a linear layer and a softmax."""
    w = Weights(0)
    image = Input("image", f32[1, 3, size, size])
    h = block(w, quantized(image, 0.03, 3), 3, 16)
    h = quantized(h + block(w, h, 16, 16), 0.07)
    h = quantized(apply("max_pool", h, kernel_shape=(2, 2), strides=(2, 2)), 0.07)
    h = apply("global_average_pool", block(w, h, 16, 32, stride=2))
    h = apply("flatten", quantized(h, 0.05))
    y = apply("gemm", h, w.weight(10, 32, axis=None), w.bias(10), transB=True)
    return Graph.of("small_cnn", [image], [apply("softmax", y, axis=1)])


def random_conv(seed: int) -> Graph:
    """A convolution of any window and stride, some steps after it, values read twice."""
    rng, w = random.Random(seed), Weights(seed)
    channels, outputs = rng.randint(1, 6), rng.randint(1, 9)
    size = rng.randint(4, 12), rng.randint(4, 12)
    kernel = rng.randint(1, 3), rng.randint(1, 3)
    x = Input("x", f32[rng.randint(1, 2), channels, size[0], size[1]])
    attributes = {
        "strides": (rng.randint(1, 3), rng.randint(1, 2)),
        "pads": tuple(rng.randint(0, 3) for _ in range(4)),
        "dilations": (rng.randint(1, 2), 1),
    }
    zero = rng.choice([0, 3, 128])
    h = quantized(x, 0.03, zero, to="u8")
    bias = (w.bias(outputs),) if rng.random() < 0.7 else ()
    y = apply("conv", h, w.weight(outputs, channels, *kernel), *bias, **attributes)
    z: Value = y
    if rng.random() < 0.5:
        z = apply("relu", z)
    z = quantized(z, 0.05, rng.choice([0, -128]))
    if rng.random() < 0.4:
        z = quantized(z + quantized(y, 0.06), 0.1)
    if rng.random() < 0.3:
        z = quantized(apply("max_pool", z, kernel_shape=(2, 1), pads=(0, 0, 1, 0)), 0.05)
    more = [y] if rng.random() < 0.3 else []
    return Graph.of("conv", [x], [z, *more])


def random_linear(seed: int) -> Graph:
    """Products of matrices, batches in front, a residual; scales for each column or one."""
    rng, w = random.Random(seed), Weights(seed)
    rows, depth, columns = (rng.randint(1, 40) for _ in range(3))
    x = Input("x", f32[(*[2] * rng.randint(0, 1), rows, depth)])
    h: Value = quantized(x, 0.03)
    axis = rng.choice([1, None])
    y = h @ w.weight(depth, columns, axis=axis) + w.bias(columns)
    y = quantized(y, 0.05, 5)
    if rng.random() < 0.5:
        y = quantized(y @ w.weight(columns, depth, axis=None) + h, 0.1)
    return Graph.of("linear", [x], [y])
