"""An output computed beside another one: where it may be, and what the loops then are."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.dependence import check_parallel
from minidlc.loop.interpret import interpret
from minidlc.loop.verify import verify_function
from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule, Tensor

pytestmark = pytest.mark.ch04


def outputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, and three results of its shape: z reads y, w reads neither."""
    x = te.placeholder(f32[8, 16], "x")
    y = te.compute((8, 16), lambda i, j: x[i, j] + 1.0, "y")
    z = te.compute((8, 16), lambda i, j: y[i, j] * 2.0, "z")
    w = te.compute((8, 16), lambda i, j: x[i, j] * 3.0, "w")
    return x, y, z, w


def run(s: Schedule) -> dict[str, np.ndarray]:
    """The outputs for x = 0, 1, …; loops are checked, for races too."""
    fn = s.lower()
    verify_function(fn)
    check_parallel(fn.body, {})
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    arrays = {
        p.name: x if p.name == "x" else np.full(p.type.dims, np.nan, np.float32) for p in fn.params
    }
    interpret(fn, arrays)
    return arrays


def check(s: Schedule) -> None:
    arrays = run(s)
    x = arrays["x"]
    wanted = {"y": x + 1, "z": (x + 1) * 2, "w": x * 3}
    for name in arrays.keys() & wanted.keys():
        assert np.array_equal(arrays[name], wanted[name])


def test_one_pass_stores_both() -> None:
    _, y, z, _ = outputs()
    s = te.create_schedule([y, z])
    s[y].compute_at(z, "i")
    assert (
        str(s.lower())
        == """\
def kernel(x: f32[8, 16], y: f32[8, 16], z: f32[8, 16]):
    for i in serial(0, 8):
        for j in serial(0, 16):
            y[i, j] = x[i, j] + 1.0
        for j in serial(0, 16):
            z[i, j] = y[i, j] * 2.0
"""
    )
    check(s)


def test_beside_what_does_not_read_it() -> None:
    _, y, _, w = outputs()
    s = te.create_schedule([y, w])
    s[w].split("j", 4, names=("jo", "ji"))
    s[w].parallel("i")
    s[y].compute_at(w, "jo")
    check(s)


@pytest.mark.parametrize("tail", ["cut", "shift"])
def test_tails(tail: str) -> None:
    _, y, z, w = outputs()
    s = te.create_schedule([y, w, z])
    s[z].split("j", 6, names=("jo", "ji"), tail=tail)
    s[y].compute_at(z, "jo")
    s[w].compute_at(z, "jo")
    check(s)


def test_one_element_for_each_row() -> None:
    x, y, *_ = outputs()
    k = te.reduce_axis(16, "k")
    total = te.compute((8, 1), lambda i, j: te.sum(x[i, k], k), "total")
    for last, other in ((y, total), (total, y)):
        s = te.create_schedule([other, last])
        s[other].compute_at(last, "i")
        arrays = run(s)
        assert np.array_equal(arrays["total"], arrays["x"].sum(1, keepdims=True))
        assert np.array_equal(arrays["y"], arrays["x"] + 1)


def test_refusals() -> None:
    x, y, z, w = outputs()
    turned = te.compute((16, 8), lambda i, j: x[j, i], "turned")
    mirrored = te.compute((8, 16), lambda i, j: y[i, 15 - j], "mirrored")
    for first, last, step, why in (
        (y, turned, None, "'turned' is no output of its shape"),
        (z, y, None, "it is computed from 'y'"),
        (y, mirrored, ("j", 4), "an iteration reads more than it would compute"),
        (w, z, "fuse", "an iteration writes no whole box of 'z'"),
    ):
        s = te.create_schedule([first, last])
        axis = "i"
        if isinstance(step, tuple):
            axis = s[last].split(*step)[0]
        elif step:
            axis = s[last].split(s[last].fuse("i", "j"), 12)[0]
        with pytest.raises(ScheduleError) as e:
            s[first].compute_at(last, axis)
        assert e.value.code == "MDLC0621"
        assert why in e.value.message


def test_no_output_inside_a_reduction() -> None:
    x, y, *_ = outputs()
    k = te.reduce_axis(4, "k")
    total = te.compute((8, 16), lambda i, j: te.sum(x[i, j] * 1.0, k), "total")
    s = te.create_schedule([y, total])
    with pytest.raises(ScheduleError, match=r"total\.k is inside a reduction"):
        s[y].compute_at(total, "k")
