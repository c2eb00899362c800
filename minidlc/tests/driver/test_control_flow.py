"""Branches and loops in native code: captures, nesting, no runs, early ends, places that change."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Constant, Graph, Input, apply, getitem, interpret, parse
from minidlc.support.errors import CallError
from minidlc.tests.frontend import test_control_flow as models
from minidlc.tests.frontend.helpers import node

pytestmark = pytest.mark.llvm

RNG = np.random.default_rng(0)


def inputs_of(*pairs):
    return [Input(name, type) for name, type in pairs]


def run(graph, *arrays, rtol=1e-5):
    """Compile at every level, for 1 and 2 threads: all give what the interpreter gives."""
    wanted = interpret(graph, list(arrays))
    again = parse(str(graph))
    assert again == graph
    for level, threads in ((0, 1), (1, 2), (2, 1), (3, 2)):
        exe = mc.compile(graph, opt_level=level, threads=threads)
        for _ in range(2):  # the second call finds the bytes of the first in the arena
            for a, b in zip(exe(*arrays), wanted, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)
    return exe


def counted(body, *values, carried, **attributes):
    node = apply("loop", None, None, *values, body=body, carried=carried, **attributes)
    count = len(body.outputs) - 1
    return [getitem(node, n) for n in range(count)] if count > 1 else [node]


def branches(x, w):
    """A product in one branch, a sum in the other."""
    y, v = inputs_of(("y", x.type), ("v", w.type))
    yes = Graph.of("product", [y, v], [apply("relu", y @ v), y])
    y, v = inputs_of(("y", x.type), ("v", w.type))
    no = Graph.of("sum", [y, v], [apply("exp", y) + 1.0, y * 2.0])
    return yes, no


@pytest.mark.parametrize("taken", [True, False])
def test_if_with_captures_between_other_kernels(taken):
    c, x, w = inputs_of(("c", bool_[()]), ("x", f32[5, 5]), ("w", f32[5, 5]))
    before = x @ w
    yes, no = branches(before, w)
    node = apply("if_", c, before, w, then_branch=yes, else_branch=no)
    a, b = getitem(node, 0), getitem(node, 1)
    g = Graph.of("g", [c, x, w], [a @ b + before, b])
    data = (RNG.random((5, 5), np.float32) for _ in range(2))
    exe = run(g, np.array(taken), *data)
    report = str(exe.report())
    assert "if input 0:" in report
    assert "else:" in report


def test_branches_share_scratch_and_results_do_not():
    c, x = inputs_of(("c", bool_[()]), ("x", f32[64, 64]))

    def squared_twice(name):
        y = Input("y", x.type)
        return Graph.of(name, [y], [(y @ y) @ (y @ y)])

    yes, no = squared_twice("yes"), squared_twice("no")
    node = apply("if_", c, apply("exp", x), then_branch=yes, else_branch=no)
    g = Graph.of("g", [c, x], [apply("tanh", node) @ node])
    exe = run(g, np.array(True), RNG.random((64, 64), np.float32) / 64, rtol=1e-4)
    one = 64 * 64 * 4
    assert exe.memory_plan.arena_bytes < 6 * one  # two products in each branch, what they read, …
    exe.memory_plan.check()


def step(carry, capture, name="step"):
    """h' = tanh(h @ w + i), stacked as well."""
    i, c, h, w = inputs_of(("i", i64[()]), ("c", bool_[()]), ("h", carry), ("w", capture))
    new = apply("tanh", h @ w + apply("cast", i, to=f32))
    return Graph.of(name, [i, c, h, w], [c, new, new * 2.0])


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_counted_loop_stacks_results(trips):
    h, w = inputs_of(("h", f32[3, 7]), ("w", f32[7, 7]))
    last, all_of = counted(step(h.type, w.type), h, w, carried=1, trips=trips)
    g = Graph.of("g", [h, w], [last, all_of])
    data = RNG.random((3, 7), np.float32), RNG.random((7, 7), np.float32)
    exe = run(g, *data)
    (_, stack) = exe(*data)
    assert stack.shape == (trips, 3, 7)
    assert (f"repeat {trips} times" in str(exe.report())) == (trips > 0)  # none: a constant


def test_results_of_a_loop_are_read_by_later_kernels():
    h, w = inputs_of(("h", f32[3, 7]), ("w", f32[7, 7]))
    last, all_of = counted(step(h.type, w.type), apply("exp", h), w @ w, carried=1, trips=4)
    g = Graph.of("g", [h, w], [apply("sum", all_of, axes=(0,), keepdims=False) @ w + last])
    run(g, RNG.random((3, 7), np.float32), RNG.random((7, 7), np.float32) / 8)


