"""Random numbers: the cipher's published vectors, distributions, seeds, keys, passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

from minidlc.expr.types import bool_, f32, i64
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import Graph, Input, apply, interpret, parse, verify
from minidlc.graph.graph import results_of
from minidlc.ops.random_numbers import encrypt
from minidlc.support.errors import CompileError, OnnxExportError, OnnxImportError, TypeRuleError
from minidlc.tests.frontend.helpers import F, model, node
from minidlc.transform.block.fold_constants import FoldConstants
from minidlc.transform.dataflow.cse import Cse
from minidlc.transform.dataflow.dce import Dce
from minidlc.transform.draw_key import with_key

MANY = 1 << 16
SQRT = math.sqrt(MANY)
ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # kat_vectors of Random123, the authors' library: philox4x32 10
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_published_vectors(counter, key, words):
    got = encrypt(np.array(counter, np.uint32).reshape(4, 1), key)
    assert " ".join(f"{w:08x}" for w in got[:, 0]) == words


def draw(op, *inputs, **attributes):
    value = apply(op, *inputs, **attributes)
    return interpret(Graph.of("g", [], results_of(value)), [])[0]


def distance(sample, distribution):
    """Kolmogorov and Smirnov: the largest distance of the two distribution functions, times √n.

    Beyond 1.95 with a probability of 0.001; the draws of these tests are fixed.
    """
    x = np.sort(sample.astype(np.float64).reshape(-1))
    steps = np.arange(x.size + 1) / x.size
    wanted = distribution(x)
    return max((steps[1:] - wanted).max(), (wanted - steps[:-1]).max()) * math.sqrt(x.size)


@pytest.mark.parametrize("to", ["f32", "f64"])
@pytest.mark.parametrize("stream", [1, 2, 77])
def test_uniform_numbers_are_uniform(to, stream):
    x = draw("random_uniform", shape=(MANY,), to=to, low=-1.0, high=3.0, stream=stream)
    assert -1 <= x.min() < -0.999
    assert 2.999 < x.max() <= 3
    assert abs(x.mean() - 1) < 4 * 4 / math.sqrt(12) / SQRT
    assert abs(x.var() - 16 / 12) < 0.03
    assert distance(x, lambda v: (v + 1) / 4) < 1.95


@pytest.mark.parametrize("to", ["f32", "f64"])
@pytest.mark.parametrize("stream", [1, 2, 77])
def test_normal_numbers_are_normal(to, stream):
    x = draw("random_normal", shape=(MANY,), to=to, mean=2.0, scale=0.5, stream=stream)
    assert abs(x.mean() - 2) < 4 * 0.5 / SQRT
    assert abs(x.var() - 0.25) < 4 * 0.25 * math.sqrt(2) / SQRT
    erf = np.vectorize(math.erf)
    assert distance(x, lambda v: (1 + erf((v - 2) / 0.5 / math.sqrt(2))) / 2) < 1.95
    z = (x - 2) / 0.5
    assert abs((z**3).mean()) < 4 * math.sqrt(15) / SQRT
    assert abs((z[: MANY // 2] * z[MANY // 2 :]).mean()) < 4 / math.sqrt(MANY / 2)  # pairs


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.75])
def test_dropout_drops_its_share_and_scales_the_rest(ratio):
    x = Input("x", f32[MANY])
    g = Graph.of("g", [x], results_of(apply("dropout", x, ratio=ratio, stream=1)))
    given = np.linspace(1, 2, MANY, dtype=F)
    y, mask = interpret(g, [given])
    assert abs(mask.mean() - (1 - ratio)) < 4 * math.sqrt(ratio * (1 - ratio)) / SQRT
    np.testing.assert_allclose(y, np.where(mask, given / F(1 - ratio), 0), rtol=1e-6)
    neighbours = np.corrcoef(mask[:-1], mask[1:])[0, 1]
    assert abs(neighbours) < 4 / SQRT


def test_dropout_of_nothing_keeps_everything():
    x = Input("x", f32[9])
    g = Graph.of("g", [x], results_of(apply("dropout", x, ratio=0.0, stream=1)))
    given = np.arange(9, dtype=F)
    y, mask = interpret(g, [given])
    np.testing.assert_array_equal(y, given)
    assert mask.all()


def test_the_mask_of_a_recomputed_dropout_is_the_same():
    """FAULTS 105: what is computed twice, in another place, has one mask."""
    x = Input("x", f32[64])
    first = apply("dropout", x, ratio=0.5, stream=3)
    again = apply("dropout", apply("relu", x), ratio=0.5, stream=3)
    g = Graph.of("g", [x], [results_of(first)[1], results_of(again)[1]])
    one, two = interpret(g, [np.ones(64, F)])
    np.testing.assert_array_equal(one, two)


def normals(count, **attributes):
    nodes = [
        helper.make_node("RandomNormal", [], [f"y{n}"], f"n{n}", shape=[5], **attributes)
        for n in range(count)
    ]
    return load_onnx(model(nodes, {}, [f"y{n}" for n in range(count)]))


def test_two_nodes_without_a_seed_differ_after_cse():
    """FAULTS 103: equal attributes, no seed: two results."""
    g = Cse()(normals(2))
    assert len(g.nodes) == 2
    a, b = interpret(g, [])
    assert not np.array_equal(a, b)


def test_two_nodes_of_one_seed_are_the_same():
    g = normals(2, seed=3.0)
    a, b = interpret(g, [])
    np.testing.assert_array_equal(a, b)
    assert len(Cse()(g).nodes) == 1


def test_numbers_do_not_depend_on_the_order_of_execution():
    """FAULTS 108: three draws in any order are the same three."""
    g = normals(3)
    wanted = interpret(g, [])
    for order in ((2, 1, 0), (1, 2, 0), (0, 2, 1)):
        moved = Graph(g.name, (), tuple(g.nodes[n] for n in order), g.outputs)
        for a, b in zip(interpret(moved, []), wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_dce_drops_draws_and_folding_leaves_them():
    """FAULTS 106: a draw has no effect that somebody could miss."""
    g = normals(2)
    one = Graph(g.name, (), g.nodes, g.outputs[:1])
    assert len(Dce()(one).nodes) == 1
    assert FoldConstants()(g) is g
    x = Input("x", f32[5])
    body = Graph.of("body", [x], [apply("random_uniform", shape=(5,), stream=1)])
    region = apply("region", np.ones(5, F), body=body, backend="npu")
    held = Graph.of("g", [], [region])
    assert FoldConstants()(held) is held


def test_text_and_onnx_keep_seed_and_stream():
    g = normals(3)
    assert [n.op.attributes()["stream"] for n in g.nodes] == [1, 2, 3]
    assert parse(str(g)) == g
    assert load_onnx(to_onnx(g).SerializeToString()) == g
    for seed, kept in ((7.0, 7), (1.5, (1 << 32) + 0x3FC00000), (-1.0, (1 << 32) + 0xBF800000)):
        seeded = normals(1, seed=seed)
        assert seeded.nodes[0].op.attributes()["seed"] == kept
        assert load_onnx(to_onnx(seeded).SerializeToString()) == seeded


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"seed": 1, "stream": 1}, "a seed and a stream, of which ONNX has only the first"),
        ({"seed": 1 << 25}, "seed 33554432, as ONNX has f32 seeds"),
    ],
)
def test_what_onnx_cannot_say_is_refused(attributes, message):
    g = Graph.of("g", [], [apply("random_uniform", shape=(2,), **attributes)])
    with pytest.raises(OnnxExportError, match=message):
        to_onnx(g)


def test_onnx_runtime_draws_the_same_distribution():
    ort = pytest.importorskip("onnxruntime")
    drawn = apply("random_normal", shape=(MANY,), mean=-1.0, scale=3.0, stream=1)
    proto = to_onnx(Graph.of("g", [], [drawn]))
    (theirs,) = ort.InferenceSession(proto.SerializeToString()).run(None, {})
    (ours,) = interpret(load_onnx(proto.SerializeToString()), [])
    for x in (ours, theirs):
        assert abs(x.mean() + 1) < 5 * 3 / SQRT
        assert abs(x.std() - 3) < 5 * 3 / SQRT


def test_bernoulli_and_multinomial():
    p = np.full((MANY,), 0.3, F)
    got = interpret(load_onnx(model([node("Bernoulli", "x", "y")], {"x": p})), [p])[0]
    assert set(np.unique(got)) == {0, 1}
    assert abs(got.mean() - 0.3) < 4 * math.sqrt(0.21) / SQRT
    weights = np.array([[0.1, 0.0, 0.6, 0.3], [0, 0, 1, 0]], F)
    x = np.where(weights > 0, np.log(weights + 1e-30), -np.inf).astype(F) + F(2)
    g = load_onnx(model([node("Multinomial", "x", "y", sample_size=20000)], {"x": x}))
    got = interpret(g, [x])[0]
    share = [np.bincount(row, minlength=4) / 20000 for row in got]
    np.testing.assert_allclose(share, weights, atol=4 * 0.5 / math.sqrt(20000))
    assert not share[0][1]
    assert (got[1] == 2).all()


def test_a_draw_in_a_loop_is_taken_run_by_run_or_refused():
    zero = helper.make_node("RandomNormal", [], ["r"], "r", shape=[2])
    keep = node("Identity", "c", "c2")
    infos = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", 7), ("c", 9))]
    outs = [helper.make_tensor_value_info("c2", 9, []), helper.make_tensor_value_info("r", 1, [2])]
    body = helper.make_graph([zero, keep], "body", infos, outs)
    loop = node("Loop", "m c0", "rows", body=body)
    start = {"c0": np.array(True)}
    g = load_onnx(model([loop], {}, "rows", {"m": np.array(3), **start}))
    (rows,) = interpret(g, [])
    assert len(np.unique(rows)) == 6
    many = model([loop], {}, "rows", {"m": np.array(1000), **start})
    with pytest.raises(OnnxImportError, match="random numbers in the body of a loop") as caught:
        load_onnx(many)
    assert "a loop of a known number of runs is taken run by run" in str(caught.value)


def test_keys_give_fresh_numbers():
    x = Input("x", f32[7])
    noisy = apply("add", x, apply("random_normal", shape=(7,), stream=1))
    g = Graph.of("g", [x], [noisy, *results_of(apply("dropout", noisy, stream=2))])
    keyed = with_key(g)
    verify(keyed)
    assert [i.type for i in keyed.inputs] == [f32[7], i64[()]]
    assert with_key(keyed) is keyed
    given = np.zeros(7, F)
    one, again, two = (interpret(keyed, [given, np.array(k)]) for k in (1, 1, 2))
    for a, b, c in zip(one, again, two, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
    same = interpret(keyed, [given, np.array(0)])
    for a, b in zip(same, interpret(g, [given]), strict=True):
        np.testing.assert_array_equal(a, b)  # no key is the key 0


def test_a_key_reaches_bodies():
    def branch(name, draws):
        x = Input("x", f32[3])
        y = apply("random_uniform", shape=(3,), stream=1) if draws else apply("relu", x)
        return Graph.of(name, [x], [y])

    p, x = Input("p", apply("less", Input("a", f32[()]), 0.0).type), Input("x", f32[3])
    made = {"then_branch": branch("yes", True), "else_branch": branch("no", False)}
    g = with_key(Graph.of("g", [p, x], [apply("if_", p, x, **made)]))
    verify(g)
    given = np.array(True), np.ones(3, F)
    one, two = (interpret(g, [*given, np.array(k)])[0] for k in (1, 2))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(interpret(g, [np.array(False), *given[1:], np.array(1)])[0], 1)


@pytest.mark.parametrize("kind", ["loop", "scan"])
def test_a_key_reaches_loops(kind):
    s, row = Input("s", f32[3]), Input("row", f32[3])
    total = apply("add", s, apply("add", row, apply("random_uniform", shape=(3,), stream=1)))
    if kind == "loop":
        i, c = Input("i", i64[()]), Input("c", bool_[()])
        body = Graph.of("body", [i, c, s, row], [c, total])
        attributes, front = {"carried": 1, "scanned": 1, "trips": 2}, (None, None)
    else:
        body = Graph.of("body", [s, row], [total])
        attributes, front = {"states": 1, "scanned": 1}, ()
    start, rows = Input("start", f32[3]), Input("rows", f32[2, 3])
    node = apply(kind, *front, start, rows, body=body, **attributes)
    g = with_key(Graph.of("g", [start, rows], [node]))
    verify(g)
    given = np.zeros(3, F), np.ones((2, 3), F)
    one, again, two = (interpret(g, [*given, np.array(k)])[0] for k in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, two)
    assert (one >= 2).all()
    assert (one < 4).all()


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("random_normal", {"seed": -1}, r"seed must be from 0 to 2\*\*64 - 1, got -1"),
        ("random_normal", {"stream": 1 << 32}, r"stream must be from 0 to 2\*\*32 - 1"),
        ("random_normal", {"to": "i32"}, "the numbers are floats, not i32"),
        ("random_uniform", {"shape": (2, -1)}, r"sizes must not be negative, got \(2, -1\)"),
        ("philox", {"blocks": -1}, r"blocks must be from 0 to 2\*\*32 - 1, got -1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(op, attributes, message):
    with pytest.raises(TypeRuleError, match=message):
        apply(op, **attributes)


def test_bad_dropouts_and_keys_are_refused():
    x = Input("x", f32[3])
    with pytest.raises(TypeRuleError, match="ratio must be 0 or more and less than 1"):
        apply("dropout", x, ratio=1.0)
    with pytest.raises(TypeRuleError, match=r"the key must be i64\[\(\)\], got f32\[3\]"):
        apply("random_normal", x, shape=(2,))
    with pytest.raises(CompileError, match="attribute 'high' must be finite, got inf"):
        verify(Graph.of("g", [], [apply("random_uniform", shape=(2,), high=math.inf)]))


@pytest.mark.llvm
@pytest.mark.parametrize("precision", ["default", "strict"])
def test_machine_code_draws_the_bits_of_the_interpreter(precision):
    """Integers all the way to the unit interval: the same bits, on every machine."""
    from minidlc.driver import compile

    x = Input("x", f32[100])
    plain = apply("random_uniform", shape=(7, 5), stream=1)
    bounds = apply("random_uniform", shape=(1000,), stream=2, low=-0.3, high=1.1)
    normal = apply("random_normal", shape=(1000,), stream=3)
    y, mask = results_of(apply("dropout", x, ratio=0.3, stream=4))
    g = with_key(Graph.of("g", [x], [plain, mask, y, bounds, normal]))
    given = np.linspace(-1, 1, 100, dtype=F), np.array(-12345678901)
    wanted, got = interpret(g, given), compile(g, precision=precision)(*given)
    exact = 4 if precision == "strict" else 3
    for a, b in zip(got[:exact], wanted[:exact], strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.llvm
def test_two_calls_give_the_same_numbers():
    from minidlc.driver import compile

    exe = compile(normals(1))
    np.testing.assert_array_equal(exe()[0], exe()[0])
