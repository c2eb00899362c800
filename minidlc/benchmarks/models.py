"""Benchmark models, built with onnx.helper: real architectures, random well-scaled weights.

    from minidlc.benchmarks.models import MODELS
    model, feeds = MODELS["lenet"]()               # ModelProto, {input name: array}

Seeds are fixed: the same call gives the same bytes every time. All are float32, opset 17,
static shapes, batch 1 unless the name says otherwise (_b64).

    python -m minidlc.benchmarks.models DIR [NAME ...]     writes NAME.onnx and NAME.npz
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from minidlc.benchmarks.builder import Builder, Model
from minidlc.benchmarks.transformers import bert_layer, bert_tiny, gpt2_block
from minidlc.benchmarks.vision import lenet, mobilenet_v2, resnet18


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


MODELS: dict[str, Callable[[], Model]] = {
    f.__name__: f
    for f in (
        mlp_b1,
        mlp_b64,
        lenet,
        resnet18,
        mobilenet_v2,
        bert_layer,
        bert_tiny,
        gpt2_block,
    )
}


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
