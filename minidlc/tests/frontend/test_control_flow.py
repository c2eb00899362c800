"""If, Loop and Scan from ONNX and back: scopes, captures, what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import difference, interpret, verify
from minidlc.support.errors import OnnxImportError
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.ch01

F, I64 = np.float32, np.int64


def info(name, kind=None, shape=None):
    if kind is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape
    )


def graph(nodes, inputs="", outputs="", weights=None, name="body"):
    """A subgraph; inputs and outputs without types, as exporters often write them."""
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    ins, outs = ([info(n) for n in names.split()] for names in (inputs, outputs))
    return helper.make_graph(nodes, name, ins, outs, tensors)


def loop(body, inputs, outputs):
    return node("Loop", inputs, outputs, body=body)


def load(nodes, inputs, outputs="y", weights=None, opset=20):
    g = load_onnx(model(nodes, inputs, outputs, weights, opset))
    verify(g)
    return g


def run(nodes, inputs, outputs="y", weights=None, opset=20):
    """The outputs, interpreted; written to ONNX and read again they are the same."""
    g = load(nodes, inputs, outputs, weights, opset)
    found = interpret(g, list(inputs.values()))
    back = load_onnx(to_onnx(g).SerializeToString())
    for a, b in zip(interpret(back, list(inputs.values())), found, strict=True):
        np.testing.assert_array_equal(a, b)
    return found


def refused(nodes, inputs, outputs="y", weights=None, opset=20):
    with pytest.raises(OnnxImportError) as e:
        load(nodes, inputs, outputs, weights, opset)
    return str(e.value)


X, C = F([1, -2, 3]), np.array(True)


def choice(then_nodes, else_nodes, outputs="r", cond="c", results="y", **more):
    yes, no = (graph(n, "", outputs, **more) for n in (then_nodes, else_nodes))
    return node("If", cond, results, then_branch=yes, else_branch=no)


@pytest.mark.parametrize("c", [True, False])
def test_if_reads_outer_values_by_name(c):
    branch = choice([node("Add", "x h", "r")], [node("Mul", "h k", "r")])
    nodes = [node("Relu", "x", "h"), branch]
    (y,) = run(nodes, {"c": np.array(c), "x": X}, weights={"k": F(3)})
    np.testing.assert_array_equal(y, X + np.maximum(X, 0) if c else np.maximum(X, 0) * 3)


def test_captures_are_inputs_and_outer_constants_are_not():
    branch = choice([node("Add", "x k", "r")], [node("Add", "k x", "r")])
    g = load([branch], {"c": C, "x": X}, weights={"k": F(3)})
    (only,) = g.nodes
    assert [v.name for v in only.inputs] == ["c", "x"]


def test_branches_hand_on_outer_values_constants_and_initializers():
    yes = graph([], "", "x own", {"own": F([9, 9])})
    no = graph([node("Constant", "", "one", value=numpy_helper.from_array(F([1, 2])))], "", "h one")
    nodes = [
        node("Neg", "x", "h"),
        node("If", "c", "y z", then_branch=yes, else_branch=no),
    ]
    for c in (True, False):
        y, z = run(nodes, {"c": np.array(c), "x": X}, "y z")
        np.testing.assert_array_equal(y, X if c else -X)
        np.testing.assert_array_equal(z, [9, 9] if c else [1, 2])


def test_an_inner_name_hides_an_outer_one():
    hidden = graph([node("Add", "x k", "r")], "", "r", {"k": F(100)})
    plain = graph([node("Add", "x k", "r")], "", "r")
    nodes = [node("If", "c", "y", then_branch=hidden, else_branch=plain)]
    for c, k in ((True, 100), (False, 1)):
        (y,) = run(nodes, {"c": np.array(c), "x": X}, weights={"k": F(1)})
        np.testing.assert_array_equal(y, X + k)


def test_a_known_condition_leaves_one_branch():
    short = [node("Slice", "x zero one", "r")]
    weights = {"c": np.array(False), "zero": I64([0]), "one": I64([1])}
    g = load([choice(short, [node("Neg", "x", "r")])], {"x": X}, weights=weights)
    assert [n.op.name for n in g.nodes] == ["neg"]
    del weights["c"]
    shape_decides = [
        node("Shape", "x", "s"),
        node("Equal", "s three", "c"),
        choice(short, [node("Neg", "x", "r")]),
    ]
    (y,) = run(shape_decides, {"x": X}, weights={**weights, "three": I64([3])})
    np.testing.assert_array_equal(y, X[:1])


def test_branches_of_two_types_are_refused():
    weights = {"zero": I64([0]), "one": I64([1])}
    nodes = [choice([node("Slice", "x zero one", "r")], [node("Neg", "x", "r")])]
    text = refused(nodes, {"c": C, "x": X}, weights=weights)
    assert "the branches give (f32[1]) and (f32[3])" in text
    assert "not supported" in text


@pytest.mark.parametrize("value", [F(1), F(np.nan), I64(1), np.array([True, False])])
def test_a_known_condition_is_one_truth_value(value):
    """As one that is not known: NaN, 1 and two of them decide nothing."""
    nodes = [choice([node("Neg", "x", "r")], [node("Abs", "x", "r")])]
    text = refused(nodes, {"x": np.ones(3, F)}, weights={"c": value})
    assert "the condition must be one element of bool" in text


def test_if_in_if_captures_through_both():
    inner = choice([node("Add", "x w", "r")], [node("Sub", "x w", "r")], cond="d", results="q")
    other = [node("Neg", "x", "q")]
    yes, no = graph([inner], "", "q"), graph(other, "", "q")
    nodes = [node("If", "c", "y", then_branch=yes, else_branch=no)]
    w = F([10, 20, 30])
    for c, d, wanted in ((1, 1, X + w), (1, 0, X - w), (0, 1, -X)):
        given = {"c": np.array(bool(c)), "d": np.array(bool(d)), "x": X, "w": w}
        np.testing.assert_array_equal(run(nodes, given)[0], wanted)


def adding(carried="x", result="x_out"):
    """x + i, FAULTS rows 87 and 88."""
    nodes = [
        node("Identity", "go", "go_out"),
        node("Add", f"{carried} i", result),
    ]
    return graph(nodes, f"i go {carried}", f"go_out {result}")


M = {"n": np.array(5)}


@pytest.mark.parametrize(
    ("inputs", "given", "wanted"),
    [
        ("n _ a", {"n": I64(5)}, 11),
        ("n _ a", {"n": I64(0)}, 1),
        ("n _ a", {"n": I64(-2)}, 1),
        ("n c a", {"n": I64(5), "c": np.array(False)}, 1),
        ("n c a", {"n": I64(5), "c": np.array(True)}, 11),
        ("n c a", {"n": I64([5]), "c": np.array([True])}, 11),
    ],
)
def test_the_number_of_runs_is_not_the_counter(inputs, given, wanted):
    """FAULTS rows 87 and 88, as graph inputs and as constants."""
    nodes = [loop(adding(), inputs, "y")]
    given = {k: np.asarray(v) for k, v in given.items()}
    assert run(nodes, {**given, "a": np.array(1)})[0] == wanted
    assert run(nodes, {"a": np.array(1)}, weights=given)[0] == wanted


def test_a_body_input_named_like_an_outer_value_is_its_own():
    """FAULTS row 85: the update of `b` is not lost, and the outer `b` not overwritten."""
    nodes = [loop(adding("b", "b_out"), "n _ b", "y"), node("Add", "y b", "z")]
    y, z = run(nodes, {"n": np.array(5), "b": np.array(1)}, "y z")
    assert (y, z) == (11, 12)


def stacking():
    nodes = [
        node("Identity", "go", "go_out"),
        node("Add", "x w", "x_out"),
        node("Mul", "x_out two", "row"),
    ]
    return graph(nodes, "i go x", "go_out x_out row", {"two": F(2)})


@pytest.mark.parametrize("trips", [3, 1, 0])
def test_results_are_stacked_when_the_number_of_runs_is_known(trips):
    nodes = [loop(stacking(), "n c x", "y rows")]
    given = {"x": X, "w": F([1, 10, 100])}
    y, rows = run(nodes, given, "y rows", {"n": np.array(trips), "c": C})
    steps = [X + given["w"] * (k + 1) for k in range(trips)]
    np.testing.assert_array_equal(y, steps[-1] if steps else X)
    np.testing.assert_array_equal(rows, np.reshape(steps, (trips, 3)) * 2)


def test_a_length_that_depends_on_data_is_refused():
    text = refused(
        [loop(stacking(), "n c x", "y rows")], {"n": np.array(3), "c": C, "x": X, "w": X}
    )
    assert "the length of scan output 'rows' depends on data" in text
    assert "not supported" in text


def test_a_constant_condition_that_stops_ends_it_after_one_run():
    nodes = [node("Add", "x x", "x_out"), node("Not", "t", "stop")]
    body = graph(nodes, "i go x", "stop x_out x_out", {"t": C})
    y, rows = run([loop(body, "n t x", "y rows")], {"x": X}, "y rows", {"n": np.array(9), "t": C})
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(rows, [X * 2])


@pytest.mark.parametrize("value", [F(3), F(np.nan), np.int32(3), np.zeros(0, I64)])
def test_a_known_number_of_runs_is_one_i64(value):
    """As one that is not known."""
    nodes = [loop(adding(), "n _ x", "y")]
    text = refused(nodes, {"x": I64(1)}, weights={"n": value})
    assert "the number of runs must be one element of i64" in text


def test_a_body_that_computes_that_it_goes_on():
    """Not a constant of the body, but known; no run, or three."""
    nodes = [node("Not", "f", "c_out"), node("Add", "x i", "x_out")]
    body = graph(nodes, "i c x", "c_out x_out", {"f": False})
    for runs in (0, 3):
        nodes, weights = [loop(body, "n t x", "y")], {"n": I64(runs), "t": np.array(True)}
        (y,) = run(nodes, {"x": I64(1)}, weights=weights)
        assert y == (1 + 0 + 1 + 2 if runs else 1)


@pytest.mark.parametrize("inputs", ["_ _ x", "_ c x", "largest c x", "largest _ x"])
def test_a_loop_without_end_is_refused(inputs):
    body = graph([node("Neg", "x", "x_out")], "i go x", "go x_out")
    weights = {"c": C, "largest": np.array(2**63 - 1)}
    assert "it never ends" in refused([loop(body, inputs, "y")], {"x": X}, weights=weights)


def test_while_the_body_says_so():
    nodes = [
        node("Add", "x x", "x_out"),
        node("ReduceMax", "x_out", "top", keepdims=0),
        node("Less", "top bound", "again"),
    ]
    body = graph(nodes, "i go x", "again x_out")
    (y,) = run([loop(body, "_ c x", "y")], {"c": C, "x": X, "bound": F(50)})
    np.testing.assert_array_equal(y, X * 32)
    (y,) = run([loop(body, "_ c x", "y")], {"c": np.array(False), "x": X, "bound": F(50)})
    np.testing.assert_array_equal(y, X)


def growing():
    """x grows by a row in each run."""
    nodes = [node("Concat", "x w", "x_out", axis=0), node("Identity", "go", "go_out")]
    return graph(nodes, "i go x", "go_out x_out")


def test_sizes_that_change_are_taken_run_by_run():
    (y,) = run([loop(growing(), "n c x", "y")], {"x": X, "w": F([7])}, "y", {"n": I64(3), "c": C})
    np.testing.assert_array_equal(y, [1, -2, 3, 7, 7, 7])


def test_sizes_that_change_from_run_to_run_are_refused():
    given = {"n": np.array(3), "c": C, "x": X, "w": F([7])}
    text = refused([loop(growing(), "n c x", "y")], given)
    assert "a run changes the type of 'x_out' from f32[3] to f32[4]: not supported" in text


@pytest.mark.parametrize("runs", [3, 200])
def test_runs_of_loops_in_loops_are_taken_one_by_one_up_to_a_limit(runs):
    """200 * 200 bodies would take minutes to import."""
    nodes = [loop(growing(), "n c x", "x_new"), node("Identity", "go", "go_out")]
    outer = loop(graph(nodes, "i go x", "go_out x_new"), "n c x", "y")
    given, weights = {"x": X, "w": F([7])}, {"n": I64(runs), "c": C}
    if runs == 3:
        (y,) = run([outer], given, "y", weights)
        np.testing.assert_array_equal(y, [*X, *[7] * 9])
    else:
        text = refused([outer], given, "y", weights)
        assert "sizes change from run to run, in 40,000 runs of loops in loops" in text


def test_a_wrong_number_of_body_inputs_is_refused():
    body = graph([node("Neg", "x", "x_out")], "i go x z", "go x_out")
    text = refused([loop(body, "n c x", "y")], {"n": np.array(1), "c": C, "x": X})
    assert "body takes 4 inputs, Loop gives it 3" in text


def test_damaged_bodies_are_refused():
    given = {"n": np.array(1), "c": C, "x": X}
    same = graph([node("Neg", "x", "x_out")], "i i x", "i x_out")
    assert "two inputs of body are named 'i'" in refused([loop(same, "n c x", "y")], given)
    short = graph([node("Neg", "x", "x_out")], "i go x", "go")
    text = refused([loop(short, "n c x", "y")], given)
    assert "body has 1 results, Loop needs at least 2" in text
    assert "needs the graph 'body'" in refused([node("Loop", "n c x", "y")], given)
    text = refused([node("Loop", "n c x", "y", body=1)], given)
    assert "attribute 'body' must be GRAPH, got INT" in text
    text = refused([node("If", "c", "y", then_branch=short, else_branch=short)], given)
    assert "body takes 3 inputs, If gives it 0" in text
    none = graph([], "", "")
    text = refused([node("If", "c", "y", then_branch=none, else_branch=none)], given)
    assert "has 0 results, If needs at least 1" in text
    text = refused([loop(same, "n c x _", "y")], given)
    assert "two inputs" in text or "left out" in text
    text = refused([node("Scan", "x", "y", body=summing(), num_scan_inputs=3)], {**given, "w": X})
    assert "num_scan_inputs is 3, the node has 1 inputs" in text


def test_what_a_body_cannot_do_is_told_with_the_node():
    body = graph([node("Nonsense", "x", "x_out", name="inner")], "i go x", "go x_out")
    text = refused([loop(body, "n c x", "y")], {"n": np.array(1), "c": C, "x": X})
    assert "Loop: Nonsense: no such op" in text
    body = graph([node("Add", "x gone", "x_out")], "i go x", "go x_out")
    assert "'gone'" in refused([loop(body, "n c x", "y")], {"n": np.array(1), "c": C, "x": X})


def summing():
    nodes = [node("Add", "s v", "t"), node("Mul", "t w", "row")]
    return graph(nodes, "s v", "t row")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("back", [0, 1])
def test_scan(axis, back):
    x = np.arange(12, dtype=F).reshape(4, 3)
    given = np.moveaxis(x, 0, axis).copy()
    nodes = [
        node(
            "Scan",
            "s x",
            "t rows",
            body=summing(),
            num_scan_inputs=1,
            scan_input_axes=[axis],
            scan_input_directions=[back],
            scan_output_directions=[back],
        )
    ]
    t, rows = run(nodes, {"s": F([0, 1, 2]), "x": given, "w": F(2)}, "t rows")
    ordered = x[::-1] if back else x
    sums = F([0, 1, 2]) + np.cumsum(ordered, 0)
    np.testing.assert_array_equal(t, sums[-1])
    np.testing.assert_array_equal(rows, 2 * (sums[::-1] if back else sums))


def test_scan_of_opset_8_has_a_batch_axis():
    x = np.arange(12, dtype=F).reshape(2, 3, 2)
    s = F([[0, 1], [5, 6]])
    nodes = [node("Scan", "_ s x", "t rows", body=summing(), num_scan_inputs=1)]
    t, rows = run(nodes, {"s": s, "x": x, "w": F([2, 3])}, "t rows", opset=8)
    sums = s[:, None] + np.cumsum(x, 1)
    np.testing.assert_array_equal(t, sums[:, -1])
    np.testing.assert_array_equal(rows, sums * F([2, 3]))
    nodes = [node("Scan", "lens s x", "t rows", body=summing(), num_scan_inputs=1)]
    lens = {"lens": I64([3, 2]), "w": F([2, 3])}
    assert "sequence_lens" in refused(nodes, {"s": s, "x": x}, "t rows", lens, opset=8)


def test_a_state_that_changes_its_type_is_refused():
    body = graph([node("Concat", "s v", "t", axis=0)], "s v", "t v")
    nodes = [node("Scan", "s x", "t rows", body=body, num_scan_inputs=1)]
    text = refused(nodes, {"s": X, "x": np.ones((4, 3), F)}, "t rows")
    assert "a step changes the state from f32[3] to f32[6]: not supported" in text


def test_export_and_import_give_the_same_graph():
    inner = loop(stacking(), "n _ x", "u rows")
    yes = graph([inner], "", "u")
    nodes = [node("If", "c", "y", then_branch=yes, else_branch=graph([], "", "x"))]
    g = load(nodes, {"c": C, "x": X, "w": X}, weights={"n": np.array(2)})
    assert difference(g, load_onnx(to_onnx(g).SerializeToString())) is None
