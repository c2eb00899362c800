"""The pipeline: order, editing, checks after each pass, records, text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32
from minidlc.graph import Constant, Graph, Input, apply, interpret, parse
from minidlc.support import extension
from minidlc.support.errors import CompileError, OptionError, PassError, VerifyError
from minidlc.target import Target
from minidlc.tests.graph.graphs import feeds, graphs
from minidlc.transform import (
    Canonicalize,
    Cse,
    Dce,
    Fuse,
    Layout,
    Pass,
    Pipeline,
    Rule,
    graph_pass,
    parse_pipeline,
    register_pass,
    registered_passes,
    rewrite,
    rules_of,
    unregister_pass,
)

pytestmark = pytest.mark.ch02

G = parse("""\
def f(x: f32[2, 4], w: f32[4, 4], b: f32[4]):
    m = gemm(x, w, b)
    c: f32[()] = const(1.0)
    d = mul(c, m)
    e = exp(m)
    r = relu(d)
    return r
""")


def test_default_orders() -> None:
    cleanup = ("canonicalize", "fold_constants", "cse", "dce")
    assert Pipeline.default(0).names == ("decompose",)
    assert Pipeline.default(1).names == ("decompose", "fold_constants", *cleanup)
    moves = ("eliminate_zero_size", "hoist", "hoist_invariants", "sink")
    late = ("recognise", "fold_conv_bn", "layout", "fuse")
    all_of_them = ("decompose", "fold_constants", *moves, *cleanup, *late)
    assert Pipeline.default(2).names == Pipeline.default().names == all_of_them
    with pytest.raises(OptionError, match="opt_level must be 0, 1, 2 or 3, got 4") as caught:
        Pipeline.default(4)
    assert caught.value.code == "MDLC1013"


def test_a_target_says_what_passes_may_do() -> None:
    target = Target("x86_64", "generic", "", vector_bits=512)
    assert Layout(block=16) in Pipeline.default(3, target).passes
    fast = Pipeline.default(1, replace(target, precision="fast"))
    assert Canonicalize("fast") in fast.passes
    strict = Pipeline.default(3, replace(target, precision="strict"))
    assert strict == Pipeline.default().without("recognise", "fold_conv_bn", "layout")


def test_run_gives_the_graph_and_a_record_of_each_pass() -> None:
    after, records = Pipeline.default().run(G)
    assert [n.op.name for n in after.nodes] == ["fused"]
    assert [r.name for r in records] == list(Pipeline.default().names)
    assert records[0].before is G
    assert records[-1].after is after
    assert all(a.after is b.before for a, b in pairwise(records))
    first = records[0]
    assert (first.nodes_before, first.nodes_after, first.changed) == (4, 5, True)
    assert first.seconds >= 0
    assert "gemm" in first.text_before
    assert "gemm" not in first.text_after
    (canonical,) = (r for r in records if r.name == "canonicalize")
    assert [r.rule for r in canonical.rewrites] == ["mul-constant-right", "mul-one"]
    assert (
        str(records[-1].fusion[0])
        == "matmul -> m: fused: add follows matmul (64 bytes saved, 0 FLOPs repeated)"
    )
    assert not records[1].changed
    again, _ = Pipeline.default()(G)
    assert again == after


@pytest.mark.long
@given(graphs(max_nodes=12))
def test_random_graphs_keep_their_numbers(g: Graph) -> None:
    inputs = feeds(g)
    expected = interpret(g, inputs)
    for pipeline in (Pipeline.default(), Pipeline.default(0), Pipeline.default().only("fuse")):
        after, _ = pipeline.run(g)
        for a, b in zip(expected, interpret(after, inputs), strict=True):
            assert np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("name", sorted({*Pipeline.default().names} - {"decompose"}))
def test_each_optional_pass_alone_and_left_out(name: str) -> None:
    inputs = feeds(G)
    for pipeline in (Pipeline.default().only(name), Pipeline.default().without(name)):
        after, _ = pipeline.run(G)
        assert np.allclose(interpret(after, inputs), interpret(G, inputs), equal_nan=True)


def unchanged(g: Graph) -> Graph:
    return g


def test_editing_gives_new_pipelines() -> None:
    p = Pipeline((Cse(), Dce(), Cse(), Fuse()))
    assert p.replace("cse", unchanged).names == ("cse", "dce", "cse", "fuse")
    assert p.replace("cse", unchanged).passes[2] != Cse()
    assert p.without("cse", "fuse").names == ("dce",)
    assert p.insert_after("cse", unchanged).names == ("cse", "dce", "cse", "unchanged", "fuse")
    assert p.insert_before("cse", unchanged).names[0] == "unchanged"
    assert p.insert_after("fuse", Dce()).names[-1] == "dce"
    assert p.only("dce").names == ("dce",)
    assert Pipeline.default().only().names == ("decompose",)
    assert p.names == ("cse", "dce", "cse", "fuse")


def test_unknown_and_mandatory_names() -> None:
    p = Pipeline.default()
    for edit in (
        lambda: p.without("fold"),
        lambda: p.replace("fold", unchanged),
        lambda: p.insert_after("fold", unchanged),
        lambda: p.insert_before("fold", unchanged),
        lambda: p.only("fold"),
    ):
        with pytest.raises(OptionError, match="no pass 'fold' in the pipeline") as caught:
            edit()
        assert caught.value.code == "MDLC1011"
        assert "fold_constants" in str(caught.value)
    with pytest.raises(OptionError, match="'decompose' is mandatory") as caught:
        p.without("decompose")
    assert caught.value.code == "MDLC1014"


@pytest.mark.parametrize(
    "text",
    ["", "cse", "canonicalize,cse,fuse{max_ops=8}", "decompose,fold_constants{max_bytes=64},dce",
     'canonicalize{rules="mine"}'],
)  # fmt: skip
def test_text_round_trip(text: str) -> None:
    assert str(parse_pipeline(text)) == text
    assert parse_pipeline(f"  {text.replace(',', ' , ')}  ") == parse_pipeline(text)
    assert parse_pipeline(str(Pipeline.default())) == Pipeline.default()


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("csee", "1011", "did you mean 'cse'?"),
        ("cse,,dce", "1015", "not a list of passes"),
        ("cse dce", "1015", "not a list of passes"),
        ("fuse{max_ops=8", "1015", "not a list of passes"),
        ("fuse{max_op=8}", "1015", "did you mean 'max_ops'?"),
        ("cse{max_ops=8}", "1015", "known: limit"),
        ("fuse{max_ops=many}", "1015", "unknown function 'many'"),
        ("fuse{max_ops=2.5}", "1015", "option 'max_ops': expected int"),
        ("fuse{max_ops=True}", "1015", "option 'max_ops': expected int"),
        ("fuse{8}", "1015", "name=value"),
        ("fuse{**x}", "1015", "no option None"),
        ("fuse{)}", "1015", "not Python syntax"),
        ("fuse{max_ops=1, max_ops=2}", "1015", "given twice"),
    ],
)
def test_malformed_text(text: str, code: str, part: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_pipeline(text)
    assert caught.value.code == f"MDLC{code}"
    assert part in str(caught.value)


def broken(g: Graph) -> Graph:
    return Graph(g.name, g.inputs, g.nodes[1:], g.outputs)


def test_a_pass_that_breaks_the_graph_is_named_with_the_last_good_graph() -> None:
    with pytest.raises(PassError) as caught:
        Pipeline.default().replace("cse", broken).run(G)
    e = caught.value
    assert e.code == "MDLC0501"
    assert e.message == "pass 'cse': 'm' reads 'matmul', which is not in the graph"
    assert "rule MDLC0404" in e.notes
    before = Pipeline.default().names[: Pipeline.default().names.index("cse")]
    assert f"passes before it: {', '.join(before)}" in e.notes
    assert "def f(x: f32[2, 4], w: f32[4, 4], b: f32[4]):" in e.notes[-2]
    assert "<text>:2:9" in str(e)


def test_two_right_rules_that_leave_a_dangling_input_are_caught() -> None:
    """FAULTS 95: a same-type cast feeding a mul by 1, next to a div."""
    g = parse("""\
