"""A reader's own version of any pass plugs in, and leaving one out breaks no later one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, interpret, parse
from minidlc.support.errors import PassError
from minidlc.tests.every_pass import alone
from minidlc.tests.random_graphs import case_of
from minidlc.transform import Pipeline, parse_pipeline, pass_class, registered_passes

pytestmark = [pytest.mark.llvm, pytest.mark.ch02]

PIPELINES = alone() | {"decompose": Pipeline.default(0)}
G = parse("""\
def f(x: f32[2, 8], w: f32[8, 8], p: bool[()]):
    m = gemm(x, w)
    c: f32[()] = const(1.0)
    d = mul(m, c)
    r = relu(d)
    def then_branch(a: f32[2, 8]):
        b = neg(a)
        e = neg(b)
        return e
    def else_branch(a: f32[2, 8]):
        s = softmax(a)
        return s
    y = if_(p, r, then_branch=then_branch, else_branch=else_branch)
    return y
""")
ARRAYS = [
    np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32),
    np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32),
    np.array(True),
]
MODEL = Path(mc.__file__).parent / "models" / "mnist_cntk.onnx"
OPTIONAL = sorted({p.name for p in Pipeline.default().passes if not p.mandatory})


@pytest.mark.parametrize("text", sorted(PIPELINES))
def test_a_pass_of_ones_own_in_three_lines(text: str) -> None:
    """With `replace` and with `mc.use`; the report counts its calls."""
    pipeline, name = PIPELINES[text], text.split("{")[0]
    (shipped,) = parse_pipeline(text).passes
    calls = 0

    def mine(graph: Graph) -> Graph:
        nonlocal calls
        calls += 1
        return shipped(graph)

    [want] = interpret(G, ARRAYS)
    exe = mc.compile(G, pipeline=pipeline.replace(name, mine))
    assert np.allclose(exe(*ARRAYS)[0], want, rtol=1e-5, atol=1e-6)
    assert calls == 3 * pipeline.names.count(name), "the graph, and both branches"
    calls = 0
    with mc.use(**{f"pass.{name}": mine}):
        exe = mc.compile(G, pipeline=pipeline)
    assert np.allclose(exe(*ARRAYS)[0], want, rtol=1e-5, atol=1e-6)
    assert exe.report().overrides == {f"pass.{name}": calls}
    assert calls == 3 * pipeline.names.count(name)


def test_every_registered_pass_is_tried() -> None:
    shipped = {n for n in registered_passes() if pass_class(n).__module__.startswith("minidlc.tr")}
    assert {text.split("{")[0] for text in PIPELINES} == shipped


@pytest.mark.parametrize("name", OPTIONAL)
def test_leaving_a_pass_out_breaks_no_later_one(name: str) -> None:
    pipeline = Pipeline.default().without(name)
    after, _ = pipeline.run(G)
    assert np.allclose(interpret(after, ARRAYS)[0], interpret(G, ARRAYS)[0], rtol=1e-5, atol=1e-6)
    digits = mc.load_onnx(MODEL)
    image = np.random.default_rng(0).random(digits.inputs[0].type.dims).astype(np.float32)
    [want] = interpret(digits, [image])
    [got] = mc.compile(digits, pipeline=pipeline)(image)
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_leaving_a_pass_out_on_random_graphs(seed: int) -> None:
    case = case_of(seed)
    want = interpret(case.graph, case.arrays)
    for name in OPTIONAL:
        after, _ = Pipeline.default().without(name).run(case.graph)
        case.check(interpret(after, case.arrays), want)


def test_leaving_a_mandatory_pass_out_is_named() -> None:
    """Every later pass that relies on it says what it misses, and what would give it."""
    needing = [n for n, cls in registered_passes().items() if "decomposed" in cls.requires]
    assert "fuse" in needing
    for name in needing:
        with pytest.raises(PassError, match=f"pass '{name}': requires 'decomposed'") as caught:
            Pipeline((pass_class(name)(),)).run(G, reproducer="")
        assert "passes that ensure it: decompose" in str(caught.value)
