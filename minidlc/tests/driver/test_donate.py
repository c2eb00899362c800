"""Donated inputs: outputs written over them, right whoever else reads the old value."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from minidlc.calling import output_names
from minidlc.expr.types import Array, TensorType, bool_, f32, i64
from minidlc.graph import Graph, Input, TupleType, Value, apply
from minidlc.support.errors import CallError, OptionError
from minidlc.tests.driver.test_random_control_flow import Maker
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import Fuse, Pipeline

pytestmark = [pytest.mark.llvm, pytest.mark.ch03]

RNG = np.random.default_rng(0)


def some(type: TensorType) -> Array:
    if type.dtype.is_float:
        return np.asarray(RNG.standard_normal(type.dims), type.dtype.numpy)
    return np.asarray(RNG.integers(0, 2, type.dims), type.dtype.numpy)


def check(g: Graph, donate: dict[str, str], *arrays: Array) -> mc.Executable:
    """The outputs of a plain call, in the arrays that were given; others are as they were."""
    arrays = arrays or tuple(some(i.type) for i in g.inputs)
    wanted = mc.compile(g).run_dict(*arrays)
    for level, threads in ((0, 1), (3, 2)):
        exe = mc.compile(g, donate=donate, opt_level=level, threads=threads)
        given = {i.name: a.copy() for i, a in zip(g.inputs, arrays, strict=True)}
        got = exe.run_dict(given)
        for name, output in donate.items():
            assert got[output] is given[name]
        for name, want in wanted.items():
            np.testing.assert_allclose(got[name], want, rtol=1e-6, atol=1e-6, err_msg=name)
        for i, a in zip(g.inputs, arrays, strict=True):
            if i.name not in donate:
                np.testing.assert_array_equal(given[i.name], a, err_msg=i.name)
    return exe


def updates(exe: mc.Executable) -> list[str]:
    return [str(u) for u in exe.memory_plan.updates]


IN_PLACE = {
    "a step": """
def g(x: f32[4, 8], w: f32[8, 8], b: f32[8]):
    y: f32[4, 8] = matmul(x, w)
    loss: f32[()] = sum(y, axes=(0, 1), keepdims=False)
    turned: f32[8, 4] = transpose(x)
    dw: f32[8, 8] = matmul(turned, y)
    w_new: f32[8, 8] = sub(w, dw)
    return loss, w_new""",
    "the old value is not read": """
def g(x: f32[8, 4], w: f32[8, 8]):
    turned: f32[4, 8] = transpose(x)
    w_new: f32[8, 8] = matmul(x, turned)
    return w_new""",
    "a view of the old value": """
def g(x: f32[64], w: f32[8, 8]):
    flat: f32[64] = reshape(w, shape=(64,))
    moved: f32[64] = mul(flat, x)
    y: f32[()] = sum(moved, axes=(0,), keepdims=False)
    w_new: f32[8, 8] = exp(w)
    return y, w_new""",
    "a reader behind the update in the text": """
def g(x: f32[4, 8], w: f32[8, 8]):
    w_new: f32[8, 8] = exp(w)
    y: f32[4, 8] = matmul(x, w)
    return y, w_new""",
    "an output that reads the new value": """
def g(x: f32[4, 8], w: f32[8, 8]):
    w_new: f32[8, 8] = exp(w)
    y: f32[4, 8] = matmul(x, w_new)
    return y, w_new""",
    "two outputs are one value": """
def g(w: f32[8, 8]):
    w_new: f32[8, 8] = exp(w)
    return w_new, w_new""",
    "several results of one node": """
def g(w: f32[8]):
    w_new, i = topk(w, k=8)
    return w_new, i""",
}

COPIED = {
    "it reads other elements": """
def g(w: f32[8, 8]):
    w_new: f32[8, 8] = matmul(w, w)
    return w_new""",
    "a flip": """
def g(w: f32[64]):
    w_new: f32[64] = slice(w, starts=(-1,), ends=(-65,), axes=(0,), steps=(-1,))
    return w_new""",
    "a roll, a concat of its own parts": """
def g(w: f32[64]):
    a: f32[60] = slice(w, starts=(4,), ends=(64,), axes=(0,))
    b: f32[4] = slice(w, starts=(0,), ends=(4,), axes=(0,))
    c: f32[60] = exp(a)
    d: f32[4] = exp(b)
    w_new: f32[64] = concat(c, d, axis=0)
    return w_new""",
    "the old value is an output": """
