"""Whole models: entry, operands, arena, fresh outputs, wrong arguments, many modules."""

from __future__ import annotations

import gc
import pickle
import threading

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel, short_symbol
from minidlc.codegen.entry import KernelCall, Operand, compile_entry, emit_entry
from minidlc.loop.text import parse_function
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.spec import ArraySpec
from minidlc.support.errors import CallError, CodegenError

pytestmark = pytest.mark.llvm

N = 100
SOURCE = f"""
def f(A: f32[{N}], B: f32[{N}], C: f32[{N}]):
    for o in parallel(0, 4):
        t = alloc(f32[25], "arena")
        for i in vectorized(0, 25):
            t[i] = A[25*o + i] * 2.0
        for i in vectorized(0, 25):
            C[25*o + i] = t[i] + B[25*o + i]
"""


def spec(name: str, n: int = N) -> ArraySpec:
    return ArraySpec(name, np.dtype(np.float32), (n,))


def model(threads: int = 2) -> LoadedModule:
    """y = 2 * (2 * a + w) + b with w constant, the middle in the arena."""
    machine = target.host()
    kernel = compile_kernel(parse_function(SOURCE), machine)
    workspace = Operand("arena", offset=448)
    calls = (
        KernelCall(
            kernel.symbol,
            (Operand("input", 0), Operand("constant", offset=64), Operand("arena")),
            workspace,
        ),
        KernelCall(
            kernel.symbol, (Operand("arena"), Operand("input", 1), Operand("output", 0)), workspace
        ),
    )
    name = short_symbol("entry", SOURCE)
    constants = np.arange(N + 16, dtype=np.float32)
    return LoadedModule(
        (kernel.object, compile_entry(name, calls, machine)),
        name,
        (spec("a"), spec("b")),
        (spec("y"),),
        constants,
        448 + kernel.workspace_bytes(threads),
        threads,
    )


def inputs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random(N).astype(np.float32), rng.random(N).astype(np.float32)


def expected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.float32(2) * (np.float32(2) * a + np.arange(16, N + 16, dtype=np.float32)) + b


@pytest.mark.parametrize("threads", [None, 1, 2, 9])
def test_run(threads: int | None) -> None:
    m, (a, b) = model(), inputs()
    (first,) = m.run([a, b], threads)
    (second,) = m.run([a, b], threads)
    np.testing.assert_allclose(first, expected(a, b), rtol=1e-6)
    assert first is not second
    assert not np.shares_memory(first, second)


def test_outputs_stay_when_the_model_runs_again() -> None:
    m = model()
    (kept,) = m.run(list(inputs(1)))
    copy = kept.copy()
    m.run(list(inputs(2)))
    np.testing.assert_array_equal(kept, copy)