def rotation(*types):
    """a, b, c → b, c, a: every value changes its place."""
    i, go, *values = inputs_of(
        ("i", i64[()]), ("go", bool_[()]), *((f"v{n}", t) for n, t in enumerate(types))
    )
    return Graph.of("rotate", [i, go, *values], [go, *values[1:], values[0]])


@pytest.mark.parametrize("trips", [1, 2, 3, 4])
def test_carried_values_that_change_places(trips):
    values = inputs_of(*((f"x{n}", f32[2, 3]) for n in range(3)))
    g = Graph.of("g", values, counted(rotation(*[f32[2, 3]] * 3), *values, carried=3, trips=trips))
    data = [np.full((2, 3), n, np.float32) for n in range(3)]
    exe = run(g, *data)
    got = [a[0, 0] for a in exe(*data)]
    assert got == [float((n + trips) % 3) for n in range(3)]


def test_a_carried_value_becomes_a_view_of_another_and_one_stays():
    i, go, a, b, kept = inputs_of(
        ("i", i64[()]), ("go", bool_[()]), ("a", f32[2, 3]), ("b", f32[3, 2]), ("kept", f32[2])
    )
    body = Graph.of(
        "views",
        [i, go, a, b, kept],
        [go, apply("reshape", b, shape=(2, 3)), apply("reshape", a, shape=(3, 2)), kept],
    )
    values = inputs_of(("x", f32[2, 3]), ("y", f32[3, 2]), ("z", f32[2]))
    g = Graph.of("g", values, counted(body, *values, carried=3, trips=3))
    run(g, *(RNG.random(v.type.dims, np.float32) for v in values))


def test_a_body_that_returns_captures_constants_and_one_value_twice():
    i, go, a, b, w = inputs_of(
        ("i", i64[()]), ("go", bool_[()]), ("a", f32[3]), ("b", f32[3]), ("w", f32[3])
    )
    fixed = Constant("fixed", np.float32([7, 8, 9]))
    total = a + w
    body = Graph.of("odd", [i, go, a, b, w], [go, total, fixed, total, w, fixed, i, a])
    values = inputs_of(("x", f32[3]), ("y", f32[3]), ("w", f32[3]))
    g = Graph.of("g", values, counted(body, *values, carried=2, trips=3))
    run(g, *(RNG.random(3, np.float32) for _ in values))


def halving(shape):
    """x → x / 2 while its largest element is above `low`."""
    i, go, x, low = inputs_of(
        ("i", i64[()]), ("go", bool_[()]), ("x", f32[shape]), ("low", f32[()])
    )
    half = x * 0.5
    largest = apply("max", half, keepdims=False)
    return Graph.of("halve", [i, go, x, low], [apply("greater", largest, low), half])


@pytest.mark.parametrize("limit", [None, 0, -1, 3, 1000])
@pytest.mark.parametrize("start", [True, False])
def test_the_condition_or_the_limit_ends_it(limit, start):
    n, c, x, low = inputs_of(("n", i64[()]), ("c", bool_[()]), ("x", f32[5]), ("low", f32[()]))
    given = None if limit is None else n
    node = apply("loop", given, c, x, low, body=halving(5), carried=1)
    g = Graph.of("g", [n, c, x, low], [node])
    arrays = np.array(limit or 0), np.array(start), np.arange(5.0, dtype=np.float32)
    run(g, *arrays, np.array(0.1, np.float32))


def test_without_a_condition_what_the_body_says_is_ignored():
    """FAULTS row 88: the schema says so."""
    i, c, x, n = inputs_of(("i", i64[()]), ("c", bool_[()]), ("x", i64[()]), ("n", i64[()]))
    never = Constant("f", np.array(False))
    body = Graph.of("body", [i, c, x], [never, apply("add", x, i)])
    y = Input("y", i64[()])
    g = Graph.of("g", [n, y], [apply("loop", n, None, y, body=body, carried=1)])
    exe = run(g, np.array(5), np.array(1))
    assert exe(np.array(5), np.array(1))[0] == 11
    assert exe(np.array(0), np.array(1))[0] == 1


