"""`where_to` and `where_from`: from an ONNX node down to LLVM lines, and back."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import minidlc as mc
import minidlc.frontend
from minidlc.benchmarks.models import MODELS
from minidlc.codegen.llvm import line_origins
from minidlc.expr.types import bool_, f32
from minidlc.graph import Constant, Graph, Input, apply
from minidlc.loop.nodes import Block, For, LoopFunction, Store, walk
from minidlc.support.errors import OptionError
from minidlc.support.locations import Derived, OnnxLoc, steps, written
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.llvm
F = np.float32
FOLDER = Path(minidlc.frontend.__file__).parents[1] / "models"
COMPUTES = re.compile(r"= (f\w+|load|call|mul|add|sub|getelementptr|select|icmp|phi) |^  store ")


def lenet() -> onnx.ModelProto:
    return MODELS["lenet"]()[0]


def mnist() -> onnx.ModelProto:
    return onnx.load(FOLDER / "mnist_cntk.onnx")


def normalized() -> onnx.ModelProto:
    """A composite op with statistics to fold, two transposes that are one, the same exp twice."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype(F)}
    weights |= {n: rng.uniform(0.5, 2, 4).astype(F) for n in ("scale", "b", "mean", "var")}
    nodes = [
        node("Conv", "x w", "t", name="Conv_3", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "t scale b mean var", "u", name="BN_4"),
        node("Exp", "u", "p", name="first"),
        node("Exp", "u", "q", name="second"),
        node("Add", "p q", "r", name="Add_7"),
        node("Transpose", "r", "s", name="T_8", perm=[0, 2, 3, 1]),
        node("Transpose", "s", "y", name="T_9", perm=[0, 3, 2, 1]),
    ]
    return model(nodes, {"x": np.zeros((1, 3, 8, 8), F)}, weights=weights)


@pytest.fixture(scope="module")
def bn() -> mc.Executable:
    return mc.compile(normalized(), threads=1)


@pytest.mark.parametrize("build", [lenet, mnist, normalized])
@pytest.mark.parametrize("opt_level", [0, 3])
def test_every_node_and_every_instruction_is_accounted_for(build: object, opt_level: int) -> None:
    proto = build()  # type: ignore[operator]
    exe = mc.compile(proto, threads=2, opt_level=opt_level)
    for one in proto.graph.node:
        found = exe.where_to(one.name or one.output[0])
        assert found.parts or found.values or found.events, one.name
        assert {p.node for p in found.places if isinstance(p, OnnxLoc)} == {one.name}
    nodes = {n.name for n in proto.graph.node}
    for kernel in exe.kernels:
        for line, text in enumerate(kernel.llvm.split("\n"), 1):
            if COMPUTES.search(text):
                origin = exe.where_from(f"{kernel.name}:{line}")
                assert origin.statement is not None, text
                assert {p.node for p in origin.places if isinstance(p, OnnxLoc)} & nodes, text


@pytest.mark.parametrize("build", [lenet, normalized])
def test_there_and_back(build: object) -> None:
    """Every line that `where_to` gives for a node leads back to it."""
    proto = build()  # type: ignore[operator]
    exe = mc.compile(proto, threads=1)
    for one in proto.graph.node:
        for part in exe.where_to(one.name).parts:
            if part.inlined or len(part.llvm_lines) == 0:
                continue
            stages: set[str | None] = set()
            for first, last in part.llvm_lines:
                for line in range(first, last + 1):
                    stages.add(exe.where_from(f"{part.kernel}:{line}").stage)
            assert set(part.stages) <= stages


def test_an_fma_of_a_conv(bn: mc.Executable) -> None:
    kernel = next(k for k in bn.kernels if "conv" in k.graph)
    lines = kernel.llvm.split("\n")
    line = next(n for n, text in enumerate(lines, 1) if "fmul" in text or "fma" in text)
    origin = bn.where_from(f"{kernel.name}:{line}")
    assert origin.instruction == lines[line - 1].strip()
    assert origin.stage == "conv"
    assert origin.statement is not None
    assert origin.statement.startswith("conv_c[")  # the sums, in registers
    assert origin.loops[-1].startswith("for ")
    assert origin.node is not None
    assert origin.node.op.name == "conv"
    places = ("Conv_3", "Conv"), ("BN_4", "BatchNormalization")  # its weights hold both
    assert set(origin.places) == {OnnxLoc("test", *place) for place in places}
    text = str(origin)
    assert "stage    conv" in text
    assert "from     test: node 'Conv_3' (Conv)" in text


