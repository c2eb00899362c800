"""mc.jit: guards, recompiles that say why, a bounded cache, graph breaks."""

from __future__ import annotations

import functools
import types
import warnings
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from random import gauss
from time import perf_counter

import numpy as np
import pytest

import minidlc as mc
from minidlc.jitted import RecompileWarning
from minidlc.support.errors import CallError, OptionError, TypeRuleError
from minidlc.tests.frontend.random_functions import Writer, function

pytestmark = pytest.mark.llvm

X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
jit = functools.partial(mc.jit, threads=1, opt_level=0)

SCALE = 2.0
config = types.SimpleNamespace(rate=0.5)
settings = types.ModuleType("minidlc.tests.driver.settings")
settings.OFFSET = 1.0
Pair = namedtuple("Pair", "left right")


def scaled(x):
    return x * SCALE


def layer(x, p, axis=1):
    return {"y": Pair(scaled(x @ p["w"]), [x.sum(axis)]), "one": 1.0}


def reasons(f):
    return [str(r) for r in f.recompiles]


def test_arrays_in_arrays_out_in_the_same_containers():
    f = jit(layer)
    w = np.ones((8, 3), np.float32)
    for _ in range(2):
        got = f(X, {"w": w})
    assert type(got["y"]) is Pair
    assert type(got["y"].right) is list
    np.testing.assert_allclose(got["y"].left, X @ w * 2, rtol=1e-5)
    np.testing.assert_allclose(got["y"].right[0], X.sum(1), rtol=1e-5)
    assert got["one"] == 1.0
    assert (f.__name__, len(f.specializations), reasons(f)) == ("layer", 1, [])
    assert f(p={"w": w}, x=X)["y"].left.shape == (4, 3)
    assert len(f.specializations) == 1


@pytest.mark.parametrize("seed", range(300, 306))
def test_a_random_function_is_what_python_computes(seed):
    source = Writer(seed, jumps=True).source()
    fn = function(source)
    eager, scripted = jit(fn, fallback="eager"), jit(fn, capture=mc.script)
    a, b = np.random.default_rng(seed).integers(-4, 5, (2, 3)).astype("f8")
    for n in map(np.array, (0, 3)):
        for f in (eager, scripted):
            for got, want in zip(f(a, b, n), fn(a, b, n), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, err_msg=source)
    assert len(scripted.specializations) == 1


@pytest.mark.parametrize("seed", range(310, 316))
def test_a_random_function_without_jumps(seed):
    source = Writer(seed, jumps=False).source()
    fn = function(source)
    f = jit(fn)
    a, b = np.random.default_rng(seed).integers(-4, 5, (2, 3)).astype("f8")
    for got, want in zip(f(a, b, 3), fn(a, b, 3), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, err_msg=source)
    assert not f.graph_breaks


ARGUMENTS = {
    "shape": (lambda x: x[:2], "argument x shape (4, 8) → (2, 8)"),
    "rank": (lambda x: x[None], "argument x rank 2 → 3, shape (4, 8) → (1, 4, 8)"),
    "dtype": (lambda x: x.astype("f8"), "argument x dtype f32 → f64"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_another_argument_is_another_compilation(name):
    change, reason = ARGUMENTS[name]
    f = jit(lambda x: x + x)
    f(X)
    np.testing.assert_array_equal(f(change(X)), 2 * change(X))
    assert reasons(f) == [f"recompiled: {reason}"]
    f(X)
    f(X + 1)
    assert len(f.recompiles) == 1


@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        (1, 2, "argument k value 1 → 2"),
        (1, True, "argument k value 1 → True"),
        (1, 1.0, "argument k value 1 → 1.0"),
        (0.0, -0.0, "argument k value 0.0 → -0.0"),
        ("a", "b", "argument k value 'a' → 'b'"),
        (None, 3, "argument k value None → 3"),
        ([1, 2], [1, 3], "argument k[1] value 2 → 3"),
    ],
)
def test_python_values_are_guarded_by_value(first, then, reason):
    f = jit(lambda x, k: x * (k if type(k) in (int, float, bool) else len(str(k))))
    f(X, first)
    f(X, first)
    f(X, then)
    assert reasons(f) == [f"recompiled: {reason}"]
    f(X, float("nan"))
    count = len(f.recompiles)
    f(X, float("nan"))
    assert len(f.recompiles) == count


class Model:
    factor = 2.0

    def __init__(self):
        self.w = np.ones(8, np.float32)
        self.layers = [1.0]

    def forward(self, x):
        return x * self.w * self.factor + self.layers[0]

    @jit
    def jitted(self, x):
        return self.forward(x)


def by_default(x, k=3.0):
    return x * k