def test_an_if_in_a_loop_in_a_loop():
    i, c, h, w = inputs_of(("i", i64[()]), ("c", bool_[()]), ("h", f32[4, 4]), ("w", f32[4, 4]))
    odd = apply("equal", apply("mod", i, 2), 1)
    yes, no = branches(h, w)
    both = apply("if_", odd, h, w, then_branch=yes, else_branch=no)
    mixed = apply("tanh", getitem(both, 0) + getitem(both, 1) * 0.1)
    inner = Graph.of("inner", [i, c, h, w], [c, mixed, mixed])

    i, c, h, w = inputs_of(("i", i64[()]), ("c", bool_[()]), ("h", f32[4, 4]), ("w", f32[4, 4]))
    last, stack = counted(inner, h, w, carried=1, trips=3)
    outer = Graph.of("outer", [i, c, h, w], [c, last @ w, stack])

    x, w = inputs_of(("x", f32[4, 4]), ("w", f32[4, 4]))
    g = Graph.of("g", [x, w], counted(outer, x @ w, w, carried=1, trips=2))
    exe = run(g, RNG.random((4, 4), np.float32), RNG.random((4, 4), np.float32))
    assert exe(*([np.eye(4, dtype=np.float32)] * 2))[1].shape == (2, 3, 4, 4)
    names = [k.name for k in exe.kernels]
    assert len(set(names)) == len(names)
    for kernel in exe.kernels:  # the bodies' kernels show every level
        assert kernel.asm
        assert kernel.graph


def test_rows_of_an_input_and_rows_of_rows():
    i, c, s, row = inputs_of(("i", i64[()]), ("c", bool_[()]), ("s", f32[()]), ("row", f32[()]))
    total = s + row
    sums = Graph.of("sums", [i, c, s, row], [c, total, total])
    i, c, s, rows = inputs_of(("i", i64[()]), ("c", bool_[()]), ("s", f32[()]), ("rows", f32[3]))
    last, running = counted(sums, s, rows, carried=1, scanned=1, trips=3)
    body = Graph.of("rows", [i, c, s, rows], [c, last, running])
    s, x = inputs_of(("s", f32[()]), ("x", f32[5, 3]))
    g = Graph.of("g", [s, x], counted(body, s, x, carried=1, scanned=1, trips=5))
    exe = run(g, np.array(0, np.float32), np.arange(15.0, dtype=np.float32).reshape(5, 3))
    (_, running) = exe(np.array(0, np.float32), np.ones((5, 3), np.float32))
    np.testing.assert_array_equal(running.reshape(-1), np.arange(1, 16))


def test_a_known_branch_takes_the_place_of_its_if():
    x = Input("x", f32[3])
    y = Input("y", f32[3])
    yes, no = Graph.of("yes", [y], [y, -y]), Graph.of("no", [y], [y * 2.0, y])
    node = apply("if_", Constant("c", np.array(False)), x, then_branch=yes, else_branch=no)
    g = Graph.of("g", [x], [getitem(node, 0), getitem(node, 1)])
    exe = run(g, np.float32([1, 2, 3]))
    assert [n.op.name for n in exe.graph.nodes] == ["mul"]


def test_a_state_that_is_large_and_one_that_is_empty():
    i, c, big, none = inputs_of(
        ("i", i64[()]), ("c", bool_[()]), ("big", f32[300, 300]), ("none", f32[0, 3])
    )
    body = Graph.of("body", [i, c, big, none], [c, big + 1.0, none * 2.0, none])
    values = inputs_of(("x", f32[300, 300]), ("y", f32[0, 3]))
    g = Graph.of("g", values, counted(body, *values, carried=2, trips=3))
    run(g, np.zeros((300, 300), np.float32), np.zeros((0, 3), np.float32))


def picked(index, body=False):
    """gather(x, index), at once or for each row of `index` in a loop."""
    x = Input("x", f32[4, 2])
    place = Input("place", i64[3])
    if not body:
        return Graph.of("g", [x, place], [apply("gather", x, index(place), axis=0)])
    i, c, row, y = inputs_of(("i", i64[()]), ("c", bool_[()]), ("row", i64[()]), ("y", x.type))
    found = Graph.of("find", [i, c, row, y], [c, apply("gather", y, index(row), axis=0)])
    return Graph.of("g", [x, place], counted(found, place, x, carried=0, scanned=1, trips=3))


@pytest.mark.parametrize("body", [False, True])
@pytest.mark.parametrize("index", [lambda p: p, lambda p: apply("add", p, 1)])
def test_positions_out_of_range_are_an_error_and_not_a_number(index, body):
    g = picked(index, body)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    good, bad = np.array([0, 2, -1]), np.array([0, 4, 1])
    for level in (0, 3):
        exe = mc.compile(g, opt_level=level, threads=2)
        np.testing.assert_array_equal(exe(x, good)[0], interpret(g, [x, good])[0])
        for _ in range(2):
            with pytest.raises(
                CallError, match=r"a position of .* is outside the range -4 to 3"
            ) as e:
                exe(x, bad)
            assert e.value.code == "MDLC0909"
        np.testing.assert_array_equal(exe(x, good)[0], interpret(g, [x, good])[0])
    with pytest.raises(CallError, match="outside the range"):
        interpret(g, [x, bad])