def g(w: f32[8, 8]):
    w_new: f32[8, 8] = exp(w)
    return w, w_new""",
    "old and new are compared": """
def g(w: f32[8, 8], x: f32[8, 8]):
    w_new: f32[8, 8] = matmul(x, x)
    moved: f32[8, 8] = sub(w_new, w)
    far: f32[8, 8] = matmul(moved, moved)
    return far, w_new""",
    "two names of it in one kernel": """
def g(w: f32[8, 8]):
    turned: f32[8, 8] = transpose(w)
    w_new: f32[8, 8] = add(w, turned)
    return w_new""",
}


@pytest.mark.parametrize("case", IN_PLACE)
def test_updates_that_are_written_where_they_belong(case: str) -> None:
    exe = check(text(IN_PLACE[case]), {"w": "w_new"})
    if case != "several results of one node":
        assert updates(exe)[0].startswith("input w updated in place by")


@pytest.mark.parametrize("case", COPIED)
def test_updates_that_must_wait_for_a_copy(case: str) -> None:
    exe = check(text(COPIED[case]), {"w": "w_new"})
    assert updates(exe)[0].startswith("input w updated by a copy at the end: ")


ADAM = """
def g(w: TYPE, x: f32[8, ROWS], y: f32[8, COLUMNS], m: TYPE, v: TYPE):
    turned: f32[ROWS, 8] = transpose(x)
    dw: TYPE = matmul(turned, y)
    m_new: TYPE = add(m, dw)
    square: TYPE = mul(dw, dw)
    v_new: TYPE = add(v, square)
    root: TYPE = sqrt(v_new)
    q: TYPE = div(m_new, root)
    w_new: TYPE = sub(w, q)
    return w_new, m_new, v_new"""


@pytest.mark.parametrize("style", ["tvm", "stitch"])
@pytest.mark.parametrize("sizes", [(16, 64), (17, 33), (100, 10), (1, 1000), (1000, 1), (5, 7)])
def test_three_updates_of_any_size_are_written_in_place(sizes: tuple[int, int], style: str) -> None:
    """Blocks that do not divide the size, several results in one kernel: none needs a copy."""
    rows, columns = map(str, sizes)
    typed = ADAM.replace("TYPE", f"f32[{rows}, {columns}]")
    g = text(typed.replace("ROWS", rows).replace("COLUMNS", columns))
    pipeline = Pipeline.default(3).replace("fuse", Fuse(style=style))
    donate = {name: f"{name}_new" for name in "wmv"}
    arrays = [abs(some(i.type)) for i in g.inputs]
    plain = mc.compile(g, pipeline=pipeline).run_dict(*arrays)
    exe = mc.compile(g, donate=donate, pipeline=pipeline)
    for name, got in exe.run_dict(*arrays).items():
        np.testing.assert_array_equal(got, plain[name])
    assert all(" updated in place by " in line for line in updates(exe)), updates(exe)


def text(source: str) -> Graph:
    return mc.parse(source)


def test_no_update_costs_nothing() -> None:
    exe = check(text("def g(w: f32[8]):\n    return w"), {"w": "w"})
    assert not exe.kernels


def test_two_inputs_change_places() -> None:
    """Neither copy may overwrite what the other reads."""
    g = text("def g(a: f32[8], b: f32[8], c: f32[8]):\n    return b, c, a")
    check(g, {"a": "b", "b": "c", "c": "a"})
    g = text("def g(a: f32[8], b: f32[8]):\n    c: f32[8] = exp(a)\n    return b, c")
    check(g, {"a": "b", "b": "c"})


def test_the_second_output_of_a_name() -> None:
    g = text("def g(w: f32[8], v: f32[8]):\n    y: f32[8] = exp(w)\n    return y, y")
    check(g, {"w": "y", "v": "y_1"})


@pytest.mark.parametrize("flag", [True, False])
def test_branches_and_loops(flag: bool) -> None:
    c, w, x = Input("c", bool_[()]), Input("w", f32[8, 8]), Input("x", f32[8, 8])
    v = Input("v", w.type)
    yes, no = Graph.of("yes", [v], [v @ v]), Graph.of("no", [v], [apply("exp", v)])
    w_new = apply("if_", c, w, then_branch=yes, else_branch=no)
    arrays = np.array(flag), some(w.type), some(x.type)
    check(Graph.of("reads", [c, w, x], [w_new, w_new @ x]), {"w": w_new.name}, *arrays)
    other = apply("if_", c, x, then_branch=yes, else_branch=no)
    exe = check(Graph.of("others", [c, w, x], [w @ x, other]), {"w": other.name}, *arrays)
    assert "in place" in updates(exe)[0]
    i, go, state = Input("i", i64[()]), Input("go", bool_[()]), Input("s", w.type)
    body = Graph.of("body", [i, go, state, v], [go, state * 0.5 + v])
    loop = apply("loop", None, None, w, x, body=body, carried=1, trips=3)
    check(Graph.of("loop", [c, w, x], [loop]), {"w": loop.name}, *arrays)


def test_a_call_that_finds_a_fault_has_changed_nothing() -> None:
    g = text("""