def test_a_batch_norm_in_the_weights_of_a_conv_leads_to_the_conv(bn: mc.Executable) -> None:
    found = bn.where_to("BN_4")
    assert {p.node.op.name for p in found.parts} == {"conv"}
    assert "fold_conv_bn: fold sub, mul, add into conv at u: done" in found.events


def test_a_composite_op_is_several_stages_and_constants() -> None:
    passes = mc.Pipeline.default().without("fold_conv_bn")
    found = mc.compile(normalized(), threads=2, pipeline=passes).where_to("BN_4")
    assert [p.node.op.name for p in found.parts] == ["sub", "mul", "add"]
    assert all(p.inlined and not p.stages and p.llvm_lines for p in found.parts)
    assert found.events[0] == "decompose: decompose batch_norm at u: done"
    assert "fold_constants: fold at sqrt: done" in found.events
    assert found.values


def test_nodes_that_a_rule_made_one_lead_to_the_same_lines(bn: mc.Executable) -> None:
    first, second = bn.where_to("T_8"), bn.where_to("T_9")
    assert first.parts == second.parts
    assert [p.node.op.name for p in first.parts] == ["transpose"]
    (part,) = first.parts
    origin = bn.where_from(f"{part.kernel}:{part.llvm_lines[0][0]}")
    assert {p.node for p in origin.places if isinstance(p, OnnxLoc)} >= {"T_8", "T_9"}
    assert "sink" in str(origin)


def test_a_node_that_is_merged_says_with_what(bn: mc.Executable) -> None:
    gone = bn.where_to("second")
    assert gone.parts == ()
    (event,) = [e for e in gone.events if e.startswith("cse")]
    assert event == "cse: same as p at q: done"
    assert bn.where_to("first").parts
    assert str(gone).splitlines()[1] == "  cse: same as p at q: done"


def test_views_and_constants_have_no_kernel() -> None:
    nodes = [
        node("Transpose", "w", "wt", name="T"),
        node("Reshape", "x shape", "r", name="R"),
        node("MatMul", "r wt", "y", name="M"),
    ]
    weights = {"w": np.ones((4, 6), F), "shape": np.array([2, 6])}
    exe = mc.compile(model(nodes, {"x": np.zeros((3, 4), F)}, weights=weights))
    folded, view = exe.where_to("T"), exe.where_to("R")
    assert (folded.parts, view.parts) == ((), ())
    assert folded.events == ("fold_constants: fold at wt: done",)
    assert folded.values == ("constant wt: f32[6, 4]",)
    assert view.values == ("view r: f32[2, 6] = reshape, the same bytes",)
    (part,) = exe.where_to("M").parts
    assert "matmul" in part.stages
    assert exe.where_to("w").values == ("constant wt: f32[6, 4]",)


def test_graphs_that_are_no_models_lead_to_their_own_lines() -> None:
    x = Input("x", f32[4])
    y = apply("exp", x)
    exe = mc.compile(Graph.of("g", [x], [apply("relu", y) + Constant("c", np.ones(4, F))]))
    (part,) = exe.where_to("exp").parts
    assert part.node.op.name == "exp"
    line = part.llvm_lines[0][0]
    (place, *_) = exe.where_from(f"{part.kernel}:{line}").places
    assert str(place).startswith(__file__)


def test_by_the_text_of_an_instruction(bn: mc.Executable) -> None:
    kernel = bn.kernels[-1]
    lines = [line.strip() for line in kernel.llvm.split("\n")]
    text = next(t for t in lines if lines.count(t) == 1 and t.startswith("store"))
    everywhere = [k for k in bn.kernels if text in map(str.strip, k.llvm.split("\n"))]
    if len(everywhere) == 1:
        assert bn.where_from(f"  {text}").kernel == kernel.name
    with pytest.raises(OptionError, match=r"\d+ lines are 'ret void'") as caught:
        mc.compile(lenet()).where_from("ret void")
    assert caught.value.code == "MDLC1032"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("say which: ")


def test_what_frames_a_function_comes_from_no_statement(bn: mc.Executable) -> None:
    origin = bn.where_from(f"{bn.kernels[0].name}:1")
    assert (origin.statement, origin.places) == (None, ())
    assert "of no statement" in str(origin)


@pytest.mark.parametrize(
    ("instruction", "code", "message", "hint"),
    [
        ("nothing like it", "MDLC1032", "no such instruction", "a line of exe.kernels[0].llvm"),
        ("y:0", "MDLC1032", "y has no line 0", "lines 1 to"),
        ("y:99999", "MDLC1032", "y has no line 99999", "lines 1 to"),
        ("yy:1", "MDLC1007", "no kernel 'yy'", "did you mean 'y'?"),
    ],
)
def test_refusals(instruction: str, code: str, message: str, hint: str) -> None:
    x = Input("x", f32[4])
    exe = mc.compile(Graph.of("g", [x], [apply("relu", x)]), opt_level=0)
    name = exe.kernels[0].name
    with pytest.raises(OptionError) as caught:
        exe.where_from(re.sub(r"^y(?=:)", name, instruction).replace("yy:", f"{name}y:"))
    assert caught.value.code == code
    assert caught.value.message.replace(name, "y") == message
    assert hint.replace("'y'", repr(name)) in (caught.value.hint or "")