def test_constant_positions_are_checked_at_compile_time():
    g = picked(lambda p: Constant("k", np.array([1, 9, 0])))
    with pytest.raises(CallError, match="9 in input 1 is outside the range -4 to 3"):
        mc.compile(Graph.of("g", g.inputs, g.outputs), opt_level=0)
    good = picked(lambda p: Constant("k", np.array([1, 3, 0])))
    assert not mc.compile(good, threads=1).program.checks


def test_kernels_that_copy_say_so():
    h, w = inputs_of(("h", f32[3, 7]), ("w", f32[7, 7]))
    g = Graph.of("g", [h, w], counted(step(h.type, w.type), h, w, carried=1, trips=2))
    exe = mc.compile(g, threads=1)
    copies = [k for k in exe.kernels if k.is_copy]
    assert [k.name for k in copies] == ["copy_h", "copy_tanh"]
    for kernel in copies:
        assert "= copy, " in str(kernel)
        assert len(parse(kernel.graph).nodes) == 0


def onnx_loop():
    """x + i for each i; every result is stacked. The number of runs is an input."""
    body = models.stacking()
    given = {"n": np.array(3), "x": np.ones(3, np.float32), "w": np.ones(3, np.float32)}
    return models.model([models.loop(body, "n _ x", "y rows")], given, "y rows")


def test_the_number_of_runs_of_a_model_may_differ_from_call_to_call():
    exe = mc.compile(onnx_loop(), threads=1)
    x, w = np.zeros(3, np.float32), np.float32([1, 2, 3])
    for n in (3, 1, 0, 3):
        y, rows = exe(np.array(n), x, w)
        np.testing.assert_array_equal(y, n * w)
        np.testing.assert_array_equal(rows, 2 * w * np.arange(1, n + 1)[:, None])


def test_branches_of_two_types_are_compiled_for_the_condition():
    branch = models.choice([node("Slice", "x zero one", "r")], [node("Neg", "x", "r")])
    weights = {"zero": np.array([0]), "one": np.array([1])}
    x = np.float32([1, 2, 3])
    model = models.model([branch], {"c": np.array(True), "x": x}, "y", weights)
    exe = mc.compile(model, threads=1)
    for c, wanted in ((True, x[:1]), (False, -x), (True, x[:1])):
        np.testing.assert_array_equal(exe(np.array(c), x)[0], wanted)


def test_a_model_with_checks_is_pickled_with_them():
    g = picked(lambda p: p, body=True)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    module = pickle.loads(pickle.dumps(mc.compile(g, threads=1).loaded))
    np.testing.assert_array_equal(module.run([x, np.array([3, 0, -4])])[0], x[[3, 0, 0]])
    with pytest.raises(CallError, match="outside the range"):
        module.run([x, np.array([3, 0, -5])])


def test_pictures_of_graphs_with_bodies():
    h, w = inputs_of(("h", f32[3, 7]), ("w", f32[7, 7]))
    g = Graph.of("g", [h, w], counted(step(h.type, w.type), h, w, carried=1, trips=2))
    exe = mc.compile(g, threads=1)
    assert "loop" in mc.viz.graph(exe.graph).svg
    assert mc.viz.passes(exe.passes)
    assert mc.viz.memory(exe.memory_plan)


def test_positions_computed_inside_a_fused_group_are_checked():
    x, p, q = inputs_of(("x", f32[4, 2]), ("p", i64[3]), ("q", i64[3]))
    index = apply("add", apply("mul", p, 2), q)
    g = Graph.of("g", [x, p, q], [apply("relu", apply("gather", x, index, axis=0))])
    exe = mc.compile(g, threads=1)
    (group,) = (n.op.name for n in exe.graph.nodes)
    assert group == "fused"
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    got = exe(data, np.array([0, 1, -2]), np.array([0, 1, 0]))[0]
    np.testing.assert_array_equal(got, data[[0, 3, -4]])
    with pytest.raises(CallError, match="a position of 'add' in input 1 is outside the range"):
        exe(data, np.array([0, 1, 2]), np.array([0, 1, 0]))
    fixed = Graph.of("g", [x], [apply("relu", apply("gather", x, Constant("k", np.array([0, 9]))))])
    with pytest.raises(CallError, match="9 in input 1 is outside"):
        mc.compile(fixed)


@pytest.mark.parametrize(("most", "asks"), [(5, False), (1 << 17, True), (None, True)])
def test_only_loops_that_may_be_long_ask_whether_to_stop(most, asks):
    """The entry of a short loop is as before."""
    x, c = inputs_of(("x", f32[()]), ("c", bool_[()]))
    body, limit = rotation(x.type), None if most is None else Constant("n", np.array(most))
    exe = mc.compile(Graph.of("g", [x, c], [apply("loop", limit, c, x, body=body, carried=1)]))
    assert exe.loaded.long_loops == asks