def closure():
    k = 2.0

    def change():
        nonlocal k
        k = 5.0

    return lambda x: x * k, change


def of_helper():
    def helper(x):
        return x * 2.0

    def other(x):
        return x * 3.0

    box = [helper]
    return (lambda x: box[0](x)), lambda: box.__setitem__(0, other)


def captured_array():
    w = np.ones(8, np.float32)
    return (lambda x: x * w), lambda: w.__setitem__(3, 7.0)


def method():
    model = Model()
    return model.forward, lambda: setattr(model, "w", np.zeros(8, np.float32))


def nested_list():
    model = Model()
    return (lambda x: model.forward(x)), lambda: model.layers.__setitem__(0, 4.0)


def partial():
    k = {"k": 2.0}
    fn = functools.partial(lambda k, x: x * k["k"], k)
    return fn, lambda: k.update(k=3.0)


def changed_default():
    return by_default, lambda: setattr(by_default, "__defaults__", (9.0,))


CAPTURED = {
    "closure": (closure, "closure k value 2.0 → 5.0"),
    "helper": (of_helper, "closure box[0] code helper"),
    "array": (captured_array, "closure w elements float32[8] #"),
    "method": (method, "self.w elements float32[8] #"),
    "list of an object": (nested_list, "closure model.layers[0] value 1.0 → 4.0"),
    "partial": (partial, "['k'] value 2.0 → 3.0"),
    "default": (changed_default, "default of k value 3.0 → 9.0"),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_value_that_changes_compiles_again(name):
    make, reason = CAPTURED[name]
    fn, change = make()
    f = jit(fn)
    np.testing.assert_allclose(f(X), fn(X))
    f(X)
    assert not f.recompiles
    change()
    np.testing.assert_allclose(f(X), fn(X))
    assert len(f.recompiles) == 1
    assert reason in reasons(f)[0]
    f(X)
    assert len(f.recompiles) == 1


def test_globals_are_guarded_also_in_functions_that_are_called(monkeypatch):
    f = jit(lambda x: scaled(x) * config.rate + settings.OFFSET)
    np.testing.assert_allclose(f(X), X * 2 * 0.5 + 1)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    np.testing.assert_allclose(f(X), X * 3 * 0.5 + 1)
    monkeypatch.setattr(settings, "OFFSET", 2.0)
    np.testing.assert_allclose(f(X), X * 3 * 0.5 + 2, rtol=1e-6)
    monkeypatch.setattr(config, "rate", 1.0)
    np.testing.assert_allclose(f(X), X * 3 + 2, rtol=1e-6)
    assert reasons(f) == [
        "recompiled: global SCALE, read by scaled value 2.0 → 3.0",
        "recompiled: global settings.OFFSET value 1.0 → 2.0",
        "recompiled: global config.rate value 0.5 → 1.0",
    ]


def test_each_instance_has_its_own_executables():
    one, two = Model(), Model()
    two.w = two.w * 3
    np.testing.assert_allclose(one.jitted(X), X * 2 + 1)
    np.testing.assert_allclose(two.jitted(X), X * 6 + 1)
    one.jitted(X)
    assert one.jitted is one.jitted
    assert not one.jitted.recompiles
    one.factor = 5.0
    np.testing.assert_allclose(one.jitted(X), X * 5 + 1)


def test_a_jitted_function_is_part_of_a_graph_that_is_traced():
    inner = jit(lambda x: mc.relu(x))
    f = jit(lambda x: inner(x) + 1.0)
    np.testing.assert_allclose(f(X), np.maximum(X, 0) + 1)
    assert not inner.specializations
    assert [n.op.name for n in mc.trace(inner, mc.f32[3]).nodes] == ["relu"]


def test_overrides_are_part_of_the_guards():
    f = jit(lambda x: x + x)
    f(X)
    with mc.use(trace=lambda fn, types: mc.trace(lambda x: x * 3.0, mc.f32[4, 8])):
        np.testing.assert_allclose(f(X), X * 3)
    np.testing.assert_allclose(f(X), X + X)
    assert "overrides" in reasons(f)[0]


def test_the_cache_is_bounded_and_says_what_keeps_changing():
    f = jit(lambda x, k: x * k, max_specializations=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in (1, 2, 3):
            f(X, k)
        f(X, 1)  # the one used longest ago is 2 now
    with pytest.warns(RecompileWarning, match=r"what keeps changing: argument k value \(3 times\)"):
        f(X, 4)
    assert len(f.specializations) == 3
    count = len(f.recompiles)
    f(X, 1)
    f(X, 3)
    assert len(f.recompiles) == count
    with pytest.warns(RecompileWarning):
        np.testing.assert_allclose(f(X, 2), 2 * X)


def test_explain():
    f = jit(lambda x, k: x * k)
    f(X, 2)
    f(X[:3], 2)
    text = f.explain()
    assert "specializations kept 2 (at most 10), recompiles 1, graph breaks 0" in text
    assert "compiled for argument x dtype f32, argument x shape (4, 8), argument k value 2" in text
    assert "1. recompiled: argument x shape (4, 8) → (3, 8)" in text


class Slots:
    __slots__ = ("_k",)

    def __init__(self):
        self._k = 2.0


def test_slots_are_guarded():
    thing = Slots()
    f = jit(lambda x: x * thing._k)
    f(X)
    thing._k = 3.0
    np.testing.assert_allclose(f(X), X * 3)


RNG = np.random.default_rng(0)
LARGE = np.ones(1 << 19, np.float32)
FROZEN = np.ones(1 << 19, np.float32)
FROZEN.flags.writeable = False


def test_large_arrays_must_be_frozen():
    x = np.ones(1, np.float32)
    with pytest.raises(TypeRuleError, match="global LARGE: an array of 2,097,152 bytes") as e:
        jit(lambda x: x * LARGE)(x)
    assert e.value.code == "MDLC0224"
    assert "flags.writeable = False" in e.value.hint
    assert jit(lambda x: (x * FROZEN).sum())(x) == 1 << 19


@pytest.mark.parametrize(
    ("call", "kind", "code", "text"),
    [
        (lambda: jit(lambda x: x * RNG.random())(X), TypeRuleError, "MDLC0224", "global RNG"),
        (lambda: jit(lambda x: x * gauss(0, 1))(X), TypeRuleError, "MDLC0224", "global gauss"),
        (lambda: jit(lambda x: x * perf_counter())(X), TypeRuleError, "MDLC0224", "each call"),
        (lambda: jit(lambda x: x * np.random.rand())(X), TypeRuleError, "MDLC0224", "random.rand"),
        (lambda: jit(lambda x: x)({1}), TypeRuleError, "MDLC0223", "argument x is a set"),
        (lambda: jit(lambda x: x)(np.array(["a"])), TypeRuleError, "MDLC0223", "argument x: no"),
        (lambda: jit(lambda x: x)(X, X), CallError, "MDLC0902", "too many positional"),
        (lambda: jit(lambda x: None)(X), TypeRuleError, "MDLC0214", "returned None"),
        (lambda: jit(3), OptionError, "MDLC1001", "fn is a int"),
        (lambda: mc.jit(layer, thread=1), OptionError, "MDLC1001", "no option 'thread'"),
        (lambda: jit(layer, fallback="python"), OptionError, "MDLC1006", "fallback is 'python'"),
        (lambda: jit(layer, max_specializations=0), OptionError, "MDLC1006", "at least 1, got 0"),
    ],
)
def test_what_does_not_fit(call, kind, code, text):
    with pytest.raises(kind, match=text) as e:
        call()
    assert e.value.code == code
    assert e.value.loc.file == __file__


def test_an_eager_result_that_is_no_tensor():
    f = jit(lambda x: "text" if x.sum() else x, fallback="eager")
    with pytest.raises(TypeRuleError, match="returned a str, no tensor"):
        f(X)


def test_results_are_fresh_arrays():
    f = jit(lambda x: (x, x, x + 0.0, np.float32(2.0)))
    a, b, *_ = f(X)
    assert not any(np.may_share_memory(*pair) for pair in ((a, X), (b, X), (a, b)))
    two = jit(lambda: mc.tensor([1.0, 2.0]) + 1.0)()
    np.testing.assert_array_equal(two, [2, 3])


def test_an_op_with_several_results_is_a_tuple():
    got = jit(lambda x: {"top": mc.topk(x, k=2, axis=1)})(X)["top"]
    assert isinstance(got, tuple)
    np.testing.assert_allclose(got[0], -np.sort(-X, axis=1)[:, :2])


def test_calls_at_the_same_time():
    f = jit(lambda x, k: x * k + SCALE)
    jobs = [(X + i, i % 3) for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda job: f(*job), jobs))
    for (x, k), got in zip(jobs, results, strict=True):
        np.testing.assert_allclose(got, x * k + SCALE, rtol=1e-6)
    assert len(f.specializations) == 3


def test_exceptions_of_the_function_pass():
    with pytest.raises(ZeroDivisionError):
        jit(lambda x: x * (1 // 0))(X)


def test_eager_tensors_are_arrays():
    np.testing.assert_allclose(jit(lambda x: x + x)(mc.tensor(X)), 2 * X)
    with mc.eager():
        np.testing.assert_allclose(
            jit(lambda x: mc.relu(x) * np.ones(8, "f4"))(X), np.maximum(X, 0)
        )
