"""mc.trace: structure in and out, NumPy's methods, and a clear error for what needs elements."""

from __future__ import annotations

import inspect
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import OptionError, TypeRuleError

X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
W = np.random.default_rng(1).standard_normal((8, 3), np.float32)
Pair = namedtuple("Pair", "left right")


def layer(x, p, scale=2.0):
    return mc.relu(x @ p["w"] + p["b"]) * scale


def run(fn, *arrays):
    return mc.interpret(mc.trace(fn, *(mc.f32[a.shape] for a in arrays)), list(arrays))


def test_the_graph_is_what_the_function_does():
    g = mc.trace(layer, mc.f32[4, 8], {"w": mc.f32[8, 3], "b": mc.f32[3]})
    assert (g.name, [i.name for i in g.inputs]) == ("layer", ["x", "p_w", "p_b"])
    assert [n.op.name for n in g.nodes] == ["matmul", "add", "relu", "mul"]
    b = np.float32([1, -1, 0])
    np.testing.assert_allclose(
        mc.interpret(g, [X, W, b])[0], 2 * np.maximum(X @ W + b, 0), rtol=1e-5, atol=1e-5
    )
    assert mc.parse(str(g)) == g


def test_types_by_name_and_the_call_runs_once():
    calls = []
    g = mc.trace(lambda x, y: calls.append(x.name) or x - y, y=mc.f32[3], x=mc.f32[3])
    assert calls == ["x"]
    assert [i.name for i in g.inputs] == ["x", "y"]  # in the order of the parameters


def test_data_in_place_of_types_stays_data():
    g = mc.trace(lambda x, axis, c, none: x.sum(axis) + c, mc.f32[4, 8], 1, np.ones(4, "f4"), None)
    assert len(g.inputs) == 1
    np.testing.assert_allclose(mc.interpret(g, [X])[0], X.sum(1) + 1, rtol=1e-5)


def test_containers_keep_their_class():
    def fn(a, b, *rest, **named):
        assert type(a) is Pair
        assert type(b) is list
        assert type(rest) is tuple
        return a.left + a.right + b[0] + rest[0] + rest[1] + named["z"]

    t = mc.f32[2]
    g = mc.trace(fn, Pair(t, t), [t], t, t, z=t)
    names = ["a_0", "a_1", "b_0", "rest_0", "rest_1", "named_z"]
    assert [i.name for i in g.inputs] == names


def test_names_of_inputs_are_told_apart():
    g = mc.trace(lambda p, p_w: p["w"] + p_w, {"w": mc.f32[2]}, mc.f32[2])
    assert [i.name for i in g.inputs] == ["p_w", "p_w_1"]


def result(x):
    y = mc.relu(x)
    return {"loss": y.sum(), "parts": (y, [-y]), "again": y, "same": x, "one": 1.0, "a b": y + y}


