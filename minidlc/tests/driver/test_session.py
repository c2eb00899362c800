"""`session`: inputs set one by one, checked at once; buffers reused; errors that name the input."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import f32
from minidlc.graph import Graph, Input, apply
from minidlc.support.errors import CallError, OptionError

pytestmark = pytest.mark.llvm
F = np.float32


@pytest.fixture(scope="module")
def exe() -> mc.Executable:
    x, w = Input("x", f32[2, 3]), Input("weight", f32[3, 4])
    y = x @ w
    return mc.compile(Graph.of("g", [x, w], [apply("relu", y), apply("sum", y, keepdims=False)]))


X = np.arange(6, dtype=F).reshape(2, 3) - 2
W = np.arange(12, dtype=F).reshape(3, 4) - 5


def test_inputs_by_name_and_by_number(exe: mc.Executable) -> None:
    s = mc.session(exe)
    assert (s.get_num_inputs(), s.get_num_outputs()) == (2, 2)
    s.set_input("x", X)
    s.set_input(1, W)
    s.run()
    np.testing.assert_array_equal(s.get_output(0), np.maximum(X @ W, 0))
    assert s.get_output("sum") == (X @ W).sum()
    np.testing.assert_array_equal(s.get_output(), s.get_output("relu"))


def test_an_input_stays_and_is_a_copy(exe: mc.Executable) -> None:
    s = mc.session(exe)
    given = X.copy()
    s.set_input(0, given)
    s.set_input(1, W)
    given[:] = 77
    s.run()
    np.testing.assert_array_equal(s.get_output(0), np.maximum(X @ W, 0))
    s.set_input(0, -X)
    s.run()
    np.testing.assert_array_equal(s.get_output(0), np.maximum(-X @ W, 0))


def test_runs_write_into_the_same_arrays(exe: mc.Executable) -> None:
    s = mc.session(exe)
    s.set_input("weight", W)
    s.set_input("x", X)
    s.run()
    first = s.get_output(0)
    before = first.ctypes.data
    s.set_input("x", 2 * X)
    s.run()
    assert s.get_output(0).ctypes.data == before
    np.testing.assert_array_equal(first, np.maximum(2 * X @ W, 0))
    with pytest.raises(ValueError, match="read-only"):
        first[:] = 0


def test_sessions_of_one_model_are_apart(exe: mc.Executable) -> None:
    a, b = mc.session(exe), mc.session(exe)
    for s, factor in ((a, 1), (b, 3)):
        s.set_input("x", factor * X)
        s.set_input("weight", W)
        s.run()
    np.testing.assert_array_equal(a.get_output(0) * 3, b.get_output(0))


@pytest.mark.parametrize(
    ("which", "array", "code", "message"),
    [
        ("wieght", W, "MDLC0902", "g: no input 'wieght'"),
        (2, W, "MDLC0902", "g: no input 2"),
        (-1, W, "MDLC0902", "g: no input -1"),
        (True, W, "MDLC0902", "g: no input True"),
        ("x", W, "MDLC0904", "input 'x': expected f32[2, 3], got shape (3, 4)"),
        ("x", X.astype(np.float64), "MDLC0903", "got element type f64"),
        ("x", "text", "MDLC0901", "not an array: str"),
        ("x", [[1.0], [2.0, 3.0]], "MDLC0901", "not an array: list"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_at_once(
    exe: mc.Executable, which: str | int, array: object, code: str, message: str
) -> None:
    with pytest.raises(CallError) as caught:
        mc.session(exe).set_input(which, array)
    assert caught.value.code == code
    assert message in caught.value.message
    if which == "wieght":
        assert caught.value.hint == "did you mean 'weight'?"
        assert caught.value.notes == ("x: f32[2, 3]", "weight: f32[3, 4]")


def test_run_names_the_input_that_is_not_set(exe: mc.Executable) -> None:
    s = mc.session(exe)
    with pytest.raises(CallError, match="input 'x' is not set and 1 more") as caught:
        s.run()
    assert caught.value.code == "MDLC0902"
    s.set_input("x", X)
    with pytest.raises(CallError, match="input 'weight' is not set") as caught:
        s.run()
    assert caught.value.hint == "set_input('weight', array)"


def test_outputs_that_are_not_there(exe: mc.Executable) -> None:
    s = mc.session(exe)
    s.set_input("x", X)
    s.set_input("weight", W)
    with pytest.raises(OptionError, match="output 0 is asked for before the first run") as caught:
        s.get_output(0)
    assert caught.value.code == "MDLC1030"
    s.run()
    with pytest.raises(OptionError, match="no output 'rely'") as caught:
        s.get_output("rely")
    assert caught.value.hint == "did you mean 'relu'?"
    with pytest.raises(OptionError, match="no output 2") as caught:
        s.get_output(2)
    assert caught.value.hint == "outputs are 0 to 1"


def test_a_session_of_something_else() -> None:
    with pytest.raises(OptionError, match="model is a Graph, expected Executable") as caught:
        mc.session(Graph.of("g", [], []))  # type: ignore[arg-type]
    assert caught.value.hint == "session(compile(model))"


def test_a_model_of_open_sizes_is_compiled_for_what_is_set() -> None:
    x, w = Input("x", f32["N", 3]), Input("w", f32[3, 4])
    s = mc.session(mc.compile(Graph.of("open", [x, w], [apply("relu", x @ w)])))
    assert s.get_num_inputs() == 2
    s.set_input("w", W)
    for rows in (2, 5, 2):
        array = np.full((rows, 3), -1, F)
        s.set_input("x", array)
        s.run()
        np.testing.assert_array_equal(s.get_output("relu"), np.maximum(array @ W, 0))
    assert s.get_num_outputs() == 1
    assert len(s.model.specializations) == 2
    for wrong in (np.zeros((2, 4), F), np.zeros(3, F)):
        with pytest.raises(CallError, match=r'expected f32\["N", 3\], got shape') as caught:
            s.set_input("x", wrong)
        assert caught.value.code == "MDLC0904"
