"""Exporters of random numbers: a seed where there is one, none for numbered streams.

    random_normal(shape=(3,), seed=7)        RandomNormal(shape=[3], seed=7.0)
    random_normal(shape=(3,), stream=1)      RandomNormal(shape=[3]): any numbers
    dropout(x, ratio=0.1, stream=1)          Dropout(x, 0.1, True)

Other engines draw other numbers of the same distribution. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.frontend.onnx.operators_random import BITS, WHOLE
from minidlc.frontend.onnx.tensors import ONNX_TYPES
from minidlc.ops.random_numbers import Draw, Dropout, RandomNormal, RandomUniform


def _seed(to: NodeWriter, op: Draw, key: str) -> int | None:
    """The seed, None where any will do; refused where ONNX has no word for what is drawn."""
    if key:
        raise to.refuse("a draw by a key, which ONNX has not", "leave the key out")
    if op.stream and op.seed:
        raise to.refuse("a seed and a stream, of which ONNX has only the first")
    return None if op.stream else op.seed


def _float_seed(to: NodeWriter, op: Draw, key: str) -> float | None:
    seed = _seed(to, op, key)
    if seed is None or seed < WHOLE:
        return seed
    if seed < BITS or seed >= 2 * BITS:
        raise to.refuse(f"seed {seed}, as ONNX has f32 seeds", f"a seed below {WHOLE}")
    return float(np.uint32(seed - BITS).view(np.float32))


@onnx_export("random_uniform", "random_normal")
def random_numbers(to: NodeWriter, op: RandomUniform | RandomNormal, key: str = "") -> str:
    """The twin of the op's name; its element type is an attribute."""
    normal = isinstance(op, RandomNormal)
    bounds = {"mean": op.mean, "scale": op.scale} if normal else {"low": op.low, "high": op.high}
    given: dict[str, Any] = {"shape": op.shape, "dtype": ONNX_TYPES[op.to.name], **bounds}
    name = "RandomNormal" if normal else "RandomUniform"
    return to.emit(name, seed=_float_seed(to, op, key), **given)


@onnx_export("dropout")
def dropout(to: NodeWriter, op: Dropout, x: str, key: str = "") -> tuple[str, ...]:
    """From opset 12 on a Dropout can be told to train."""
    to.needs(12, "a dropout that drops")
    seed = _seed(to, op, key)
    if seed is not None and seed >= 1 << 63:
        seed -= 1 << 64  # ONNX has signed integers
    ratio = to.array("ratio", np.array(op.ratio, np.float32))
    return to.emit_many("Dropout", 2, x, ratio, to.array("training", np.array(True)), seed=seed)
