"""Scans as machine code."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc import target, te
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.tests.te.programs import numbers
from minidlc.tests.te.test_scan import ARRAYS, cumsum, rnn, rnn_by_numpy

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]


def test_a_cumulative_sum() -> None:
    fn = te.create_schedule(cumsum(100)).lower()
    x, out = numbers((100,), 1), np.empty(100, np.float32)
    run_kernel(compile_kernel(fn, target.host(), cache=False), [x, out])
    np.testing.assert_array_equal(out, np.cumsum(x))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_layer_of_an_rnn(threads: int) -> None:
    h, z = rnn()
    sch = te.create_schedule(h)
    sch[z].reorder("t", "j", "i").vectorize("i")
    sch[h].parallel("i")
    fn = sch.lower()
    out = np.empty((4, 5), np.float32)
    arrays = [ARRAYS.get(p.name, out) for p in fn.params]
    run_kernel(compile_kernel(fn, target.host(), cache=False), arrays, threads)
    np.testing.assert_array_equal(out, rnn_by_numpy())
