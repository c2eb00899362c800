"""A reader's part runs inside the real compiler, and the report counts that it did."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph.verify import verify
from minidlc.lower.memory import greedy_by_size
from minidlc.schedules import SCHEDULES
from minidlc.support.errors import LoweringError, OptionError, PassError, VerifyError
from minidlc.te import compute, reduce_axis
from minidlc.te import sum as te_sum
from minidlc.tests.driver.conftest import case
from minidlc.transform import Cse, Pipeline

pytestmark = pytest.mark.llvm


def use(**overrides):
    with mc.use(**overrides):
        pass


def small():
    x, w = mc.Input("x", mc.f32[4, 8]), mc.Input("w", mc.f32[8, 3])
    return mc.Graph.of("small", [x, w], [mc.relu(x @ w)])


def right(exe):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 8)).astype(np.float32)
    w = rng.standard_normal((8, 3)).astype(np.float32)
    return np.allclose(exe(x, w)[0], np.maximum(x @ w, 0), atol=1e-5)


def test_a_pass():
    seen = []

    def my_cse(graph):
        seen.append(graph.name)
        return graph

    with mc.use(**{"pass.cse": my_cse}):
        exe = mc.compile(small())
    assert exe.report().overrides == {"pass.cse": 1}
    assert seen == ["small"]
    assert right(exe)


def test_a_pass_in_the_pipeline():
    calls = []

    def mine(graph):
        calls.append(graph)
        return graph

    exe = mc.compile(small(), pipeline=Pipeline.default().replace("fold_constants", mine))
    assert len(calls) == Pipeline.default().names.count("fold_constants")
    assert right(exe)


def test_a_type_rule():
    x = mc.Input("x", mc.f32[4, 8])
    with mc.use(**{"type_rule.relu": lambda op, x: x}):
        graph = mc.Graph.of("g", [x], [mc.relu(x)])
        exe = mc.compile(graph)
    assert exe.report().overrides["type_rule.relu"] >= 1  # the verifier asks again


def test_a_wrong_type_rule_is_refused():
    small_graph = small()

    def wrong():
        return mc.use(**{"type_rule.relu": lambda op, x: mc.f32[1]})

    with wrong(), pytest.raises(VerifyError, match="relu"):
        mc.compile(small_graph)
    with wrong(), pytest.raises(LoweringError, match="the type rule"):
        mc.compile(small())  # built under the wrong rule: the loops would write past their buffer


def test_a_compute():
    def my_matmul(op, a, b):
        k = reduce_axis(a.shape[1], "kk")
        return compute(
            (a.shape[0], b.shape[1]), lambda p, q: te_sum(a[p, k] * b[k, q], k), name="mine"
        )

    with mc.use(**{"compute.matmul": my_matmul}):
        exe = mc.compile(small())
    assert exe.report().overrides == {"compute.matmul": 1}
    assert any("mine" in k.te for k in exe.kernels)
    assert right(exe)


def test_a_schedule():
    def my_schedule(sch, group, target):
        SCHEDULES["plain"](sch, group, target)

    with mc.use(**{"schedule.matmul": my_schedule}):
        exe = mc.compile(small())
    assert exe.report().overrides == {"schedule.matmul": 1}
    assert right(exe)


def test_the_verifier():
    with mc.use(verify=lambda graph: verify(graph)):
        exe = mc.compile(small())
    passes = len(exe.passes)
    assert exe.report().overrides["verify"] >= passes
    assert right(exe)


def test_the_memory_plan():
    with mc.use(memory_plan=greedy_by_size):
        exe = mc.compile(case("lenet").model, threads=1)
    assert exe.report().overrides == {"memory_plan": 1}
    case("lenet").check(exe(case("lenet").feeds))


def test_a_memory_plan_that_overlaps_is_refused():
    wrong = mc.use(memory_plan=lambda requests: [0] * len(requests))
    with wrong, pytest.raises(VerifyError, match="alive together and overlap"):
        mc.compile(case("lenet").model, threads=1)


def test_a_memory_plan_of_the_wrong_length_is_refused():
    with mc.use(memory_plan=lambda requests: []), pytest.raises(PassError, match="expected"):
        mc.compile(case("lenet").model, threads=1)


def test_the_original_is_meant_inside_an_override():
    def counted(graph):
        return Cse()(graph)

    with mc.use(**{"pass.cse": counted}):
        exe = mc.compile(small())
    assert exe.report().overrides == {"pass.cse": 1}


def test_an_unknown_point_lists_the_known_ones():
    with pytest.raises(OptionError, match=r"unknown extension point 'pass\.cs'") as e:
        use(**{"pass.cs": lambda g: g})
    assert "did you mean 'pass.cse'?" in str(e.value)
    with pytest.raises(OptionError, match="unknown extension point 'verifier'") as e:
        use(verifier=lambda g: None)
    assert "did you mean 'verify'?" in str(e.value)
    assert "test_overrides.py" in str(e.value)
    with pytest.raises(OptionError) as e:
        use(nosuch=lambda g: None)
    assert len(str(e.value)) < 2500  # points, not every member of every family


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(OptionError, match="not callable"):
        use(verify=3)


def test_overrides_end_with_the_block():
    with mc.use(**{"pass.cse": lambda g: g}):
        pass
    assert mc.compile(small()).report().overrides == {}