def test_results_are_flattened_in_order_with_their_names():
    g = mc.trace(result, mc.f32[4, 8])
    names = ["loss", "parts_0", "parts_1_0", "parts_0", "x", "one", "out_a_b"]
    assert [o.name for o in g.outputs] == names
    y = np.maximum(X, 0)
    wanted = [y.sum(), y, -y, y, X, 1.0, y + y]
    for got, want in zip(mc.interpret(g, [X]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert [o.name for o in mc.trace(mc.relu, mc.f32[2]).outputs] == ["out"]
    two = mc.trace(lambda out_0, b: (mc.relu(b), out_0), mc.f32[2], mc.f32[2])
    assert [o.name for o in two.outputs] == ["out_0_1", "out_0"]  # the input was first


METHODS = {
    "reshape": lambda x: x.reshape(2, -1),
    "reshape of a tuple": lambda x: x.reshape((32,)),
    "transpose": lambda x: x.transpose(),
    "transpose by axes": lambda x: x.transpose(1, 0),
    "transpose by a list": lambda x: x.transpose([0, 1]),
    "T": lambda x: x.T,
    "sum": lambda x: x.sum(),
    "sum of an axis": lambda x: x.sum(0),
    "sum of axes": lambda x: x.sum(axis=(0, 1), keepdims=True),
    "mean": lambda x: x.mean(axis=-1),
    "max": lambda x: x.max(axis=1, keepdims=True),
    "min": lambda x: x.min(),
    "astype": lambda x: x.astype("float64"),
    "astype of NumPy's": lambda x: x.astype(np.int32),
    "shape": lambda x: x + x.shape[0] * x.ndim,
    "len": lambda x: x * len(x),
    "abs": lambda x: abs(x),
    "array @ x": lambda x: W.T @ x.T,
    "array - x": lambda x: np.ones((4, 1), np.float32) - x,
    "NumPy's number / x": lambda x: np.float32(2) / x,
    "array < x": lambda x: X.min(axis=0) < x,
    "number ** x": lambda x: 2.0**x,
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_means_what_it_means_in_numpy(name):
    fn = METHODS[name]
    (got,), want = mc.interpret(mc.trace(fn, mc.f32[4, 8]), [X]), fn(X)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_the_results_of_an_op_with_several_are_unpacked():
    def fn(x):
        pair = mc.topk(x, k=2)
        values, places = pair
        assert len(pair) == 2
        return values, places, pair[0], pair[-1]

    got = mc.interpret(mc.trace(fn, mc.f32[4, 8]), [X])
    with mc.eager():
        eager = fn(mc.tensor(X))
    for g, e, s in zip(got, eager, mc.interpret(mc.script(fn, mc.f32[4, 8]), [X]), strict=True):
        np.testing.assert_array_equal(g, e)
        np.testing.assert_array_equal(s, e)
    with pytest.raises(TypeRuleError, match="result 2 of an op with 2"):
        mc.trace(lambda x: mc.topk(x, k=2)[2], mc.f32[4, 8])


def test_type_and_shape_are_known():
    x = mc.Input("x", mc.f32["N", 3])
    assert (x.dtype, x.ndim, str(x.shape[0]), x.shape[1]) == (mc.f32, 2, "N", 3)
    with pytest.raises(TypeRuleError, match="symbolic dims") as e:
        len(x)
    assert e.value.code == "MDLC0205"


def item_assignment(x):
    x[0] = 1.0


NEED_ELEMENTS = {
    "if": (lambda x: x if x > 0 else -x, "MDLC0207", "no truth value"),
    "and": (lambda x: x and x, "MDLC0207", "no truth value"),
    "not": (lambda x: not x, "MDLC0207", "no truth value"),
    "int": (lambda x: int(x), "MDLC0212", r"int\(\)"),
    "float": (lambda x: float(x), "MDLC0212", r"float\(\)"),
    "len": (lambda x: len(x.sum()), "MDLC0212", "rank 0"),
    "iteration": (lambda x: [row for row in x], "MDLC0212", "iterated over"),
    "unpacking": (lambda x: (lambda a, b: a)(*x), "MDLC0212", "iterated over"),
    "index": (lambda x: x[0], "MDLC0212", "indexed"),
    "assignment": (item_assignment, "MDLC0212", "cannot be changed"),
    "equals": (lambda x: x == 3.0, "MDLC0212", "`==` with numbers"),
    "equals an array": (lambda x: x != X, "MDLC0212", r"np\.not_equal|`==` with numbers"),
    "in": (lambda x: 3 in x, "MDLC0212", "`in`"),
    "range": (lambda x: range(x), "MDLC0212", "index or a size"),
    "ufunc": (lambda x: np.exp(x), "MDLC0212", r"np\.exp"),
    "in place": (lambda x: X.__iadd__(x), "MDLC0212", r"np\.add"),
    "reduce": (lambda x: np.add.reduce(x), "MDLC0212", r"np\.add"),
    "function": (lambda x: np.concatenate([x, x]), "MDLC0212", r"np\.concatenate"),
    "method of NumPy": (lambda x: np.sum(x), "MDLC0212", r"np\.sum"),
    "array": (lambda x: np.asarray(x), "MDLC0212", "no NumPy array"),
}


@pytest.mark.parametrize("name", NEED_ELEMENTS)
def test_what_needs_elements_is_refused_at_its_line(name):
    fn, code, text = NEED_ELEMENTS[name]
    before = X.copy()
    with pytest.raises(TypeRuleError, match=text) as e:
        mc.trace(fn, mc.f32[4, 8])
    lines, first = inspect.getsourcelines(fn)
    assert e.value.code == code
    assert e.value.hint
    assert e.value.loc.file == __file__
    assert first <= e.value.loc.line < first + len(lines)
    np.testing.assert_array_equal(X, before)


def test_an_ops_error_has_the_line_in_the_function():
    def wrong(x, w):
        y = mc.relu(x)
        return y @ w

    with pytest.raises(TypeRuleError, match="inner dimensions") as e:
        mc.trace(wrong, mc.f32[4, 8], mc.f32[7, 3])
    assert e.value.loc.line == wrong.__code__.co_firstlineno + 2


OUTER = mc.Input("outer", mc.f32[2])


def holds_itself():
    inner = []
    inner.append(inner)
    return inner


NO_OUTPUT = {
    "None": (lambda x: None, "returned None, no tensor"),
    "text": (lambda x: {"a": [x, "y"]}, r"returned a str as result a\[1\], no tensor"),
    "nothing": (lambda x: {}, "returned an empty container"),
    "generator": (lambda x: (v for v in (x,)), "returned a generator"),
    "an input of another trace": (lambda x: OUTER, "'outer': f32.2., returned, is no input"),
    "what depends on it": (lambda x: x + mc.relu(OUTER), "read by relu, is no input of this trace"),
    "itself": (lambda x: holds_itself(), "nested deeper than 50"),
}


@pytest.mark.parametrize("name", NO_OUTPUT)
def test_a_result_that_is_no_output(name):
    fn, text = NO_OUTPUT[name]
    with pytest.raises(TypeRuleError, match=text) as e:
        mc.trace(fn, mc.f32[2])
    assert e.value.code == ("MDLC0213" if name == "itself" else "MDLC0214")
    assert e.value.hint
    assert e.value.loc.file == __file__


def test_a_trace_inside_a_trace_does_not_leak():
    def outer(x):
        mc.trace(lambda y: x + y, mc.f32[2])
        return x

    with pytest.raises(TypeRuleError, match=r"'x': .* is no input of this trace") as e:
        mc.trace(outer, mc.f32[2])
    assert e.value.loc.line == outer.__code__.co_firstlineno + 1
    assert str(outer.__code__.co_firstlineno) in str(e.value.notes)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: mc.trace(layer, mc.f32[4, 8]), "missing a required argument: 'p'"),
        (lambda: mc.trace(layer, 1, 2, 3, 4), "too many positional arguments"),
        (lambda: mc.trace(layer, mc.f32[2], q=mc.f32[2]), "missing a required argument|unexpected"),
        (lambda: mc.trace(mc.relu, mc.f32), r"inputs\[0\] is a DType"),
        (lambda: mc.trace(mc.relu, {1, 2}), r"inputs\[0\] is a set"),
        (lambda: mc.trace(mc.relu, holds_itself()), "nested deeper than 50"),
        (lambda: mc.trace(max, mc.f32[2]), "no signature found"),
    ],
)
def test_types_that_do_not_fit(call, text):
    with pytest.raises(TypeRuleError, match=text) as e:
        call()
    assert e.value.code == "MDLC0213"
    assert e.value.hint
    assert e.value.loc.file == __file__