def g(w: f32[4], v: f32[10], ids: i64[3]):
    w_new: f32[4] = exp(w)
    rows: f32[3] = gather(v, ids, axis=0)
    return w_new, rows""")
    exe = mc.compile(g, donate={"w": "w_new"})
    w = some(f32[4])
    before, v = w.copy(), some(f32[10])
    with pytest.raises(CallError, match="position"):
        exe(w, v, np.array([0, 10, 1]))
    np.testing.assert_array_equal(w, before)
    exe(w, v, np.array([0, 9, 1]))
    np.testing.assert_allclose(w, np.exp(before), rtol=1e-6)


def test_positions_that_depend_on_the_update() -> None:
    """Their check comes behind it, so the new value waits until all checks are done."""
    g = text("""
def g(w: f32[3], v: f32[10]):
    w_new: f32[3] = add(w, w)
    ids: i64[3] = cast(w_new, to=i64)
    rows: f32[3] = gather(v, ids, axis=0)
    return w_new, rows""")
    exe = mc.compile(g, donate={"w": "w_new"})
    assert updates(exe) == ["input w updated by a copy at the end: positions are checked later"]
    w, v = np.array([1, 2, 5], np.float32), some(f32[10])
    with pytest.raises(CallError, match="position"):
        exe(w, v)
    np.testing.assert_array_equal(w, [1, 2, 5])
    w[:] = 1, 2, 4
    np.testing.assert_array_equal(exe(w, v)[1], v[[2, 4, 8]])
    np.testing.assert_array_equal(w, [2, 4, 8])


INTERRUPTED = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
import numpy as np
import minidlc as mc
g = mc.parse('''
def g(x: f32[1200, 1200], w: f32[64, 64], v: f32[1200, 1200], n: i64[()]):
    one: i64[()] = const("one")
    ones: f32[64, 64] = const("ones")
    a: f32[1200, 1200] = matmul(x, x)
    w_new: f32[64, 64] = add(w, ones)
    b: f32[1200, 1200] = matmul(a, x)
    c: f32[1200, 1200] = matmul(b, x)
    v_new: f32[1200, 1200] = add(v, c)
    n_new: i64[()] = add(n, one)
    return w_new, v_new, n_new
''', {"one": np.array(1), "ones": np.ones((64, 64), np.float32)})
exe = mc.compile(g, donate={"w": "w_new", "v": "v_new", "n": "n_new"}, threads=1)
x = np.zeros((1200, 1200), np.float32)
w, v, n = np.zeros((64, 64), np.float32), x.copy(), np.array(0)
for k in range(12):
    threading.Timer(0.03 * (1 + k), os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            exe(x, w, v, n)
    except KeyboardInterrupt:
        assert (w == n).all(), (w, n)
print("whole steps", n > 0)
"""


def test_an_interrupted_call_has_changed_all_or_nothing() -> None:
    """Ctrl-C at twelve moments of a loop of calls: the counter counts what the weights saw."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "whole steps True\n", done.stderr


def test_a_call_that_is_stopped_has_changed_all_or_nothing() -> None:
    """The stop word is looked at up to the first write over an input, never later."""
    g = text("""
