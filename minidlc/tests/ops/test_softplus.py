"""softplus keeps its relative precision where it is nearly e ** x."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc


@pytest.mark.llvm
@pytest.mark.parametrize("element", [np.float32, np.float64])
def test_far_below_zero(element):
    x = np.linspace(-80, 20, 4001).astype(element)
    wanted = np.log1p(np.exp(-np.abs(x).astype(np.float64))) + np.maximum(x, 0)
    g = mc.trace(mc.softplus, mc.TensorType(mc.f32 if element is np.float32 else mc.f64, x.shape))
    got = mc.compile(g)(x)[0]
    rounding = np.finfo(element).eps
    np.testing.assert_allclose(got, wanted, rtol=8 * rounding)
