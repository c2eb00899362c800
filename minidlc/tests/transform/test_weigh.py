"""Bytes and operations counted from types."""

from __future__ import annotations

import pytest

from minidlc.expr.types import f16, f32, i64
from minidlc.graph import Input, apply
from minidlc.transform.block.weigh import SYMBOL, nbytes, operations_of, traffic

pytestmark = pytest.mark.ch02


def operations(node) -> int:
    return operations_of(node.op, [v.type for v in node.inputs], node.type)


def test_bytes_of_tensors_tuples_and_symbols():
    x = Input("x", f32[4, 8])
    assert nbytes(x.type) == 128
    assert nbytes(None) == 0
    assert nbytes(apply("topk", x, k=3).type) == 4 * 3 * (4 + 8)
    assert nbytes(f16["N", 8]) == SYMBOL * 8 * 2
    assert nbytes(f32[()]) == 4
    assert nbytes(f32[0, 8]) == 0


def test_views_move_nothing():
    x = Input("x", f32[4, 8])
    assert traffic(apply("reshape", x, shape=(32,))) == 0
    assert traffic(apply("transpose", x)) == 256
    assert traffic(apply("gather", x, Input("i", i64[2]))) == 128 + 16 + 64


def test_operations_by_kind_of_op():
    x, w = Input("x", f32[4, 8]), Input("w", f32[8, 3])
    image, filters = Input("i", f32[1, 6, 5, 5]), Input("f", f32[2, 6, 3, 3])
    assert operations(x @ w) == 2 * 4 * 8 * 3
    assert operations(Input("r", f32["N", 8]) @ w) == 2 * SYMBOL * 8 * 3
    assert operations(apply("conv", image, filters)) == 2 * (2 * 3 * 3) * (6 * 3 * 3)
    assert operations(apply("exp", x)) == 32
    assert operations(apply("sum", x)) == 32
    assert operations(apply("transpose", x)) == operations(apply("reshape", x, shape=(32,))) == 0
