"""mc.script: if and loops over tensors equal Python's."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.tests.frontend.random_functions import Writer, function

VECTOR = mc.f64[3]
COUNT = mc.i64[()]


def arrays(seed):
    return np.random.default_rng(seed).integers(-4, 5, (2, 3)).astype("f8")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_a_random_function_is_what_python_computes(seed):
    source = Writer(seed, jumps=True).source()
    fn, (a, b) = function(source), arrays(seed)
    g = mc.script(fn, VECTOR, VECTOR, COUNT)
    assert mc.parse(str(g)) == g
    for n in map(np.array, (0, 2, 5)):
        want = fn(a, b, n)
        with mc.eager():
            eager = fn(mc.tensor(a), mc.tensor(b), mc.tensor(n))
        for w, e, s in zip(want, eager, mc.interpret(g, [a, b, n]), strict=True):
            np.testing.assert_allclose(np.asarray(e), w, rtol=1e-9, err_msg=source)
            np.testing.assert_allclose(s, w, rtol=1e-9, err_msg=source)


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(100, 106))
def test_a_random_function_compiled(seed):
    source = Writer(seed, jumps=True).source()
    fn, (a, b) = function(source), arrays(seed)
    exe = mc.compile(mc.script(fn, VECTOR, VECTOR, COUNT), threads=1)
    for n in map(np.array, (0, 2, 5)):
        for w, e in zip(fn(a, b, n), exe(a, b, n), strict=True):
            np.testing.assert_allclose(e, w, rtol=1e-9, err_msg=source)


def doubled(x, n):
    """The example of the module's docstring."""
    while x.sum() < n:
        x = x * 2.0 if x.max() > 0.0 else x + 1.0
    return x


def test_the_graph_has_one_loop_with_one_if():
    g = mc.script(doubled, mc.f32[3], mc.f32[()])
    assert [n.op.name for n in g.nodes] == ["sum", "less", "loop"]
    loop = g.nodes[-1]
    assert "if_" in [n.op.name for n in loop.op.body.nodes]
    assert loop.op.carried == 1
    assert loop.loc.line == doubled.__code__.co_firstlineno + 2
    assert loop.loc.file == __file__


def test_python_values_are_decided_while_capturing():
    def fn(x, steps, mode):
        for k in range(steps):
            if mode == "twice" and k != 1:
                x = x * 2.0
        while steps > 0:
            x, steps = x + 1.0, steps - 1
        return x if mode else -x

    g = mc.script(fn, mc.f32[3], 3, "twice")
    assert [n.op.name for n in g.nodes] == ["mul", "mul", "add", "add", "add"]


def test_without_tensors_that_decide_it_is_the_trace():
    def fn(x, p, *rest, k=2.0):
        """A docstring, an annotation, a comprehension, an unpacking."""
        w: object
        w, b = p["w"], p["b"]
        y: object = mc.relu(x @ w + b) * k
        return {"y": y, "parts": [r + y for r in rest], "sum": sum(r.sum() for r in rest)}

    types = mc.f32[4, 8], {"w": mc.f32[8, 3], "b": mc.f32[3]}, mc.f32[4, 3], mc.f32[3]
    assert mc.script(fn, *types) == mc.trace(fn, *types)
    assert str(mc.script(fn, *types)) == str(mc.trace(fn, *types))


SCALE = 2.0


def helper(x, limit):
    if x.sum() > limit:
        return x * SCALE
    return -x


class Model:
    __rate = 0.5

    def __init__(self, w):
        self.w = w

    def step(self, x):
        return x @ self.w if x.sum() > 0.0 else x * self.__rate


def test_functions_and_methods_that_are_called_are_read_too():
    model = Model(np.eye(3, dtype="f4") * 3)

    def fn(x):
        for _ in range(2):
            x = helper(model.step(x), limit=1.0)
        return x

    g = mc.script(fn, mc.f32[3])
    for v in ([1, 2, 3], [-1, -2, -3], [0, 0, 0.25]):
        v = np.float32(v)
        np.testing.assert_allclose(mc.interpret(g, [v])[0], fn(v), rtol=1e-5)
    bound = mc.script(model.step, mc.f32[3])
    np.testing.assert_allclose(mc.interpret(bound, [np.float32([1, 0, 0])])[0], [3, 0, 0])


def test_a_closure_and_a_default_are_seen():
    k = 3.0

    def fn(x, factor=k):
        return x * factor if x.max() > k else x

    g = mc.script(fn, mc.f32[2])
    np.testing.assert_array_equal(mc.interpret(g, [np.float32([1, 4])])[0], [3, 12])


def lists(x):
    ys = [x, x + 1.0]
    same = ys
    if x.sum() > 0.0:
        ys[0] = x * 2.0
        same[1] = x - 1.0
    else:
        x = -x
    return ys, same, x


def changes(xs, x):
    """What a function does to a list, its caller sees."""
    if x.sum() > 0.0:
        xs[0] = xs[0] + 1.0
        return x
    return -x


def list_of_the_caller(x):
    xs = [x]
    y = changes(xs, x)
    changes(xs, y)
    return xs, y


def dict_in_a_loop(x, n):
    d = {"k": x, "s": 0.0}
    same = d
    for _ in range(n):
        d["k"] = d["k"] + x
        same["s"] += 1.0
    return d["k"], same["k"], d["s"]


def several_results(x, n):
    pair = mc.topk(x, k=2)
    if x.sum() > 0.0:
        x = x + pair[0].sum()
        pair = mc.topk(-x, k=2)
    for _ in range(n):
        x = x + pair[0].max()
    values, places = pair
    return x, values, places


def weak_numbers(x, n):
    rate = 0.1 if x.sum() > 0.0 else 0.5
    s = 0.0
    for _ in range(n):
        s = s * 0.5 + 1.0
    return x * rate * s


def swap(x, n):
    a, b = x, x
    for i in range(n):
        a, b = b + mc.tensor(i, "f32"), a
    return a, b, x


def index_stays(x, n):
    i = -1
    for i in range(1, n):  # noqa: B007
        x = x + 1.0
    return x, i


def not_bool(x, n):
    return (x + 1.0 if n else x), (x if not x.reshape(1, -1).max() else -x)


def assigned_in_both(x):
    if x.sum() > 0.0:
        y = 1
    elif x.sum() > -5.0:
        y = 2
    else:
        y = 3
    return x, y


@pytest.mark.parametrize(
    ("fn", "n"),
    [
        *((f, None) for f in (lists, assigned_in_both, list_of_the_caller)),
        *(
            (f, n)
            for f in (swap, index_stays, not_bool, dict_in_a_loop, weak_numbers, several_results)
            for n in (0, 1, 4)
        ),
    ],
)
def test_a_function_is_what_python_computes(fn, n):
    types = (mc.f32[3],) if n is None else (mc.f32[3], mc.i64[()])
    g = mc.script(fn, *types)
    for v in ([1, 2, 3], [-1, -2, -3], [0, 0, 0], [-1, 0, 0]):
        given = [np.float32(v), *([] if n is None else [np.array(n)])]
        with mc.eager():
            result = fn(*map(mc.tensor, given))
        want = [np.asarray(leaf) for leaf in mc.frontend.pytree.leaves(result)]
        for a, b in zip(mc.interpret(g, given), want, strict=True):
            np.testing.assert_array_equal(a, b)