def g(x: f32[8, 8], a: f32[8, 8], b: f32[8, 8]):
    y: f32[8, 8] = matmul(x, x)
    a_new: f32[8, 8] = add(a, y)
    b_new: f32[8, 8] = matmul(y, y)
    return a_new, b_new""")
    exe = mc.compile(g, donate={"a": "a_new", "b": "b_new"}, opt_level=0)
    x, a, b = (some(f32[8, 8]) for _ in range(3))
    before = a.copy(), b.copy()
    frame = exe.loaded._take_frame()  # pyright: ignore[reportPrivateUsage]
    frame.stop[0] = 1
    exe.loaded._frames.append(frame)  # pyright: ignore[reportPrivateUsage]
    exe(x, a, b)
    np.testing.assert_array_equal((a, b), before)
    frame.stop[0] = 0
    exe(x, a, b)
    assert not np.array_equal(a, before[0])
    assert not np.array_equal(b, before[1])
    calls = str(exe.program.steps)
    assert calls.count("Commit") == 1


def test_a_call_from_the_cache_and_from_another_thread_count(tmp_path) -> None:
    """The names are part of the key: with and without donation are two models."""
    g = text("def g(w: f32[8, 8]):\n    w_new: f32[8, 8] = exp(w)\n    return w_new")
    model = mc.to_onnx(g)
    w = some(f32[8, 8])
    for _ in range(2):
        (plain,) = mc.compile(model)(w)
        assert not np.shares_memory(plain, w)
    for _ in range(2):
        mine = w.copy()
        exe = mc.compile(model, donate={"w": "w_new"})
        (new,) = exe(mine)
        assert new is mine
        np.testing.assert_array_equal(new, plain)
    assert "input w updated in place by w_new" in str(exe.report())


def test_out_holds_the_donated_arrays() -> None:
    g = text("def g(w: f32[8], x: f32[8]):\n    w_new: f32[8] = add(w, x)\n    return x, w_new")
    exe = mc.compile(g, donate={"w": "w_new"})
    w, x, y = some(f32[8]), some(f32[8]), some(f32[8])
    out = exe(w, x, out=[y, w])
    assert out[0] is y
    assert out[1] is w
    with pytest.raises(CallError, match="another array") as e:
        exe(w, x, out=[y, some(f32[8])])
    assert e.value.code == "MDLC0919"
    with pytest.raises(CallError, match="shares memory"):
        exe(w, x, out=[w, w])


def test_a_profile_leaves_the_arrays_alone() -> None:
    g = text("def g(w: f32[8]):\n    w_new: f32[8] = add(w, w)\n    return w_new")
    exe = mc.compile(g, donate={"w": "w_new"})
    w = np.ones(8, np.float32)
    exe.profile(w, seconds=0.01)
    np.testing.assert_array_equal(w, np.ones(8))


def test_a_session_updates_its_own_arrays() -> None:
    g = text("def g(w: f32[8]):\n    w_new: f32[8] = add(w, w)\n    return w_new")
    session = mc.session(mc.compile(g, donate={"w": "w_new"}))
    session.set_input("w", np.ones(8, np.float32))
    for _ in range(3):
        session.run()
    np.testing.assert_array_equal(session.get_output(), np.full(8, 8.0))


def test_open_sizes() -> None:
    g = text('def g(w: f32["N"]):\n    w_new: f32["N"] = exp(w)\n    return w_new')
    exe = mc.compile(g, donate={"w": "w_new"})
    for n in (3, 5):
        w = np.zeros(n, np.float32)
        assert exe(w)[0] is w
        np.testing.assert_array_equal(w, np.ones(n))


@pytest.mark.parametrize(
    ("donate", "what"), [({"v": "w_new"}, "no input 'v'"), ({"w": "v_new"}, "no output 'v_new'")]
)
def test_unknown_names_of_open_sizes(donate: dict[str, str], what: str) -> None:
    """They are refused before the first call."""
    g = text('def g(w: f32["N"]):\n    w_new: f32["N"] = exp(w)\n    return w_new')
    with pytest.raises(OptionError, match=what) as e:
        mc.compile(g, donate=donate)
    assert e.value.code == "MDLC1051"


TWO = text("""
def g(w: f32[8], v: f32[8], x: f32[4]):
    w_new: f32[8] = exp(w)
    v_new: f32[8] = exp(v)
    y: f32[4] = exp(x)
    return w_new, v_new, y""")


@pytest.mark.parametrize(
    ("donate", "code"),
    [
        ({"u": "w_new"}, "MDLC1051"),
        ({"w": "u_new"}, "MDLC1051"),
        ({"x": "w_new"}, "MDLC1052"),
        ({"w": "w_new", "v": "w_new"}, "MDLC1053"),
        ({"w": 3}, "MDLC1001"),
        (["w"], "MDLC1001"),
    ],
)
def test_refused_pairs(donate: object, code: str) -> None:
    with pytest.raises(OptionError) as e:
        mc.compile(TWO, donate=donate)  # pyright: ignore[reportArgumentType]
    assert e.value.code == code


def test_refused_arrays() -> None:
    exe = mc.compile(TWO, donate={"w": "w_new", "v": "v_new"})
    long = np.zeros(24, np.float32)
    w, v, x = (some(f32[n]) for n in (8, 8, 4))
    fixed = w.copy()
    fixed.flags.writeable = False
    for arguments, code, what in (
        ((fixed, v, x), "MDLC0917", "read-only"),
        ((long[::3], v, x), "MDLC0917", "not dense"),
        ((list(w), v, x), "MDLC0917", "a list: expected an array"),
        ((w, np.float32(1), x), "MDLC0904", "shape"),
        ((w, w, x), "MDLC0918", "'w' is donated, and shares memory with input 'v'"),
        ((long[:8], long[4:12], x), "MDLC0918", "shares"),
        ((long[:8], v, long[7:11]), "MDLC0918", "shares"),
        ((w.astype(np.float64), v, x), "MDLC0903", "f64"),
    ):
        with pytest.raises(CallError, match=what) as e:
            exe(*arguments)
        assert e.value.code == code
    scalar = text("def g(n: f64[()]):\n    m: f64[()] = add(n, n)\n    return m")
    with pytest.raises(CallError, match="expected an array") as e:
        mc.compile(scalar, donate={"n": "m"})(2.0)
    assert e.value.code == "MDLC0917"
    exe(long[:8], long[8:16], long[16:20])  # side by side is no overlap
    exe(long[:8], long[8:16], long[16:20])
    with pytest.raises(CallError):
        exe(long[:8], long[8:16], long[15:19])


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(case=cases(), data=st.data())
def test_random_graphs_with_donated_inputs(case: Case, data: st.DataObject) -> None:
    """Outputs of any kind over inputs of their type, against the interpreter."""
    donate = drawn_pairs(case.graph, lambda n: data.draw(st.integers(0, n - 1)))
    expected = mc.interpret(case.graph, list(case.arrays))
    exe = mc.compile(case.graph, donate=donate, threads=1)
    given = [a.copy() for a in case.arrays]
    outputs = exe(*given)
    case.check(outputs, expected)
    names = exe.interface.output_names
    by_name = dict(zip((i.name for i in case.graph.inputs), given, strict=True))
    for x, y in donate.items():
        assert outputs[names.index(y)] is by_name[x]
    for i, mine, was in zip(case.graph.inputs, given, case.arrays, strict=True):
        if i.name not in donate:
            np.testing.assert_array_equal(mine, was)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_branches_and_loops_with_donated_inputs(seed: int) -> None:
    """All values are of one type: outputs are inputs, views, results; inputs change places."""
    g = Maker(seed).graph()
    rng = np.random.default_rng(seed)
    names = output_names(o.name for o in g.outputs)
    free = [i.name for i in g.inputs[1:]]
    donate = {free[n]: names[o] for n, o in enumerate(rng.permutation(3)[: 1 + seed % 3])}
    for go in (True, False):
        arrays = [np.array(go), *(some(i.type) for i in g.inputs[1:])]
        wanted = mc.interpret(g, arrays)
        given = [a.copy() for a in arrays]
        got = mc.compile(g, donate=donate, opt_level=3 * go, threads=1)(*given)
        by_name = dict(zip((i.name for i in g.inputs), given, strict=True))
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-5, err_msg=f"{donate}\n{g}")
        assert all(got[names.index(y)] is by_name[x] for x, y in donate.items())


def drawn_pairs(g: Graph, choose) -> dict[str, str]:
    """Inputs, and outputs of their type; each output at most once."""
    names = mc.compile(g).interface.output_names
    pairs: dict[str, str] = {}
    for i in g.inputs:
        fits = [
            name
            for name, o in zip(names, g.outputs, strict=True)
            if is_of(o, i.type) and name not in pairs.values()
        ]
        if fits and choose(4):
            pairs[i.name] = fits[choose(len(fits))]
    return pairs


def is_of(value: Value, type: TensorType) -> bool:
    return not isinstance(value.type, TupleType) and value.type == type
