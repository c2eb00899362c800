"""explain: the story of one op, from its place in the model to the bytes of its kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

import minidlc as mc
from minidlc.support.errors import OptionError

pytestmark = [pytest.mark.llvm, pytest.mark.ch02]

MODEL = Path(mc.__file__).parent / "models" / "mnist_cntk.onnx"


@pytest.fixture(scope="module")
def exe() -> mc.Executable:
    return mc.compile(MODEL, threads=1, target=mc.target.host(vector_width=8))


def test_an_op_that_was_folded_into_another(exe: mc.Executable) -> None:
    """A bias: folded into the convolution, in blocks, fused with the relu behind it."""
    found = mc.debug.explain(exe, "Plus112")
    assert found.of("from") == ("mnist_cntk.onnx: node 'Plus112' (Add)",)
    [line] = found.of("import")
    assert line.startswith("Plus112_Output_0: f32[1, 16, 14, 14] = add(")
    assert line.endswith("12,544 bytes")
    fold = found.of("fold_conv_bn")
    assert fold[0] == "fold add into conv at Plus112_Output_0: done"
    assert fold[1].startswith("now: Plus112_Output_0: f32[1, 16, 14, 14] = conv(")
    assert "conv in blocks at Plus112_Output_0: done" in found.of("layout")
    assert any("Plus112_Output_0 -> ReLU114_Output_0: fused" in line for line in found.of("fuse"))
    assert any("Pooling66_Output_0 -> Plus112_Output_0: not" in line for line in found.of("fuse"))
    assert any(line.startswith("kernel ReLU114_Output_0: conv2d") for line in found.of("kernel"))
    [size] = found.of("bytes")
    assert size.startswith("kernel ReLU114_Output_0 reads ")
    assert size.endswith("and writes 12,544")


def test_refusals_have_reasons(exe: mc.Executable) -> None:
    lines = mc.debug.explain(exe, "Plus112").of("canonicalize")
    assert "add-zero at Plus112_Output_0: constant is not 0" in lines


def test_names_of_values_and_of_nodes(exe: mc.Executable) -> None:
    by_value = mc.debug.explain(exe, "Plus112_Output_0")
    assert by_value.lines == mc.debug.explain(exe, "Plus112").lines
    text = str(by_value).splitlines()
    assert text[0].startswith("from ")
    assert all(len(line) > 20 for line in text)


def test_what_is_folded_away_has_no_kernel(exe: mc.Executable) -> None:
    found = mc.debug.explain(exe, "Times212_reshape1")
    assert "fold at Parameter193_reshape1: done" in found.of("fold_constants")
    assert "now: no node of its own" in found.of("fold_constants")
    assert any(line.startswith("constant ") for line in found.of("kernel"))
    assert found.of("bytes") == ()


def test_a_pass_that_runs_twice_is_told_apart() -> None:
    g = mc.parse("def f(x: f32[4]):\n    a = relu(x)\n    b = relu(a)\n    return b")
    exe = mc.compile(g, pipeline="canonicalize,canonicalize")
    found = mc.debug.explain(exe, "a")
    assert "relu-of-relu at b: done" in found.of("canonicalize")
    assert "relu-of-relu at b: an input is not relu" in found.of("canonicalize 2")


def test_an_unknown_name(exe: mc.Executable) -> None:
    with pytest.raises(OptionError, match="no node 'Plus113'") as caught:
        mc.debug.explain(exe, "Plus113")
    assert caught.value.code == "MDLC1031"
    assert caught.value.hint == "did you mean 'Plus112'?"


TWICE = mc.parse("""\
def f(x: f32[2, 8]):
    a = neg(x)
    b = neg(a)
    c = exp(b)
    return c
""")


def test_an_inner_node_names_the_rewrite_behind_it() -> None:
    """Nobody reads it once the node behind it is rewritten."""
    exe = mc.compile(TWICE, threads=1)
    assert mc.debug.explain(exe, "a").of("canonicalize")[-2:] == (
        "no longer read: double-neg at b: done",
        "now: no node of its own",
    )
    assert "double-neg at b: done" in mc.debug.explain(exe, "b").of("canonicalize")


def test_an_input_is_a_value() -> None:
    found = mc.debug.explain(mc.compile(TWICE, threads=1), "x")
    assert found.of("from") == ("<text>:1:7",)
    assert found.of("import") == (
        "x: f32[2, 8], an input, 64 bytes",
        "read by a: f32[2, 8] = neg(x), 64 bytes",
    )
    assert found.of("kernel") == ("kernel c reads it",)


def test_an_empty_name_gets_a_few_names(exe: mc.Executable) -> None:
    with pytest.raises(OptionError, match="no node ''") as caught:
        mc.debug.explain(exe, "")
    assert caught.value.hint is not None
    assert caught.value.hint.count(",") == 5
    assert caught.value.hint.endswith(" more")
