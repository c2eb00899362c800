"""Calling a compiled model: what fits, and what is refused with which message."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import CallError, MemoryLimitError, OptionError
from minidlc.tests.driver.conftest import case

pytestmark = pytest.mark.llvm

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def double():
    x = mc.Input("x", mc.f32[3, 4])
    return mc.compile(mc.Graph.of("double", [x], [x + x]), threads=1)


def test_the_three_ways_to_call(double):
    for (out,) in (double(X), double(x=X), double({"x": X})):
        np.testing.assert_array_equal(out, X * 2)
    assert list(double.run_dict(X)) == [double.source.outputs[0].name]


def test_outputs_are_fresh(double):
    first, second = double(X)[0], double(X + 1)[0]
    np.testing.assert_array_equal(first, X * 2)
    assert not np.shares_memory(first, second)


def test_out_is_filled(double):
    out = np.zeros((3, 4), np.float32)
    assert double(X, out=[out])[0] is out
    np.testing.assert_array_equal(out, X * 2)


def test_views_of_arrays_are_read_right(double):
    np.testing.assert_array_equal(double(X.T.copy().T)[0], X * 2)
    wide = np.zeros((6, 8), np.float32)
    np.testing.assert_array_equal(double(wide[::2, ::2] + X)[0], X * 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f(X.astype(np.float64)), r"expected f32\[3, 4\], got element type f64"),
        (lambda f: f(X[:2]), r"expected f32\[3, 4\], got shape \(2, 4\)"),
        (lambda f: f(), "missing input 'x'"),
        (lambda f: f(X, X), "takes 1 inputs, got 2"),
        (lambda f: f(y=X), "unknown input 'y'"),
        (lambda f: f(X, x=X), "given twice"),
        (lambda f: f("three"), "not an array: str"),
        (lambda f: f(None), "not an array: NoneType"),
        (lambda f: f(X.astype(">f4")), "elements of >f4"),
        (lambda f: f(X, out=[None]), "expected writable dense arrays"),
        (lambda f: f(X, out=[]), "expected writable dense arrays"),
        (lambda f: f(X, out=[X.T]), "expected writable dense arrays"),
        (lambda f: f(X, out=[X]), "shares memory with an input"),
    ],
)
def test_what_does_not_fit_is_refused(double, call, message):
    with pytest.raises(CallError, match=message):
        call(double)


def test_an_output_that_is_an_input_a_constant_a_view_or_twice_the_same():
    x = mc.Input("x", mc.f32[3, 4])
    c = mc.Constant("c", np.ones((2, 2), np.float32))
    y = x + 1.0
    flat = mc.reshape(y, shape=(12,))
    graph = mc.Graph.of("g", [x], [x, c, y, y, flat, mc.reshape(x, shape=(4, 3))])
    outs = mc.compile(graph, threads=1)(X)
    expected = (X, np.ones((2, 2)), X + 1, X + 1, (X + 1).ravel(), X.reshape(4, 3))
    for got, want in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert not any(
        np.shares_memory(a, b) for i, a in enumerate([X, *outs]) for b in outs[i:] if a is not b
    )


def test_storage_is_not_reused_under_an_alias():
    """FAULTS row 118: 2x + 0.375, not 2x + 0.25."""
    x = mc.Input("x", mc.f32[8])
    src = x + 0.25
    left = mc.reshape(src, shape=(8,))
    right = mc.exp(mc.log(x + 0.125))
    exe = mc.compile(mc.Graph.of("g", [x], [left + right]), opt_level=0, threads=1)
    values = np.linspace(1, 2, 8, dtype=np.float32)
    np.testing.assert_allclose(exe(values)[0], 2 * values + 0.375, rtol=1e-6)


def test_an_arena_above_max_bytes_is_refused():
    with pytest.raises(MemoryLimitError, match="max_bytes allows") as e:
        mc.compile(case("lenet").model, max_bytes=1000)
    assert e.value.code == "MDLC1101"


@pytest.mark.parametrize("option", [{"threads": 0}, {"threads": 1.5}, {"opt_level": 4}])
def test_options_out_of_range(option):
    with pytest.raises(OptionError, match="expected"):
        mc.compile(case("lenet").model, **option)


def test_calls_from_several_threads_at_once():
    c = case("lenet")
    exe = mc.compile(c.model, threads=2)
    failures = []

    def call():
        for _ in range(20):
            try:
                c.check(exe(c.feeds))
            except Exception as e:
                failures.append(e)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_an_unknown_kernel_lists_the_known_ones(double):
    with pytest.raises(OptionError, match="no kernel 'conv'"):
        double.kernel("conv")


def test_outputs_of_one_name_are_all_there():
    x = mc.Input("x", mc.f32[3, 4])
    exe = mc.compile(mc.Graph.of("g", [x], [mc.relu(x), mc.relu(-x), x]), threads=1)
    for results in (exe.run_dict(X), exe.run_dict({"x": X}), exe.run_dict(x=X)):
        assert list(results) == ["relu", "relu_1", "x"]
        np.testing.assert_array_equal(results["relu_1"], np.maximum(-X, 0))
