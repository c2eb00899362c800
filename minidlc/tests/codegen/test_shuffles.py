"""Columns of a tile in registers, as shuffles of its rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minidlc.codegen.shuffles import column
from minidlc.codegen.values import Builder, Value
from minidlc.expr.types import f32
from minidlc.target import host
from minidlc.tests.codegen.helpers import WIDTHS, check

pytestmark = pytest.mark.llvm

_SHUFFLE = re.compile(
    r"(%\S+) = shufflevector <\d+ x float> (%\S+), <\d+ x float> (%\S+), .*<(.*)>"
)


def run(text: str, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the shuffles of a text compute."""
    values = dict(rows)
    for name, a, b, mask in _SHUFFLE.findall(text):
        picks = [int(part.split()[1]) for part in mask.split(", ")]
        values[name] = np.concatenate([values[a], values[b]])[picks]
    return values


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_all_columns_of_a_tile_take_w_log_w_shuffles(width):
    b = Builder()
    tile = np.arange(width * width, dtype=np.float32).reshape(width, width)
    rows = [Value(f"%row{t}", f32, width) for t in range(width)]
    columns = [column(b, rows, n).text for n in range(width)]
    text = b.text()
    values = run(text, {f"%row{t}": tile[t] for t in range(width)})
    for n, name in enumerate(columns):
        np.testing.assert_array_equal(values[name], tile[:, n])
    assert len(_SHUFFLE.findall(text)) == width * (width.bit_length() - 1)


TURNED = """
def f(A: f32[{rows}, {columns}], C: f32[{columns}, {rows}]):
    T = alloc(f32[{rows}, {columns}], "register")
    for i in unrolled(0, {rows}):
        for j in vectorized(0, {columns}):
            T[i, j] = A[i, j]
    for j in unrolled(0, {columns}):
        for i in vectorized(0, {rows}):
            C[j, i] = T[i, j]
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (8, 8), (5, 7), (3, 2), (1, 6), (8, 3)])
def test_lanes_out_of_several_registers(rows, columns, width):
    kernel = check(TURNED.format(rows=rows, columns=columns), host(vector_width=width))
    assert "gather" not in kernel.llvm
