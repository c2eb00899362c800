"""Kernels compiled by helper processes: the same code, and nothing that goes wrong is noticed."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minidlc import target
from minidlc.codegen import compile as compiler
from minidlc.codegen import crew, worker
from minidlc.codegen.cache import KernelCache, source_digest
from minidlc.codegen.compile import build_kernel, compile_kernel, kernel_key, kernel_symbol
from minidlc.codegen.crew import compile_kernels
from minidlc.codegen.llvm import emit
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.support.errors import CodegenError, OptionError
from minidlc.support.extension import use

pytestmark = pytest.mark.llvm

HOST = target.host()


def function(n: int) -> LoopFunction:
    return parse_function(
        f"def f{n}(A: f32[8]):\n    for i in vectorized(0, 8):\n        A[i] = A[i] + {n}.5\n"
    )


FUNCTIONS = [function(n % 6) for n in range(8)]  # two of them twice


class Started(list[subprocess.Popen[bytes]]):
    """The helpers that were started; `here` counts the kernels that were compiled without them."""

    here = 0


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """A fresh cache, and helpers from the second kernel on."""
    processes = Started()
    popen = subprocess.Popen

    def start(*args, **kwargs):
        processes.append(popen(*args, **kwargs))
        return processes[-1]

    def here(fn, target, symbol):
        processes.here += 1
        return build_kernel(fn, target, symbol)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(crew, "build_kernel", here)
    monkeypatch.setattr(crew, "_START_SECONDS", -1.0)
    monkeypatch.setattr(compiler, "kernel_cache", KernelCache(tmp_path / "kernels"))
    monkeypatch.setenv("MINIDLC_JOBS", "2")
    yield processes
    assert all(process.poll() is not None for process in processes)
    deadline = time.monotonic() + 10  # threads end with their helper
    while crew_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not crew_threads()


def crew_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if "(feed)" in t.name]


def check(kernels: list[compiler.Kernel]) -> None:
    expected = [compile_kernel(fn, HOST, cache=False) for fn in FUNCTIONS]
    assert [k.fn.name for k in kernels] == [fn.name for fn in FUNCTIONS]
    for got, want in zip(kernels, expected, strict=True):
        assert (got.symbol, got.llvm, got.object) == (want.symbol, want.llvm, want.object)


def test_helpers_bring_what_would_be_made_here(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = crew.build_kernel
    brought = threading.Event()
    add = crew._Work.add

    def wait_for_help(fn, target, symbol):
        if started:  # this process is slow: all the rest comes from the helper
            assert brought.wait(60)
        return counted(fn, target, symbol)

    def note(self, job, found):
        add(self, job, found)
        if len(self.built) >= 4 and threading.current_thread() is not threading.main_thread():
            brought.set()

    monkeypatch.setattr(crew, "build_kernel", wait_for_help)
    monkeypatch.setattr(crew._Work, "add", note)
    check(compile_kernels(FUNCTIONS, HOST))
    assert len(started) == 1
    assert started.here < 6
    for fn in FUNCTIONS:  # all are on disk now
        assert compiler.kernel_cache.read(kernel_key(fn, HOST)) is not None
    started.here = 0
    check(compile_kernels(FUNCTIONS, HOST))
    assert started.here == 0
    assert len(started) == 1


BAD = {
    "ends": "import sys; sys.exit(3)",
    "speaks": "print('hello' * 1000)",
    "hangs": "import time; time.sleep(100)",
    "another version": "import pickle, sys; pickle.load(sys.stdin.buffer);"
    "pickle.dump('other', sys.stdout.buffer); sys.stdout.flush(); sys.stdin.read()",
    "dies at work": "import pickle, sys; pickle.load(sys.stdin.buffer);"
    "pickle.dump({digest!r}, sys.stdout.buffer); sys.stdout.flush(); pickle.load(sys.stdin.buffer)",
    "hangs at work": "import pickle, sys, time; pickle.load(sys.stdin.buffer);"
    "pickle.dump({digest!r}, sys.stdout.buffer); sys.stdout.flush(); time.sleep(100)",
    "answers nonsense": "import pickle, sys; o = sys.stdout.buffer; pickle.load(sys.stdin.buffer);"
    "pickle.dump({digest!r}, o); o.flush(); pickle.load(sys.stdin.buffer); pickle.dump(7, o)",
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_helper_is_no_help(
    how: str, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = BAD[how].replace("{digest!r}", repr(source_digest())).replace("{", "{{")
    monkeypatch.setattr(crew, "_SERVE", code.replace("}", "}}"))
    monkeypatch.setattr(crew, "_PATIENCE", 0.3)
    counted = crew.build_kernel

    def slow(fn, target, symbol):
        time.sleep(0.2)
        return counted(fn, target, symbol)

    monkeypatch.setattr(crew, "build_kernel", slow)
    begin = time.monotonic()
    check(compile_kernels(FUNCTIONS, HOST))
    assert time.monotonic() - begin < 30
    assert len(started) == 1
    assert started.here == 6


@pytest.mark.parametrize("program", ["", None, "/nowhere/python3", "/bin/sh", "blender"])
def test_without_a_python_to_start(
    program: str | None, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    check(compile_kernels(FUNCTIONS, HOST))
    assert not started
    assert started.here == 6


def test_where_no_process_may_be_started(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    check(compile_kernels(FUNCTIONS, HOST))
    assert started.here == 6


def test_one_job_means_no_helper(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIDLC_JOBS", "1")
    check(compile_kernels(FUNCTIONS, HOST, cache=False))
    assert not started
    assert not compiler.kernel_cache.root.exists()
    monkeypatch.setenv("MINIDLC_JOBS", "")
    assert crew.jobs() >= 1


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", "٣"])
def test_a_number_of_jobs_that_cannot_be_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIDLC_JOBS", text)
    with pytest.raises(OptionError, match=r"MDLC1006.*MINIDLC_JOBS: expected a number from 1"):
        crew.jobs()


def test_small_work_needs_no_helper(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_START_SECONDS", 1.0)
    check(compile_kernels(FUNCTIONS, HOST))
    assert not started
    assert compile_kernels([], HOST) == []


def test_what_cannot_be_compiled_is_reported_here(started: Started) -> None:
    bad = parse_function(
        "def bad(A: f32[8]):\n    for i in vectorized(0, 8):\n        A[i] = 0.0\n"
    )
    with use(emit=lambda fn, target, symbol: "nonsense"), pytest.raises(CodegenError) as caught:
        compile_kernels([bad, *FUNCTIONS], HOST)
    assert caught.value.code == "MDLC0820"
    assert not started  # where a stage is replaced this process does all


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), CodegenError("no", code="MDLC0820")])
def test_helpers_end_with_an_interruption(
    problem: BaseException, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = crew.build_kernel

    def interrupted(fn, target, symbol):
        if started:
            raise problem
        return counted(fn, target, symbol)

    monkeypatch.setattr(crew, "build_kernel", interrupted)
    with pytest.raises(type(problem)):
        compile_kernels(FUNCTIONS, HOST)
    assert len(started) == 1


def test_replaced_stages_are_called_in_this_process(started: Started) -> None:
    calls = []

    def mine(fn, target, symbol):
        calls.append(symbol)
        return emit(fn, target, symbol)

    with use(emit=mine):
        compile_kernels(FUNCTIONS, HOST)
    assert len(calls) == len(FUNCTIONS)
    assert not started


def test_what_a_helper_answers() -> None:
    fn = FUNCTIONS[0]
    symbol = kernel_symbol(kernel_key(fn, HOST))
    hopeless = parse_function("def f(A: f32[8]):\n    A[0] = 1.0\n")
    requests = [None, (fn, HOST, symbol), (hopeless, "no target", "k"), (fn, HOST, symbol)]
    answers = io.BytesIO()
    worker.answer_all(io.BytesIO(b"".join(map(pickle.dumps, requests))), answers)
    answers.seek(0)
    found = [pickle.load(answers) for _ in requests]
    built = build_kernel(fn, HOST, symbol)
    assert found == [source_digest(), built, None, built]
