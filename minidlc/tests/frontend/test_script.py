"""mc.script: if and loops over tensors equal Python's, and every refusal at its line and rule."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import minidlc as mc
from minidlc.frontend.script import frame
from minidlc.frontend.script.refusals import STATEMENTS, WHERE_TENSORS_DECIDE
from minidlc.support.errors import TypeRuleError
from minidlc.tests.frontend.random_functions import Writer, function

VECTOR = mc.f64[3]
COUNT = mc.i64[()]


def arrays(seed):
    return np.random.default_rng(seed).integers(-4, 5, (2, 3)).astype("f8")


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


# Refusals: the function, types, and the words of the line that is refused.


def r_try(x):
    try:
        return x
    except ValueError:
        return -x


def r_with(x):
    with np.errstate():
        return x


def r_yield(x):
    yield x


async def r_async(x):
    return x


def r_def(x):
    def inner(y):
        return y

    return inner(x)


def r_lambda(x):
    f = lambda y: y + 1.0  # noqa: E731
    return f(x)


def r_generator(x):
    rows = (x for _ in range(2))
    return list(rows)


def r_global(x):
    global SCALE
    SCALE = 3.0
    return x


def r_del(x):
    y = x
    del y
    return x


def r_match(x):
    match x.ndim:
        case 1:
            return x
        case _:
            return -x


def r_walrus(x):
    return (y := x + 1.0) * y


def r_loop_else(x):
    while x.sum() < 3.0:
        x = x + 1.0
    else:
        x = -x
    return x


def r_condition(x):
    if x > 0.0:
        x = -x
    return x


def r_logical(x):
    return -x if x.sum() > 0.0 and x else x


def r_break(x):
    while x.sum() < 3.0:
        x = x + 1.0
        if x.max() > 2.0:
            break
    return x


def r_break_python(x):
    for _ in range(3):
        if x.max() > 2.0:
            break
        x = x + 1.0
    return x


def r_continue(x):
    while x.sum() < 3.0:
        x = x + 1.0
        continue
    return x


def r_return(x):
    for _ in range(3):
        if x.max() > 2.0:
            return x
        x = x + 1.0
    return x


def r_return_loop(x):
    while x.sum() < 3.0:
        return x
    return -x


def r_one_return(x):
    if x.sum() > 0.0:
        return x


def r_raise(x):
    if x.sum() > 0.0:
        raise ValueError("positive")
    return x


LOG = []


def r_side_effect(x):
    if x.sum() > 0.0:
        LOG.append(x)
    return x


def logs(x):
    LOG.append(x)
    return x


def r_side_effect_called(x):
    return logs(x) if x.sum() > 0.0 else x


def r_side_effect_print(x):
    while x.sum() < 3.0:
        print(x)
        x = x + 1.0
    return x


def r_side_effect_attribute(x, model=Model(None)):  # noqa: B008
    if x.sum() > 0.0:
        model.w = x
    return x


def r_branch_type(x):
    if x.sum() > 0.0:  # noqa: SIM108
        y = x
    else:
        y = x.sum()
    return y


def r_branch_type_return(x):
    if x.sum() > 0.0:
        return x
    return x.astype("f64")


def r_branch_structure(x):
    ys = [x]
    if x.sum() > 0.0:
        ys.append(x)
    return ys


def r_branch_value(x):
    if x.sum() > 0.0:  # noqa: SIM108
        mode = "up"
    else:
        mode = "down"
    return x * len(mode)


def remembers(d, x):
    d["x"] = x
    return x


MEMORY = {}


def r_global_dict(x):
    return remembers(MEMORY, x) if x.sum() > 0.0 else x


class Remembers:
    def __init__(self):
        self.memory = {}


def r_dict_of_an_object(x, model=Remembers()):  # noqa: B008
    if x.sum() > 0.0:
        x = remembers(model.memory, x)
    return x


def r_alias(x):
    xs = [x]
    if x.sum() > 0.0:  # noqa: SIM108
        ys = xs
    else:
        ys = [-x]
    ys[0] = ys[0] + 1.0
    return xs, ys


def r_alias_in_a_loop(x, n):
    a, b = [x], [x + 1.0]
    c = a
    for _ in range(n):
        a, b = b, a
        a[0] = a[0] + 1.0
    return a, b, c


def empties(xs, x):
    if x.sum() > 0.0:
        xs.append(x)
        xs = None
    else:
        xs = None
    return x


def r_lost(x):
    xs = []
    empties(xs, x)
    return x, len(xs)


def r_one_branch(x):
    if x.sum() > 0.0:
        y = x
    return y


def r_loop_type(x):
    s = 0.0
    while x.sum() < 3.0:
        s = s + x
    return s


def r_loop_structure(x, n):
    ys = [x]
    for _ in range(n):
        ys.append(x)
    return ys


def r_loop_local(x, n):
    for _ in range(n):
        y = x + 1.0
    return y


def r_for_tensor(x):
    s = 0.0
    for row in x:
        s = s + row
    return s


def r_for_target(x, n):
    t = [0]
    for t[0] in range(n):
        x = x + 1.0
    return x


def r_range(x, n):
    for _ in range(0, 9, n):
        x = x + 1.0
    return x


def r_range_float(x):
    for _ in range(x.sum()):
        x = x + 1.0
    return x


KEPT = []


def r_foreign(x):
    KEPT.append(x + 1.0)
    if x.sum() > 0.0:
        x = KEPT[-1]
    return x


def r_unrolled(x):
    while True:
        x = x + 1.0
    return x


def recursive(x):
    return recursive(x - 1.0) if x.sum() > 0.0 else x


def r_recursion(x):
    return recursive(x)


REFUSED = {
    "try": (r_try, "try:"),
    "with": (r_with, "with np"),
    "yield": (r_yield, "yield"),
    "async": (r_async, "async def"),
    "def": (r_def, "def inner"),
    "lambda": (r_lambda, "lambda"),
    "generator": (r_generator, "rows ="),
    "global": (r_global, "global"),
    "del": (r_del, "del y"),
    "match": (r_match, "match"),
    "walrus": (r_walrus, ":="),
    "loop-else": (r_loop_else, "x = -x"),
    "condition": (r_condition, "if x > 0.0"),
    "logical": (r_logical, "and x"),
    "break": (r_break, "break"),
    "break of Python's loop": (r_break_python, "break"),
    "break: continue": (r_continue, "continue"),
    "return": (r_return, "return x"),
    "return in a loop": (r_return_loop, "return x"),
    "one-return": (r_one_return, "if x.sum()"),
    "raise": (r_raise, "raise"),
    "side-effect": (r_side_effect, "LOG.append"),
    "side-effect in a function": (r_side_effect_called, "LOG.append"),
    "side-effect: print": (r_side_effect_print, "print"),
    "side-effect: attribute": (r_side_effect_attribute, "model.w ="),
    "branch-type": (r_branch_type, "if x.sum()"),
    "branch-type of results": (r_branch_type_return, "if x.sum()"),
    "branch-structure": (r_branch_structure, "if x.sum()"),
    "branch-value": (r_branch_value, "if x.sum()"),
    "side-effect on a global": (r_global_dict, "return remembers"),
    "side-effect on an object": (r_dict_of_an_object, "if x.sum()"),
    "alias": (r_alias, "if x.sum()"),
    "alias in a loop": (r_alias_in_a_loop, "for _"),
    "side-effect that is lost": (r_lost, "if x.sum()"),
    "one-branch": (r_one_branch, "return y"),
    "loop-type": (r_loop_type, "while"),
    "loop-structure": (r_loop_structure, "for _"),
    "loop-local": (r_loop_local, "return y"),
    "for-tensor": (r_for_tensor, "for row"),
    "for-target": (r_for_target, "for t[0]"),
    "range": (r_range, "for _"),
    "range of a float": (r_range_float, "for _"),
    "foreign": (r_foreign, "if x.sum()"),
    "unrolled": (r_unrolled, ""),
    "recursion": (r_recursion, "return recursive(x - 1.0)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_its_line_rule_and_hint(name, monkeypatch):
    fn, text = REFUSED[name]
    monkeypatch.setattr(frame, "MOST_STATEMENTS", 500)
    types = [mc.f32[3]] + [mc.i64[()]] * ("n" in inspect.signature(fn).parameters)
    log = list(LOG)
    with pytest.raises(TypeRuleError) as e:
        mc.script(fn, *types)
    error = e.value
    assert error.code == "MDLC0226"
    assert error.notes == (f"rule: {name.split(':')[0].split(' ')[0]}",)
    assert error.hint
    inner = {r_recursion: recursive, r_side_effect_called: logs, r_lost: empties}
    lines, first = inspect.getsourcelines(inner.get(fn, fn))
    assert error.loc.file == __file__
    assert text in lines[error.loc.line - first]
    assert log == LOG


def test_every_rule_of_the_catalogue_is_tested():
    tested = {name.split(":")[0].split(" ")[0] for name in REFUSED}
    assert tested == {*STATEMENTS, *WHERE_TENSORS_DECIDE}


def test_the_message_shows_the_types():
    with pytest.raises(TypeRuleError) as e:
        mc.script(r_branch_type, mc.f32[3])
    assert "y is f32[3] on one way and f32[()] on the other" in str(e.value)
    assert "    if x.sum() > 0.0:" in str(e.value)
    with pytest.raises(TypeRuleError, match=r"s is f32\[\(\)\] before the loop and f32\[3\]"):
        mc.script(r_loop_type, mc.f32[3])


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x, "lambda"),
        (mc.relu, ""),
        (max, "no source of its own"),
        (functools.partial(helper, limit=1.0), "partial has no source"),
        (functools.lru_cache(helper), "a decorated function"),
        (eval("lambda x: x"), "lambda"),
    ],
)
def test_what_has_no_source(fn, text):
    if fn is mc.relu:
        scope = {}
        exec("def made(x):\n    return x\n", scope)
        fn, text = scope["made"], "could not get source code"
    with pytest.raises(TypeRuleError, match=text) as e:
        mc.script(fn, mc.f32[3])
    assert e.value.code == "MDLC0225"
    assert e.value.loc.file == __file__
    assert e.value.hint


def test_an_ops_error_and_an_exception_have_the_line_in_the_function():
    def wrong(x, w):
        if x.sum() > 0.0:
            x = x @ w
        return x

    with pytest.raises(TypeRuleError, match="inner dimensions") as e:
        mc.script(wrong, mc.f32[4, 8], mc.f32[7, 3])
    assert e.value.loc.line == wrong.__code__.co_firstlineno + 2

    def divides(x):
        return x / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        mc.script(divides, mc.f32[3])