def test_a_node_that_is_not_there(bn: mc.Executable) -> None:
    with pytest.raises(OptionError, match="no node 'Conv_4'") as caught:
        bn.where_to("Conv_4")
    assert caught.value.code == "MDLC1031"
    assert caught.value.hint == "did you mean 'Conv_3'?"
    assert caught.value.notes == (
        "what is known at import, and what no output needs, is not in the graph",
    )


def test_marks_change_nothing_but_the_ends_of_lines(bn: mc.Executable) -> None:
    """The text with origins is the text that was compiled, in every thread's function too."""
    for threads in (1, 4):
        exe = mc.compile(normalized(), threads=threads)
        for kernel in exe.kernels:
            text, origins = line_origins(kernel.loops, kernel.native.target, kernel.native.symbol)
            assert text == kernel.llvm
            assert len(origins) == len(text.split("\n"))


def test_a_replaced_code_generator_leaves_no_origins() -> None:
    x = Input("x", f32[4])
    g = Graph.of("g", [x], [apply("relu", x)])
    plain = mc.compile(g).kernels[0]
    assert any(s is not None for s in plain.native.origins)

    def mine(fn: LoopFunction, target: mc.target.Target, symbol: str) -> str:
        return "; mine\n" + plain.llvm.replace(plain.native.symbol, symbol)

    with mc.use(emit=mine):
        exe = mc.compile(g)
    assert exe.kernels[0].llvm.startswith("; mine")
    assert exe.where_from(f"{exe.kernels[0].name}:5").statement is None


def test_lines_of_the_loops(bn: mc.Executable) -> None:
    """A part's loop lines hold exactly what its stages store, in the printed text."""
    for kernel in bn.kernels:
        text = str(kernel.loops).splitlines()
        for s in walk(kernel.loops.body):
            if isinstance(s, (Store, For)) and not isinstance(s, Block):
                line = text[kernel.provenance.line_of[id(s)] - 1].strip()
                assert line.startswith(f"{s.buffer}[" if isinstance(s, Store) else "for ")


def test_places_behind_what_the_compiler_made() -> None:
    a, b = OnnxLoc("m", "a"), OnnxLoc("m", "b")
    made = Derived("fuse", Derived("rule r", a, (b,)))
    assert written(made) == (a, b)
    assert written(made, b, None) == (a, b)
    assert steps(made) == ("rule r", "fuse")
    assert (written(None), steps(a)) == ((), ())


def test_loops_that_an_op_writes_itself() -> None:
    x = Input("x", f32[3, 4])
    exe = mc.compile(Graph.of("g", [x], [apply("cumsum", x, axis=1)]), threads=1)
    (part,) = exe.where_to("cumsum").parts
    assert (part.stages, part.inlined) == ((), ())
    assert "cumsum, loops that the op writes itself; loops lines 2-" in str(part)
    for first, last in part.llvm_lines:
        for line in (first, last):
            origin = exe.where_from(f"{part.kernel}:{line}")
            assert origin.node is not None
            assert origin.node.op.name == "cumsum"


def test_a_node_inside_a_branch() -> None:
    c, x = Input("c", bool_[()]), Input("x", f32[3])
    a, b = Input("a", f32[3]), Input("b", f32[3])
    yes = Graph.of("yes", [a], [apply("exp", a)])
    no = Graph.of("no", [b], [apply("tanh", b)])
    y = apply("if_", c, x, then_branch=yes, else_branch=no)
    exe = mc.compile(Graph.of("g", [c, x], [y]), threads=1)
    (part,) = exe.where_to("tanh").parts
    assert part.node.op.name == "tanh"
    assert exe.where_to("if_").values == ("if_ if_: steps of the program",)


def test_a_model_of_open_sizes_answers_for_what_it_compiled_last() -> None:
    x = Input("x", f32["N", 4])
    exe = mc.compile(Graph.of("g", [x], [apply("exp", x)]), threads=1)
    with pytest.raises(OptionError) as caught:
        exe.where_to("exp")
    assert caught.value.code == "MDLC1027"
    exe(np.zeros((3, 4), F))
    (part,) = exe.where_to("exp").parts
    assert part.node.type == f32[3, 4]
    assert "f32[3, 4]" in str(exe.module)
