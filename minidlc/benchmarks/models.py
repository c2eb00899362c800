"""Benchmark models, built with onnx.helper: real architectures, random well-scaled weights.

    from minidlc.benchmarks.models import MODELS
    model, feeds = MODELS["lenet"]()               # ModelProto, {input name: array}

Seeds are fixed: the same call gives the same bytes every time. All are float32, opset 17,
static shapes, batch 1 unless the name says otherwise (_b64).

    python -m minidlc.benchmarks.models DIR [NAME ...]     writes NAME.onnx and NAME.npz
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
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

    def weights(self, *shape: int, fan_in: int, gain: float = 1.0) -> str:
        """Random weights whose products keep the scale of their inputs."""
        values = self.rng.standard_normal(shape) * (gain / np.sqrt(fan_in))
        return self._constant(values, "w")

    def bias(self, size: int) -> str:
        """Small random numbers."""
        return self._constant(0.1 * self.rng.standard_normal(size), "b")

    def _constant(self, values: np.ndarray, prefix: str) -> str:
        name = self._fresh(prefix)
        self.initializers.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

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
        return self.op("Conv", x, w, self.bias(filters), kernel_shape=[kernel] * 2, **attributes)

    def classifier(self, x: str, *sizes: int) -> str:
        """Dense layers of the given sizes, ReLU between them."""
        for i, o in itertools.pairwise(sizes):
            x = self.op("Gemm", x, self.weights(o, i, fan_in=i), self.bias(o), transB=1)
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


def _mlp(batch: int) -> Model:
    b = Builder(f"mlp_b{batch}")
    x = b.classifier(b.input("x", [batch, 784]), 784, 512, 512, 10)
    return b.build(b.op("Softmax", x, axis=-1))


def mlp_b1() -> Model:
    """Three dense layers 784-512-512-10 and a softmax, batch 1."""
    return _mlp(1)


def mlp_b64() -> Model:
    """Three dense layers 784-512-512-10 and a softmax, batch 64."""
    return _mlp(64)


def lenet() -> Model:
    """LeNet-5 on 28 × 28: two convolutions with pooling, three dense layers."""
    b = Builder("lenet")
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = b.input("x", [1, 1, 28, 28])
    x = b.op("MaxPool", b.op("Relu", b.conv(x, 1, 6, 5, pad=2)), **pool)
    x = b.op("MaxPool", b.op("Relu", b.conv(x, 6, 16, 5, pad=0)), **pool)
    return b.build(b.classifier(b.op("Flatten", x, axis=1), 400, 120, 84, 10))


MODELS: dict[str, Callable[[], Model]] = {f.__name__: f for f in (mlp_b1, mlp_b64, lenet)}


def main() -> None:
    """Write the models into a folder."""
    parser = argparse.ArgumentParser(description="write the models as NAME.onnx, NAME.npz")
    parser.add_argument("dir", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; default all")
    args = parser.parse_args()
    if unknown := set(args.names) - MODELS.keys():
        parser.error(f"unknown model {min(unknown)!r}; known: {', '.join(MODELS)}")
    args.dir.mkdir(parents=True, exist_ok=True)
    for name in args.names or MODELS:
        model, feeds = MODELS[name]()
        onnx.save(model, args.dir / f"{name}.onnx")
        np.savez(args.dir / f"{name}.npz", **feeds)
        print(f"{name}: {len(model.graph.node)} nodes")


if __name__ == "__main__":
    main()
