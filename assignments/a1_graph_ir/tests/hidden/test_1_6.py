"""Hidden tests of task 1.6, tracing with guards."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import minidlc as mc
from grader import expect

UNARY = "def fn(x):\n    TRACED.append(1)\n    return mc.relu(x) * 2.0\n"


def shown(steps):
    """The steps as a failing student reads them."""
    lines = []
    for step in steps:
        given = ", ".join(f"{name}: {t}" for name, t in step["types"].items())
        lines.append(f"{step.get('do', '')}  {step.get('fn', 'fn')}({given})".strip())
    return "\n".join(lines)


def run(student, source, steps, reasons, runs=None):
    """Reasons of all entries at the end, and in which calls fn ran."""
    found = student.call("1.6", source, steps)
    given = f"{source}\n{shown(steps)}"
    expect.equal(found[-1]["reasons"], reasons, "the list of reasons", given=given)
    if runs is not None:
        ran = [int(result["runs"] > 0) for result in found]
        expect.equal(ran, runs, "the list of calls in which fn ran", given=given)
    for result in found:
        kept = result["kept"] or "raised" in result
        expect.that(kept, "the graph that was returned is no entry's graph", given=given)
    return found


def sizes(*dims):
    """A step: x of that shape."""
    return {"types": {"x": mc.f32[dims]}}


def test_axes_open_one_by_one(student, rng):
    """Only an axis that changed opens; one that is open stays open."""
    a, b, c, d, e, f = (int(n) for n in rng.permutation(np.arange(2, 40))[:6])
    steps = [sizes(a, b, c), sizes(a, d, c), sizes(a, e, c), sizes(a, f, e), sizes(a, 1, 77)]
    reasons = [f"x axis 1: s0 → {f}; x axis 2: {c} → {e}"]
    found = run(student, UNARY, steps, reasons, [1, 1, 0, 1, 0])
    want = (mc.f32[a, "s0", c], mc.f32[a, "s0", "s1"])
    got = (found[2]["graph"].input_types()[0], found[4]["graph"].input_types()[0])
    expect.equal(got, want, "the types of x in the third and fifth graph", given=shown(steps))


@pytest.mark.points(2)
def test_random_sequences(student, rng):
    """Random shapes, element types and scales: reasons, hits and graphs as the rules say."""
    source = "SCALE = 1\n\ndef fn(x, y):\n    TRACED.append(1)\n    return mc.exp(x) * SCALE, -y\n"
    steps, model = [], Model()
    for _ in range(14):
        kind = [mc.f32, mc.f64][rng.integers(2)]
        x = kind[tuple(int(n) for n in rng.integers(2, 4, size=2))]
        y = mc.f32[(int(rng.integers(2, 4)),) * int(rng.integers(1, 3))]
        scale = ("1", "1.0")[rng.integers(2)]
        steps.append({"types": {"x": x, "y": y}, "do": f"SCALE = {scale}"})
        model.call([str(kind), str(y.rank), repr(eval(scale))], [*x.shape, *y.shape])
    found = run(student, source, steps, found_reasons(model), model.runs)
    for step, result, dims in zip(steps, found, model.types, strict=True):
        want = [t.dtype[tuple(dims.pop(0) for _ in t.shape)] for t in step["types"].values()]
        got = list(result["graph"].input_types())
        expect.equal(got, want, "the list of types of a graph", given=shown(steps))
    last = found[-1]["graph"]
    arrays = [rng.normal(size=t.shape).astype(t.dtype.numpy) for t in steps[-1]["types"].values()]
    values = student.evaluate(last, arrays)
    expect.close(values[0], np.exp(arrays[0]), tolerance=1e-6)
    expect.close(values[1], -arrays[1])


class Model:
    """The rules once more, without graphs: guards and sizes as lists (x rank 2, y rank 1 or 2)."""

    def __init__(self):
        self.entries, self.runs, self.types = [], [], []

    def call(self, guards, dims):
        """One call; `guards` are the element type of x, the rank of y and the scale."""
        alike = [e for e in self.entries if e[0] == guards]
        hit = next((e for e in alike if self.fit(e[1], dims)), None)
        self.runs.append(0 if hit else 1)
        if hit is None:
            hit = self.miss(guards, dims, alike)
        self.types.append(list(hit[1]))

    def fit(self, wanted, dims):
        """Equal numbers; one size for each symbol."""
        sizes = {}
        for w, n in zip(wanted, dims, strict=True):
            if (w if isinstance(w, int) else sizes.setdefault(w, n)) != n:
                return False
        return True

    def miss(self, guards, dims, alike):
        """A new entry."""
        names = ["x axis 0", "x axis 1", "y axis 0", "y axis 1"]
        labels = ("x dtype", "y rank", "SCALE value")
        if alike:
            old = alike[-1]
            self.entries.remove(old)
            changed = [(o, n) for o, n in zip(old[1], dims, strict=True) if o != n]
            number = {pair: f"s{k}" for k, pair in enumerate(dict.fromkeys(changed))}
            places = zip(names, old[1], dims, strict=False)
            reason = "; ".join(f"{w}: {o} → {n}" for w, o, n in places if o != n)
            dims = [number.get(pair, pair[0]) for pair in zip(old[1], dims, strict=True)]
        elif self.entries:
            pairs = zip(labels, self.entries[-1][0], guards, strict=True)
            reason = "; ".join(f"{w}: {o} → {n}" for w, o, n in pairs if o != n)
        else:
            reason = "first call"
        self.entries.append((guards, dims, reason))
        return self.entries[-1]


def found_reasons(model):
    """The reasons of the entries of a model."""
    return [reason for _, _, reason in model.entries]


def test_python_values(student):
    """Values compare by repr: 1, 1.0 and True are three, 0.0 and -0.0 are two; text and None."""
    source = (
        "def fn(x, by):\n    TRACED.append(1)\n    return x * (2.0 if by is None else len(str(by)))"
    )
    values = [1, 1.0, True, 0.0, -0.0, "a", None, 1, (1, 2), None]
    steps = [{"types": {"x": mc.f32[2], "by": value}} for value in values]
    texts = ["1", "1.0", "True", "0.0", "-0.0", "'a'", "None", "(1, 2)"]
    pairs = pairwise(texts)
    reasons = ["first call", *(f"by value: {a} → {b}" for a, b in pairs)]
    run(student, source, steps, reasons, [1, 1, 1, 1, 1, 1, 1, 0, 1, 0])


CLOSURE = """
WIDTH, OTHER = 3.0, 1

