"""A small writer of ONNX models with random, well-scaled weights, seeded by the model's name.

    b = Builder("net")
    x = b.op("Relu", b.linear(b.input("x", [1, 784]), 784, 10))
    model, feeds = b.build(x)                       # checked, shapes inferred

The benchmark models are written with it. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, np.ndarray]
Model = tuple[onnx.ModelProto, Feeds]

OPSET = 17


class Builder:
    """Writes one ONNX graph: `b.op("Conv", x, w, pads=[…])` returns the output's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: Feeds = {}
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._count = 0

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    def input(self, name: str, shape: Sequence[int]) -> str:
        """A float32 input, fed with normal random numbers."""
        self.feeds[name] = self.rng.standard_normal(shape).astype(np.float32)
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    def tokens(self, name: str, shape: Sequence[int], count: int) -> str:
        """An int64 input, fed with random numbers below `count`."""
        self.feeds[name] = self.rng.integers(0, count, size=shape)
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, list(shape)))
        return name

    def constant(self, values: np.ndarray) -> str:
        """An initializer; floats become float32."""
        name = self._fresh("c")
        array = values.astype(np.float32) if values.dtype.kind == "f" else values
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float) -> str:
        """A float32 constant without axes."""
        return self.constant(np.asarray(value, np.float32))

    def shape(self, *dims: int) -> str:
        """A constant shape."""
        return self.constant(np.asarray(dims, np.int64))

    def vector(self, size: int, mean: float = 0.0) -> str:
        """Numbers around `mean`."""
        return self.constant(mean + 0.1 * self.rng.standard_normal(size))

    def weights(self, *shape: int, fan_in: int, gain: float = 1.0) -> str:
        """Random weights whose products keep the scale of their inputs."""
        values = self.rng.standard_normal(shape) * (gain / np.sqrt(fan_in))
        return self.constant(values)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output."""
        name = self._fresh(op_type.lower())
        self.nodes.append(
            helper.make_node(op_type, list(inputs), [name], name=f"{name}_n", **attributes)
        )
        return name

    def conv(self, x: str, channels: int, filters: int, kernel: int, pad: int) -> str:
        """Square convolution with stride 1 and a bias."""
        fan_in = channels * kernel * kernel
        w = self.weights(filters, channels, kernel, kernel, fan_in=fan_in, gain=1.41)
        attributes = {"strides": [1, 1], "pads": [pad] * 4, "group": 1, "dilations": [1, 1]}
        return self.op("Conv", x, w, self.vector(filters), kernel_shape=[kernel] * 2, **attributes)

    def conv_norm(
        self,
        x: str,
        channels: int,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        group: int = 1,
        gain: float = 1.41,
    ) -> str:
        """Square convolution without bias, size kept but for the stride, then normalisation."""
        fan_in = channels // group * kernel * kernel
        shape = (filters, channels // group, kernel, kernel)
        y = self.op(
            "Conv",
            x,
            self.weights(*shape, fan_in=fan_in, gain=gain),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=group,
            dilations=[1, 1],
        )
        scale, shift, mean = (self.vector(filters, m) for m in (1.0, 0.0, 0.0))
        variance = self.constant(np.abs(1 + 0.1 * self.rng.standard_normal(filters)))
        return self.op("BatchNormalization", y, scale, shift, mean, variance, epsilon=1e-5)

    def layer_norm(self, x: str, size: int) -> str:
        """Normalisation over the last axis, with scale and shift."""
        scale, shift = self.vector(size, 1.0), self.vector(size)
        return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """x @ w + b on the last axis."""
        product = self.op("MatMul", x, self.weights(inputs, outputs, fan_in=inputs))
        return self.op("Add", product, self.vector(outputs))

    def classifier(self, x: str, *sizes: int) -> str:
        """Dense layers of the given sizes, ReLU between them."""
        for i, o in itertools.pairwise(sizes):
            x = self.op("Gemm", x, self.weights(o, i, fan_in=i), self.vector(o), transB=1)
            if o != sizes[-1]:
                x = self.op("Relu", x)
        return x

    def build(self, output: str) -> Model:
        """Infer shapes, check, and return the model with its feeds."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            self.inputs,
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.initializers,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="minidlc.benchmarks")
        model.ir_version = 8
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        model.graph.output[0].CopyFrom(inferred.graph.output[0])
        onnx.checker.check_model(model)
        return model, self.feeds