def test_no_function():
    with pytest.raises(OptionError, match="trace: fn is a int"):
        mc.trace(3)


def test_exceptions_of_the_function_pass():
    with pytest.raises(ZeroDivisionError):
        mc.trace(lambda x: 1 // 0, mc.f32[2])


def test_a_partial_and_a_method_can_be_traced():
    class Model:
        w = W

        def forward(self, x):
            return x @ self.w

    for fn in (Model().forward, partial(lambda w, x: x @ w, W)):
        np.testing.assert_allclose(run(fn, X)[0], X @ W, rtol=1e-5, atol=1e-5)


def test_an_override_is_asked_and_checked():
    with mc.use(trace=lambda fn, types: mc.trace(lambda x: x + 1.0, **types)):
        assert mc.trace(lambda x: x, mc.f32[2]).nodes[0].op.name == "add"
    with mc.use(trace=lambda fn, types: None), pytest.raises(OptionError, match="'trace' returned"):
        mc.trace(layer, mc.f32[2], 1)


@pytest.mark.llvm
def test_compiled_it_is_what_numpy_computes():
    g = mc.trace(layer, mc.f32[4, 8], {"w": mc.f32[8, 3], "b": mc.f32[3]})
    b = np.float32([1, -1, 0])
    got = mc.compile(g, threads=1).run_dict(x=X, p_w=W, p_b=b)
    want = 2 * np.maximum(X @ W + b, 0)
    np.testing.assert_allclose(got["out"], want, rtol=1e-4, atol=1e-4)


def test_two_tensors_are_not_compared_by_the_equality_sign():
    def branch(a, b):
        return a * 2.0 if a.sum() == b.sum() else a

    for fn in (branch, lambda a, b: mc.where(a != b, a, b)):
        with pytest.raises(TypeRuleError, match="`==` with another tensor") as e:
            mc.trace(fn, mc.f32[2], mc.f32[2])
        assert e.value.code == "MDLC0212"
        assert "mc.equal" in e.value.hint
    g = mc.trace(lambda a: a + 1.0 if a in (a, 0) else a, mc.f32[2])  # the same value is known
    assert len(g.nodes) == 1


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: x.item(), "item"),
        (lambda x: round(x), "round"),
        (lambda x: divmod(x, 2), "divmod"),
        (lambda x: f"{x:.3f}", "'.3f'"),
    ],
)
def test_what_needs_elements_as_numbers_is_refused(fn, what):
    with pytest.raises(TypeRuleError, match=what) as e:
        mc.trace(fn, mc.f32[()])
    assert e.value.code == "MDLC0212"
    assert e.value.loc.file == __file__
    assert f"{mc.Input('x', mc.f32[3])}".startswith("Input(name='x'")
