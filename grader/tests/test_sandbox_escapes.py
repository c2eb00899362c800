"""Ways out of the sandbox, and ways to forge an answer, at each level of isolation."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import minidlc as mc
from grader.sandbox import ForkServer, Isolation, Limits
from grader.student import Died, Student, StudentRaised
from grader.tests.sandboxes import (
    call,
    each_server,  # noqa: F401
    processes,
    run,
    server_at,
    started,
)

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]


def closed_files(server: ForkServer, least: Isolation = Isolation.NAMESPACES) -> None:
    if server.isolation < least and "landlock" not in server.locks:
        pytest.skip(f"needs {least.name.lower()} or landlock")


OPENS = """
def f(path):
    try:
        open(path).close()
        return "open"
    except OSError as error:
        return type(error).__name__
"""


def test_the_project_cannot_be_read(server: ForkServer) -> None:
    closed_files(server)
    worker = started(server, OPENS)
    with worker:
        for path in (__file__, PROJECT / "pyproject.toml", "/etc/passwd", "/root/.profile"):
            assert call(worker, str(path)) in ("PermissionError", "FileNotFoundError")
    assert run(server, "import os\n" + OPENS, str(server.overlay / "minidlc/__init__.py")) == "open"


def test_other_processes_cannot_be_read(server: ForkServer) -> None:
    closed_files(server, Isolation.UID)
    source = OPENS + (
        "import os\ng = f\ndef f(parent):\n"
        "    names = [f'/proc/{p}/{n}' for p in (os.getppid(), parent) for n in ('maps', 'mem')]\n"
        "    return [g(name) for name in names]"
    )
    assert set(run(server, source, os.getpid())) <= {"PermissionError", "FileNotFoundError"}


def test_no_network(server: ForkServer) -> None:
    if server.isolation != Isolation.NAMESPACES and "seccomp" not in server.locks:
        pytest.skip("needs namespaces or seccomp")
    source = """
import socket
def f(port):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_INET, kind) as client:
                client.connect(("127.0.0.1", port))
                client.send(b"x")
            return "connected"
        except OSError as error:
            last = str(error)
    return last
"""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert run(server, source, listening.getsockname()[1]) != "connected"


def test_the_temporary_folder_is_private_and_goes(server: ForkServer) -> None:
    source = (
        "import os, tempfile\ndef f():\n    with open('note', 'w') as out: out.write('x')\n"
        "    name = tempfile.mkdtemp()\n    return os.getcwd(), name, os.stat('.').st_mode & 0o777"
    )
    one, two = (run(server, source) for _ in range(2))
    folder, inner, mode = one
    assert inner.startswith(folder)
    if server.isolation != Isolation.NAMESPACES:
        assert mode == 0o700
        assert folder != two[0]
        assert not Path(folder).exists()


def test_nothing_else_can_be_written(server: ForkServer) -> None:
    closed_files(server)
    source = """
import os
def f(overlay):
    refused = []
    for path in ("/tmp/x", "/x", "/usr/lib/x", "/dev/shm/x", overlay + "/minidlc/__init__.py"):
        try:
            open(path, "a").write("#")
        except OSError:
            refused.append(path)
    return len(refused)
"""
    wanted = 4 if server.isolation == Isolation.NAMESPACES else 5  # /tmp may be the scratch folder
    assert run(server, source, str(server.overlay)) >= wanted
    assert not Path("/tmp/x").exists()


def test_parent_and_server_cannot_be_killed(server: ForkServer) -> None:
    if server.isolation == Isolation.RLIMITS and not _scoped_signals(server):
        pytest.skip("needs a user id, a process table, or landlock of Linux 6.12")
    source = """
import os, signal
def f(parent):
    done = 0
    for pid in (os.getppid(), parent):
        try:
            os.kill(pid, 0 if pid == parent else signal.SIGKILL)
            done += pid != 1
        except OSError:
            pass
    return done
"""
    with started(server, source) as worker:
        assert call(worker, os.getpid()) == 0
        assert call(worker, os.getpid()) == 0


def _scoped_signals(server: ForkServer) -> bool:
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    return "landlock" in server.locks and release >= (6, 12)


def test_no_new_rights(server: ForkServer) -> None:
    source = """
import ctypes, os
def f():
    libc = ctypes.CDLL(None, use_errno=True)
    user = libc.unshare(0x10000000)
    return user, libc.prctl(39, 0, 0, 0, 0)
"""
    user, no_new = run(server, source)
    assert no_new == 1
    if "seccomp" in server.locks:
        assert user == -1
    if server.isolation != Isolation.RLIMITS:
        status = run(server, "import os\ndef f(): return list(os.getresuid())")
        assert status[0] >= 60600
        assert len(set(status)) == 1


def test_a_forged_answer_on_every_descriptor(server: ForkServer) -> None:
    source = """
import json, os, struct
def f():
    text = json.dumps({"value": 42, "calls": {}}).encode()
    frame = bytes(16) + struct.pack("!II", len(text), 0) + text
    for fd in range(64):
        try: os.write(fd, frame + b'{"value": 42}\\\\n')
        except OSError: pass
    return 1
"""
    with started(server, source) as worker:
        with pytest.raises(StudentRaised) as caught:
            call(worker)
        assert caught.value.kind == "UnreadableAnswer"


def test_a_forged_answer_with_the_nonce_is_only_an_answer(server: ForkServer) -> None:
    source = """
import os, sys
def f():
    frame = sys._getframe()
    while "nonce" not in frame.f_locals: frame = frame.f_back
    from grader import wire
    os.write(3, wire.pack({"value": 41, "calls": {}}, nonce=frame.f_locals["nonce"]))
    return 42