def make():
    RATE, name = 0.5, "n"
    def fn(x):
        TRACED.append(1)
        return x * RATE + WIDTH if name else x
    def change(r, n):
        nonlocal RATE, name
        RATE, name = r, n
    return fn, change

fn, change = make()
"""


def test_closures_and_globals(student):
    """What fn reads through its closure and from globals is guarded, sorted by name."""
    steps = [
        sizes(2),
        {**sizes(2), "do": "OTHER = 2"},
        {**sizes(2), "do": "change(0.5, 'm')"},
        {**sizes(2), "do": "change(0.25, 'm'); WIDTH = 4.0"},
        {**sizes(2), "do": "change(0.5, 'n'); WIDTH = 3.0"},
    ]
    reasons = [
        "first call",
        "name value: 'n' → 'm'",
        "RATE value: 0.5 → 0.25; WIDTH value: 3.0 → 4.0",
    ]
    run(student, CLOSURE, steps, reasons, [1, 0, 1, 1, 0])


def test_several_guards_differ(student):
    """All guards that differ from the function's last entry, in the stated order."""
    source = "B = 1\nA = 2\n\ndef fn(x, n, y):\n    TRACED.append(1)\n    return x * B, y + A * n"
    steps = [
        {"types": {"x": mc.f32[2], "n": 3, "y": mc.f64[2, 2]}},
        {"types": {"x": mc.f16[2, 2], "n": 3, "y": mc.f32[2]}, "do": "B = 5"},
        {"types": {"x": mc.f16[2, 2], "n": 4, "y": mc.f32[2]}, "do": "A, B = 7, 1"},
        {"types": {"x": mc.f32[2], "n": 3, "y": mc.f64[2, 2]}, "do": "A = 2"},
        {"types": {"x": mc.f32[2], "n": 3, "y": mc.f64[2, 2]}, "do": "A = 9"},
    ]
    reasons = [
        "first call",
        "x dtype: f32 → f16; x rank: 1 → 2; y dtype: f64 → f32; y rank: 2 → 1; B value: 1 → 5",
        "n value: 3 → 4; A value: 2 → 7; B value: 5 → 1",
        "x dtype: f16 → f32; x rank: 2 → 1; n value: 4 → 3; y dtype: f32 → f64; y rank: 1 → 2; "
        "A value: 7 → 9",
    ]
    run(student, source, steps, reasons, [1, 1, 1, 0, 1])


def test_names_that_are_not_values(student):
    """Functions, modules and arrays outside are no guards; a name that is not read is none."""
    source = """
import math
def helper(x): return mc.tanh(x)
LIMITS, unused = (1, 2.5), 1

def fn(x):
    TRACED.append(1)
    return helper(x) * math.pi + LIMITS[1]
"""
    steps = [
        sizes(3),
        {**sizes(3), "do": "unused = 2; helper = mc.sinh"},
        {**sizes(3), "do": "LIMITS = (1, 3.5)"},
    ]
    run(student, source, steps, ["first call", "LIMITS value: (1, 2.5) → (1, 3.5)"], [1, 0, 1])