def f(x: f32[4], y: f32[4]):
    a = cast(x, to=f32)
    c: f32[()] = const(1.0)
    m = mul(a, c)
    d = div(a, y)
    s = add(m, d)
    return s
""")
    after, records = Pipeline.default().run(g)
    (canonical,) = (r for r in records if r.name == "canonicalize")
    assert [n.op.name for n in canonical.after.nodes] == ["div", "add"]
    assert str(canonical.after).count("(x") == 3
    inputs = feeds(g)
    assert np.array_equal(interpret(after, inputs), interpret(g, inputs), equal_nan=True)

    def forgets_a_reader(g: Graph) -> Graph:
        _, mul, div, add = g.nodes
        mul = replace(mul, inputs=(g.inputs[0], mul.inputs[1]))
        add = replace(add, inputs=(mul, div))
        return Graph(g.name, g.inputs, (mul, div, add), (add,))

    with pytest.raises(PassError, match="pass 'canonicalize': 'd' reads 'a'") as caught:
        Pipeline.default().replace("canonicalize", forgets_a_reader).run(g)
    assert "MDLC0404" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (lambda g: None, "returned None, not a graph"),
        (lambda g: Graph(g.name, g.inputs[:2], g.nodes, g.outputs), "changed the inputs"),
        (lambda g: Graph(g.name, g.inputs, g.nodes, ()), "changed the outputs"),
        (lambda g: Graph(g.name, g.inputs, g.nodes, g.inputs[:1] + g.outputs), "changed the out"),
        (lambda g: Graph(g.name, tuple(replace(i, name=i.name + "_") for i in g.inputs), (),
                         g.inputs[:1]), "changed the inputs"),
    ],
)  # fmt: skip
def test_a_pass_that_changes_the_interface(wrong: object, part: str) -> None:
    with pytest.raises(PassError) as caught:
        Pipeline((graph_pass("wrong")(wrong),)).run(G)  # pyright: ignore
    assert caught.value.code == "MDLC0502"
    assert part in str(caught.value)


def test_a_pass_that_raises() -> None:
    def fails(g: Graph) -> Graph:
        raise IndexError("list index out of range")

    with pytest.raises(PassError, match="pass 'fails' failed: IndexError: list index") as caught:
        Pipeline.default().insert_before("dce", fails).run(G)
    assert caught.value.code == "MDLC0507"
    assert isinstance(caught.value.__cause__, IndexError)


def test_requires_and_ensures_are_checked() -> None:
    with pytest.raises(PassError, match="pass 'fuse': requires 'decomposed'") as caught:
        Pipeline((Fuse(),)).run(G)
    assert caught.value.code == "MDLC0502"
    with pytest.raises(PassError, match="pass 'fold_conv_bn': requires"):
        Pipeline.default().replace("decompose", unchanged).run(G)
    dead = apply("exp", G.inputs[0])
    added = {"pass.dce": lambda g: Graph(g.name, g.inputs, (*g.nodes, dead), g.outputs)}
    with (
        extension.use(**added),
        pytest.raises(PassError, match="pass 'dce': ensures 'no_dead_code', which does not hold"),
    ):
        Pipeline((Dce(),)).run(G)


def test_a_graph_that_is_not_valid_is_refused_at_the_start() -> None:
    x = Input("x", f32[2])
    with pytest.raises(VerifyError):
        Pipeline(()).run(Graph("f", (), (), (x,)))


def test_passes_and_the_verifier_are_extension_points() -> None:
    def mine(g: Graph) -> Graph:
        return Cse()(g)  # inside, `pass.cse` means the original

    with (
        extension.counting() as calls,
        extension.use(**{"pass.cse": mine, "verify": lambda g: None}),
    ):
        after, _ = Pipeline.default().run(G)
    assert calls == {"pass.cse": 1, "verify": 1 + len(Pipeline.default().passes)}
    assert after == Pipeline.default().run(G)[0]
    with pytest.raises(OptionError, match=r"unknown extension point 'pass\.cze'") as caught:
        extension.use(**{"pass.cze": mine}).__enter__()
    assert caught.value.hint is not None


@pytest.fixture
def registered() -> Iterator[None]:
    @register_pass
    @dataclass(frozen=True)
    class Twice(Pass):
        name = "twice"
        times: int = 2
        ratio: float | None = None

        def run(self, graph: Graph) -> Graph:
            return graph

    yield
    unregister_pass("twice")


def test_registered_passes_are_known_everywhere(registered: None) -> None:
    assert "twice" in registered_passes()
    text = "twice{times=3, ratio=1.0}"
    assert str(parse_pipeline("twice{times=3, ratio=1}")) == text
    assert str(parse_pipeline("twice{times=2}")) == "twice"
    with extension.use(**{"pass.twice": unchanged}):
        Pipeline(parse_pipeline(text).passes).run(G)
    with pytest.raises(OptionError, match="registered twice"):

        @register_pass
        @dataclass(frozen=True)
        class Other(Pass):
            name = "twice"

            def run(self, graph: Graph) -> Graph:
                return graph


def test_a_function_becomes_a_pass() -> None:
    @graph_pass("exp_to_relu")
    def exp_to_relu(graph: Graph) -> Graph:
        """exp is relu, for a test."""
        return rewrite(graph, [Rule("r", lambda x: apply("exp", x), lambda x: apply("relu", x))])

    assert (exp_to_relu.name, exp_to_relu.mandatory, str(exp_to_relu)) == (
        "exp_to_relu", False, "exp_to_relu",
    )  # fmt: skip
    x = Input("x", f32[2])
    g = Graph.of("f", [x], [apply("exp", x)])
    assert exp_to_relu(g).nodes[0].op.name == "relu"
    assert Pipeline((exp_to_relu,)).run(g)[1][0].rewrites[0].rule == "r"


def test_the_message_of_a_large_graph_is_cut() -> None:
    x = Input("x", f32[2])
    y = x
    for _ in range(200):
        y = apply("relu", y)
    with pytest.raises(PassError) as caught:
        Pipeline((graph_pass("broken")(broken),)).run(Graph.of("f", [x], [y]))
    assert "… 142 more lines" in str(caught.value)
    assert isinstance(caught.value, CompileError)


def test_rules_of_lists_the_set() -> None:
    assert len(rules_of("canonicalize")) > 20
    assert Constant("c", np.zeros(2, np.float32)).type == f32[2]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("layout{block=0}", "block must be at least 1"),
        ("fuse{max_ops=-3}", "max_ops must be at least 0, got -3"),
        ("fold_constants{max_bytes=-1}", "max_bytes must be at least 0"),
        ("saturate{max_nodes=-1}", "max_nodes must be at least 0"),
        ('sink{kinds=("nope",)}', "unknown kind 'nope'"),
        ('canonicalize{rules="nope"}', "unknown rule set 'nope'"),
    ],
)
def test_an_option_that_no_pass_can_take_is_the_askers_fault(text: str, part: str) -> None:
    with pytest.raises(OptionError) as caught:
        Pipeline((*Pipeline.default(0).passes, *parse_pipeline(text).passes)).run(G)
    assert part in str(caught.value)
    assert "last good graph" not in str(caught.value)