def test_inputs_in_any_memory_layout() -> None:
    m, (a, b) = model(), inputs()
    strided = np.repeat(a, 2)[::2]
    raw = np.zeros(4 * N + 1, np.uint8)
    odd = np.frombuffer(raw, np.float32, N, 1)  # at an odd address
    raw[1:] = b.view(np.uint8)
    reverse = np.ascontiguousarray(a[::-1])[::-1]
    for x in (strided, reverse):
        (y,) = m.run([x, odd])
        np.testing.assert_allclose(y, expected(a, b), rtol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros(N, np.float32)], "got 1 inputs, expected 2"),
        ([np.zeros(N, np.float64)] * 2, r"got a: float64\[100\]"),
        ([np.zeros(N - 1, np.float32)] * 2, r"got a: float32\[99\]"),
        ([np.zeros((10, 10), np.float32)] * 2, r"expected a: float32\[100\]"),
        ([np.zeros(N, ">f4")] * 2, "input 'a' does not fit"),
    ],
)
def test_arguments_that_do_not_fit(arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(CallError, match=message) as error:
        model().run(arrays)
    assert error.value.code == "MDLC0908"


def test_scalars_and_empty_arrays() -> None:
    machine = target.host()
    source = "def f(A: f32[0], B: f32[1], C: f32[1]):\n    C[0] = B[0] + 1.0\n"
    kernel = compile_kernel(parse_function(source), machine)
    operands = (Operand("input", 0), Operand("input", 1), Operand("output", 0))
    entry = compile_entry("m_scalar", (KernelCall(kernel.symbol, operands),), machine)
    one = ArraySpec("b", np.dtype(np.float32), ())
    m = LoadedModule((kernel.object, entry), "m_scalar", (spec("a", 0), one), (one,))
    (y,) = m.run([np.zeros(0, np.float32), np.float32(4)])  # pyright: ignore[reportArgumentType]
    assert y.shape == ()
    assert y == 5


def test_concurrent_calls() -> None:
    m = model()
    wrong: list[int] = []

    def work(seed: int) -> None:
        a, b = inputs(seed)
        want = expected(a, b)
        for _ in range(200):
            (y,) = m.run([a, b])
            if not np.allclose(y, want, rtol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_pickled_module_runs() -> None:
    a, b = inputs()
    (y,) = pickle.loads(pickle.dumps(model().load())).run([a, b])
    np.testing.assert_allclose(y, expected(a, b), rtol=1e-6)


def test_create_and_drop_many() -> None:
    a, b = inputs()
    for _ in range(60):
        (y,) = model().run([a, b])
    del y
    gc.collect()
    np.testing.assert_allclose(model().run([a, b])[0], expected(a, b), rtol=1e-6)


def test_entry_text() -> None:
    call = KernelCall("k", (Operand("input", 2), Operand("arena", offset=64)), Operand("arena"))
    text = emit_entry("main", (call, call))
    assert text.count("declare void @k(ptr, ptr, ptr, i32)") == 1
    assert text.count("load ptr") == 1
    other = KernelCall("k", (Operand("arena"),))
    with pytest.raises(CodegenError, match="k is called with 1 and with 2 operands"):
        emit_entry("main", (call, other))


def test_missing_kernel_is_an_error() -> None:
    entry = compile_entry("lonely", (KernelCall("k_missing", ()),), target.host())
    with pytest.raises(CodegenError, match="cannot be linked") as error:
        LoadedModule((entry,), "lonely", (), ()).run([])
    assert error.value.code == "MDLC0821"


def test_arguments_that_are_not_plain_are_left_to_others() -> None:
    m, (a, b) = model(), inputs()
    quick = m.run_if_plain
    plain: list[tuple[object, ...]] = [(a, b), ({"a": a, "b": b},), ({"b": b, "a": a},)]
    frozen = a.copy()
    frozen.flags.writeable = False
    plain.append((frozen, b))
    for arguments in plain:
        (y,) = quick(arguments) or [None]
        np.testing.assert_allclose(y, expected(a, b), rtol=1e-6)
    unaligned = np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.float32)
    other: list[tuple[object, ...]] = [
        (),
        (a,),
        (a, b, b),
        ({"a": a},),
        ({"a": a, "c": b},),
        ({"a": a, "b": b, "c": b},),
        (a, b.astype(np.float64)),
        (a, b.astype(">f4")),
        (a, b[: N - 1]),
        (a, b.reshape(1, N)),
        (a, b[::-1]),
        (a, list(b)),
        (a, None),
        (unaligned, b),
        (a.view(np.recarray), b),
    ]
    for arguments in other:
        assert quick(arguments) is None
    (y,) = m.run([unaligned, b[::-1].copy()[::-1]])
    np.testing.assert_allclose(y, expected(a, b), rtol=1e-6)
    assert len(m._frames) == 1


def test_no_threads_to_be_had_means_a_call_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    m, (a, b) = model(threads=1), inputs()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        np.testing.assert_allclose(m.run([a, b])[0], expected(a, b), rtol=1e-6)


def test_an_interruption_before_the_call_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: threading.Thread) -> None:
        raise KeyboardInterrupt

    m, (a, b) = model(threads=1), inputs()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            m.run([a, b])
    np.testing.assert_allclose(m.run([a, b])[0], expected(a, b), rtol=1e-6)