"""
    with started(server, source) as worker:
        assert call(worker) == 41  # what it says is what is compared, now or later


@pytest.mark.parametrize(
    "patch",
    [
        "import json\njson.dumps = json.loads = lambda *a, **k: '{}'",
        "import struct\nstruct.Struct = struct.pack = None",
        "import pickle\npickle.loads = lambda data: 42",
        "from grader import wire\nwire._HEAD = wire.encode = wire.pack = None",
        "import minidlc as mc\nmc.verify = mc.parse = lambda *a, **k: None",
        "import builtins\nbuiltins.isinstance = lambda *a: True",
        "import numpy as np\nnp.array_equal = np.allclose = lambda *a, **k: True",
        "import sys\nsys.modules.clear()",
        "import gc, os\nos.write = os.read = os.close = None",
    ],
)
def test_a_patched_worker_harms_only_itself(server: ForkServer, patch: str) -> None:
    with suppress(StudentRaised, Died), started(server, f"{patch}\ndef f(): return 5") as worker:
        assert call(worker) in (5, None)
    assert run(server, "def f(): return 6") == 6


def test_a_large_array_comes_whole(server: ForkServer) -> None:
    x = np.arange(4_000_000, dtype=np.float32)
    assert np.array_equal(run(server, "def f(x): return x * 2", x), x * 2)


def test_many_workers_leave_nothing(server: ForkServer) -> None:
    run(server, "def f(): pass")
    descriptors = len(os.listdir("/proc/self/fd"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(40):
        server.spawn(Limits()).close()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 10


PARENT = """
import sys, time
from contextlib import suppress
from pathlib import Path
from grader.sandbox import ForkServer, Isolation, Limits
from grader.local import start
server = ForkServer(Path(sys.argv[1]), Isolation(int(sys.argv[2])), python=sys.argv[3])
worker = server.spawn(Limits(seconds=300, processes=8))
start(worker, [["cell 1.2", sys.argv[4]]], "", {})
print("ready", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("server_too", [False, True], ids=["parent", "and server"])
def test_killing_the_parent_leaves_nothing(server: ForkServer, server_too: bool) -> None:
    if not server_too and server.isolation != Isolation.RLIMITS:
        pytest.skip("as with rlimits: its server ends with its parent")
    mark = str(server.overlay)
    before = processes(mark)
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(300)"
    level = str(int(server.isolation))
    command = [sys.executable, "-c", PARENT, mark, level, server.python, daemon]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    during = processes(mark) - before - {str(parent.pid)}
    assert len(during) >= 4  # server, keeper, worker, daemon
    parent.kill()
    if server_too:
        os.kill(min(int(pid) for pid in during), 9)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5
    while processes(mark) != before and time.monotonic() < end:
        time.sleep(0.05)
    assert processes(mark) == before


def test_a_server_that_died_is_started_again(server: ForkServer) -> None:
    before = processes(str(server.overlay))
    server.process.kill()
    server.process.wait()
    assert run(server, "def f(): return 3") == 3
    time.sleep(0.1)
    assert len(processes(str(server.overlay))) == len(before)


def test_what_a_worker_sees_of_its_server(server: ForkServer) -> None:
    source = """
import os, sys
def f():
    return dict(os.environ), sys.argv, [name for name in sys.modules if "pytest" in name]
"""
    environment, arguments, modules = run(server, source)
    own = {"HOME", "TMPDIR", "MINIDLC_CACHE", "MINIDLC_JOBS", "OPENBLAS_NUM_THREADS"}
    assert set(environment) == own
    assert arguments == ["-c"]
    assert modules == ["numpy._pytesttester"]


def test_a_user_id_holds_without_the_locks() -> None:
    with server_at(Isolation.UID, locks=()) as server:
        assert server.active == "uid"
        test_other_processes_cannot_be_read(server)
        test_parent_and_server_cannot_be_killed(server)
        test_the_temporary_folder_is_private_and_goes(server)
        mine = run(server, OPENS, str(server.overlay / "minidlc/__init__.py"))
        source = "def f(path): open(path, 'a')"
        with pytest.raises(StudentRaised, match="Permission denied"):
            run(server, source, str(server.overlay / "minidlc/__init__.py"))
        assert mine == "open"


def test_namespaces_hold_without_the_locks() -> None:
    with server_at(Isolation.NAMESPACES, locks=()) as server:
        assert server.active == "namespaces"
        test_the_project_cannot_be_read(server)
        test_other_processes_cannot_be_read(server)
        test_no_network(server)
        test_nothing_else_can_be_written(server)
        test_parent_and_server_cannot_be_killed(server)
        listed = run(server, "import os\ndef f(): return sorted(os.listdir('/proc'))[:2]")
        assert listed in (["1", "2"], [])  # the keeper and the worker, or no /proc at all


def test_a_worker_that_cannot_be_started_is_no_students_fault(server: ForkServer) -> None:
    with (
        server.spawn(Limits(memory="x")) as worker,  # type: ignore[arg-type]
        pytest.raises(RuntimeError, match="could not be started"),
    ):
        worker.request({"message": {"do": "stop"}}, lambda n, a: None)


@pytest.mark.llvm
@pytest.mark.parametrize("level", list(Isolation), ids=lambda level: level.name.lower())
def test_an_evaluator_runs_and_compiles(level: Isolation) -> None:
    graph = mc.trace(lambda x: mc.relu(x @ x), mc.f32[4, 4])
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    with (
        server_at(level) as server,
        server.spawn(Limits(seconds=20)) as evaluator,
    ):
        student = Student(evaluator, evaluator, np.random.default_rng(0))
        [one], [two] = student.evaluate(graph, [x]), student.compile(graph, [x])
    assert np.allclose(one, np.maximum(x @ x, 0), atol=1e-5)
    assert np.allclose(two, one, atol=1e-5)
