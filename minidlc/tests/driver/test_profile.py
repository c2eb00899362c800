"""`exe.profile`, the annotated assembly, and `bench`: where the time of a model goes."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import minidlc as mc
from minidlc import bench
from minidlc.benchmarks.models import MODELS
from minidlc.codegen.debug_lines import asm_origins
from minidlc.loop.nodes import Store
from minidlc.support.errors import CallError
from minidlc.support.timing import interleaved, readable
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.llvm
F = np.float32


def lenet() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    return MODELS["lenet"]()


def test_every_kernel_has_a_time_and_its_operations() -> None:
    proto, feeds = lenet()
    exe = mc.compile(proto, threads=1)
    found = exe.profile(feeds, seconds=0.01)
    assert [k.kernel for k in found.kernels] == [k.name for k in exe.kernels]
    assert all(k.seconds > 0 and k.calls == 1 for k in found.kernels)
    assert found.seconds >= sum(k.seconds for k in found.kernels)
    assert found.runs >= 5
    convolutions = 2 * 28 * 28 * 6 * 25 + 2 * 10 * 10 * 16 * 6 * 25
    dense = 2 * (400 * 120 + 120 * 84 + 84 * 10)
    assert convolutions + dense <= sum(k.flops for k in found.kernels) <= 1.6 * convolutions + dense


def test_the_table_names_the_slowest_first() -> None:
    proto, feeds = lenet()
    found = mc.compile(proto, threads=1).profile(feeds, seconds=0.01)
    rows = str(found).splitlines()
    assert re.match(r"lenet: .* a run, 1 thread, median of \d+ runs", rows[0])
    assert rows[1].split() == ["kernel", "time", "share", "GFLOP/s", "flop/B"]
    assert rows[2].split()[0] == found.slowest[0].kernel
    assert rows[-1].startswith("outside")


def test_profiling_changes_no_result() -> None:
    proto, feeds = lenet()
    exe = mc.compile(proto, threads=2)
    before = exe(feeds)
    exe.profile(feeds, seconds=0.01)
    for a, b in zip(before, exe(feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_kernel_in_a_loop_is_counted_as_often_as_it_runs() -> None:
    def repeated(x: object, n: object) -> object:
        for _ in range(n):  # type: ignore[call-overload]
            x = mc.tanh(x)
        return x

    exe = mc.compile(mc.script(repeated, mc.f32[4, 64], mc.i64[()]), threads=1)
    found = exe.profile(np.zeros((4, 64), F), np.array(5), seconds=0.01)
    computing = [k for k in found.kernels if k.flops]
    assert [k.calls for k in computing] == [5]
    assert computing[0].flops == 5 * 4 * 64
    assert "×5" in str(found)


def test_a_model_of_open_sizes_is_compiled_for_the_inputs() -> None:
    proto = model([node("Relu", "x", "y")], {"x": np.ones((2, 3), F)}, ["y"])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    exe = mc.compile(proto, threads=1)
    found = exe.profile(np.ones((5, 3), F), seconds=0.01)
    assert found.kernels[0].nbytes == 2 * 5 * 3 * 4


def test_a_model_from_the_cache_can_be_profiled(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MINIDLC_CACHE", str(tmp_path / "cache"))
    proto, feeds = lenet()
    path = tmp_path / "lenet.onnx"
    path.write_bytes(proto.SerializeToString())
    first = mc.compile(path, threads=1).profile(feeds, seconds=0.01)
    again = mc.compile(path, threads=1)
    found = again.profile(feeds, seconds=0.01)
    assert [k.kernel for k in found.kernels] == [k.kernel for k in first.kernels]
    assert "<- Gemm" in again.kernel("relu_15").listing


def test_wrong_inputs_are_refused_as_by_a_call() -> None:
    proto, _ = lenet()
    exe = mc.compile(proto, threads=1)
    with pytest.raises(CallError) as caught:
        exe.profile(np.zeros((1, 2), F))
    assert caught.value.code.startswith("MDLC09")


def test_instructions_know_their_statements() -> None:
    proto, _ = lenet()
    exe = mc.compile(proto, threads=1)
    kernel = exe.kernel("relu_15")
    rows = asm_origins(kernel.native)
    sums = [r for r in rows if re.search(r"\bv?fmadd|\bfmla", r.text)]
    assert sums
    stages = {r.statement.stage for r in sums if isinstance(r.statement, Store)}
    assert stages == {"matmul"}
    assert not any(".loc" in r.text or ".Ltmp" in r.text for r in rows)


def test_without_its_comments_the_listing_is_the_assembly() -> None:
    """Line tables change no instruction."""
    proto, _ = lenet()
    kernel = mc.compile(proto, threads=1).kernel("relu_15")

    def code(text: str) -> list[str]:
        lines = (line.split("#")[0].rstrip() for line in text.splitlines())
        return [
            re.sub(r"\s+", " ", line.strip())
            for line in lines
            if line.startswith("\t") and not line.strip().startswith(".")
        ]

    assert code(kernel.listing) == code(kernel.asm)


def test_the_listing_names_the_node_of_the_model() -> None:
    proto, _ = lenet()
    kernel = mc.compile(proto, threads=1).kernel("relu_15")
    assert "<- Gemm 'gemm_14_n' of lenet" in kernel.listing
    assert "<- Relu 'relu_15_n' of lenet" in kernel.listing
    assert max(map(len, kernel.listing.splitlines())) <= 120


def test_bench_compares_with_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    proto, feeds = lenet()
    exe = mc.compile(proto, threads=1)
    found = bench.compare(exe, proto.SerializeToString(), feeds, 1, rounds=2)
    assert set(found.times) == {"minidlc", "ONNX Runtime"}
    assert all(len(times) == 2 for times in found.times.values())
    assert found.ratio is not None
    assert found.ratio > 0
    assert found.difference is not None
    assert found.difference < 1e-5
    assert "of ONNX Runtime's time" in str(found)


def test_bench_stands_alone_where_onnxruntime_refuses() -> None:
    x = np.ones((2, 3), F)
    exe = mc.compile(model([node("Relu", "x", "y")], {"x": x}, ["y"]), threads=1)
    found = bench.compare(exe, b"no model at all", {"x": x}, 1, rounds=1)
    assert found.ratio is None
    assert "does not run the model" in str(found) or "not installed" in str(found)


def test_interleaved_takes_turns() -> None:
    order: list[str] = []
    runs = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = interleaved(runs, rounds=3, seconds=0.0, rest=0.0)
    assert {name: len(t) for name, t in times.items()} == {"a": 3, "b": 3}
    assert "".join(order) == "aabb" * 3


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.14159e-5, "31.4 µs"), (2.171e-3, "2.17 ms"), (1.2, "1.2 s")]
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert readable(seconds) == text