def test_shared_symbols(student):
    """Places that change alike share a symbol, so that x + y can be traced; and split later."""
    source = "def fn(x, y):\n    TRACED.append(1)\n    return mc.exp(x), y.sum(axis=0)"

    def step(a, b, c, d):
        return {"types": {"x": mc.f32[a, b], "y": mc.f32[c, d]}}

    steps = [
        step(4, 4, 4, 3),
        step(5, 6, 5, 3),
        step(7, 9, 7, 3),
        step(7, 7, 8, 3),
        step(1, 2, 3, 3),
    ]
    reasons = ["x axis 0: s0 → 7; x axis 1: s1 → 7; y axis 0: s0 → 8"]
    found = run(student, source, steps, reasons, [1, 1, 0, 1, 0])
    got = [result["graph"].input_types() for result in found]
    want = [
        (mc.f32[4, 4], mc.f32[4, 3]),
        (mc.f32["s0", "s1"], mc.f32["s0", 3]),
        (mc.f32["s0", "s1"], mc.f32["s0", 3]),
        (mc.f32["s0", "s1"], mc.f32["s2", 3]),
        (mc.f32["s0", "s1"], mc.f32["s2", 3]),
    ]
    expect.equal(got, want, "the list of input types", given=shown(steps))


def test_a_symbol_is_one_size(student):
    """Equal sizes made one symbol: sizes that are not equal do not fit, and x + y says so."""
    source = "def fn(x, y):\n    TRACED.append(1)\n    return x + y"

    def step(a, b, **more):
        return {"types": {"x": mc.f32[a], "y": mc.f32[b]}, **more}

    steps = [step(4, 4), step(6, 6), step(9, 9), step(9, 7, may_raise=True), step(8, 8), step(9, 1)]
    reasons = ["x axis 0: 4 → 6; y axis 0: 4 → 6", "x axis 0: s0 → 9; y axis 0: s0 → 1"]
    found = run(student, source, steps, reasons, [1, 1, 0, 1, 0, 1])
    expect.equal(found[3].get("raised"), "TypeRuleError", "what x: f32[9] + y: f32[7] raised")
    got = [found[n]["graph"].input_types() for n in (4, 5)]
    want = [(mc.f32["s0"], mc.f32["s0"]), (mc.f32[9], mc.f32[1])]
    expect.equal(got, want, "the list of types of the last two graphs", given=shown(steps))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("error", ["KeyError", "RuntimeError", "mc.CompileError"])
def test_fallback(student, error):
    """Whatever tracing with open sizes raises: the numbers are traced, the old entry stays."""
    source = f"""
def fn(x):
    if not isinstance(x.shape[1], int):
        raise {error}("a size is needed")
    return x * float(x.shape[1])
"""
    steps = [sizes(4, 2), sizes(4, 3), sizes(5, 3), sizes(6, 3), sizes(4, 2), sizes(7, 4)]
    reasons = [
        "first call",
        "x axis 0: 4 → 5",
        "x axis 0: s0 → 7; x axis 1: 3 → 4",
    ]
    found = run(student, source, steps, reasons)
    got = [result["graph"].input_types()[0] for result in found]
    want = [
        mc.f32[4, 2],
        mc.f32[4, 3],
        mc.f32["s0", 3],
        mc.f32["s0", 3],
        mc.f32[4, 2],
        mc.f32[7, 4],
    ]
    expect.equal(got, want, "the list of types of x", given=shown(steps))


def test_errors_leave_the_cache(student):
    """What tracing raises passes, and the cache has the entries it had, and still serves."""
    source = """
BAD = False

def fn(x):
    TRACED.append(1)
    if BAD:
        raise ZeroDivisionError
    return mc.exp(x)
"""
    steps = [
        {**sizes(2), "do": "BAD = True", "may_raise": True},
        {**sizes(2), "do": "BAD = False"},
        {**sizes(3), "do": "BAD = True", "may_raise": True},
        {**sizes(3), "do": "BAD = False"},
        {**sizes(9)},
    ]
    found = run(student, source, steps, ["x axis 0: 2 → 3"], [1, 1, 1, 1, 0])
    expect.equal(found[0]["reasons"], [], "the reasons after an error", given=shown(steps[:1]))
    expect.equal(found[0].get("raised"), "ZeroDivisionError", "what the call raised")
    expect.equal(found[2].get("raised"), "ZeroDivisionError", "what the call raised")


def test_functions_apart(student):
    """Every function has entries of its own, also if it has the same name or the same code."""
    source = """
def make(by):
    def fn(x):
        TRACED.append(1)
        return x * by
    return fn

fn, second, third = make(2.0), make(2.0), make(3.0)
"""
    steps = [
        {**sizes(2), "fn": "fn"},
        {**sizes(3), "fn": "second"},
        {**sizes(2), "fn": "third"},
        {**sizes(3), "fn": "second"},
        {**sizes(3), "fn": "fn"},
    ]
    found = run(student, source, steps, ["x axis 0: 2 → 3"], [1, 1, 1, 0, 1])
    got = [result["reasons"] for result in found[:4]]
    expect.equal(got, [["first call"]] * 4, "the reasons of each function", given=shown(steps))


def test_scalars_and_no_tensors(student):
    """A tensor of rank 0 has no sizes; a parameter may be a Python value only."""
    source = "def fn(k, x):\n    TRACED.append(1)\n    return x + k"
    steps = [{"types": {"k": k, "x": mc.i64[()]}} for k in (1, 1, 2)]
    run(student, source, steps, ["first call", "k value: 1 → 2"], [1, 0, 1])
