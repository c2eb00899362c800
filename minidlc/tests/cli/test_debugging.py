"""opt, explain, bisect and reduce on the command line, and MINIDLC_LOG."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import minidlc as mc
from minidlc import cli
from minidlc.graph import load_text, parse, save_text
from minidlc.support.errors import PassError
from minidlc.tests.frontend.helpers import model, node
from minidlc.transform import Fuse, Pipeline, Rule, canonical_rules

pytestmark = [pytest.mark.llvm, pytest.mark.ch02]

MODEL = str(Path(mc.__file__).parent / "models" / "mnist_cntk.onnx")
Command = Callable[..., tuple[int, str, str]]

G = parse("""\
def f(x: f32[2, 8]):
    a = tanh(x)
    b = relu(a)
    c = softmax(b)
    return c
""")
WRONG = Rule("wrong", lambda x: mc.relu(x), lambda x: mc.abs(x))
PLANTED = {"rules.canonicalize": lambda: (*canonical_rules(), WRONG)}


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """The command in this process, where rules can be replaced; exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    save_text(G, "f.dlc")

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["minidlc", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return run


def test_opt_dumps_numbered_files(command: Command) -> None:
    code, out, err = command(
        "opt", "f.dlc", "--passes", "cse,canonicalize", "--dump-after-each", "d"
    )
    assert (code, err) == (0, "")
    assert parse(out) == G
    assert sorted(p.name for p in Path("d").iterdir()) == [
        "00_input.dlc",
        "01_cse.dlc",
        "02_canonicalize.dlc",
    ]


def test_the_command_of_a_reproducer_fails_again(tmp_path: Path) -> None:
    g = parse("def f(x: f32[2, 4], w: f32[4, 4]):\n    y = gemm(x, w)\n    return y")
    with pytest.raises(PassError) as caught:
        Pipeline((Fuse(max_ops=3),)).run(g, reproducer=tmp_path)
    words = shlex.split((tmp_path / "f_fuse.txt").read_text(encoding="utf-8"))
    assert words[-1] == "fuse{max_ops=3}"
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert f"error[{caught.value.code}]: {caught.value.message}" in done.stderr


def test_opt_keeps_a_reproducer(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    save_text(parse("def g(x: f32[2, 2]):\n    y = gemm(x, x)\n    return y"), "g.dlc")
    monkeypatch.setenv("MINIDLC_REPRODUCER", "kept")
    code, _, err = command("opt", "g.dlc", "--passes", "fuse")
    assert code == 1
    assert "to repeat it: minidlc opt kept/g_fuse.dlc --passes fuse".replace("/", os.sep) in err
    assert "passes that ensure it: decompose" in err


def test_bisect_names_the_rewrite(command: Command) -> None:
    """Inputs that are not given are random, of both signs: of others relu and abs are the same."""
    with mc.use(**PLANTED):
        code, out, _ = command("bisect", "f.dlc", "--save", "small.dlc")
    assert code == 1
    lines = out.splitlines()
    number = Pipeline.default().names.index("canonicalize") + 1
    assert lines[0] == f"pass {number}, 'canonicalize': rewrite 1 of 1 is wrong"
    assert lines[1] == "  = wrong at b: done"
    assert lines[2].startswith("  = output c: ")
    assert [line.strip() for line in lines[3:5]] == [
        "-    b: f32[2, 8] = relu(a)",
        "+    b: f32[2, 8] = abs(a)",
    ]
    assert lines[5] == f"  = passes: {','.join(Pipeline.default().names[:number])}{{limit=1}}"
    assert parse("\n".join(lines[7:])) == load_text("small.dlc")
    with mc.use(**PLANTED):
        code, out, _ = command("bisect", "f.dlc", "--passes", "cse,dce")
    assert (code, out.split(":")[0]) == (0, "nothing is wrong")


def test_bisect_with_expected_outputs(command: Command) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    [y] = mc.interpret(G, [x])
    np.savez("case.npz", **{"in::x": x, "out::c": y})
    args = ("bisect", "f.dlc", "--input", "case.npz", "--expected", "case.npz")
    code, out, _ = command(*args)
    assert (code, out) == (
        0,
        "nothing is wrong: every pass keeps the answer, and so does compiled code\n",
    )
    with mc.use(**PLANTED):
        code, out, _ = command(*args, "--save", "small.dlc")
    assert code == 1
    assert "  = wrong at b: done" in out
    assert [n.op.name for n in load_text("small.dlc").nodes] == ["relu"]
    np.savez("other.npz", c=y + 1)
    code, out, _ = command(*args[:-1], "other.npz")
    assert code == 1
    assert out.startswith("the graph is wrong before any pass")
    np.savez("other.npz", d=y)
    code, _, err = command(*args[:-1], "other.npz")
    assert "error[MDLC1044]: expected outputs: f has c, got d" in err
    code, _, err = command(*args[:-1], "f.dlc")
    assert (code, "error[MDLC1008]: --expected 'f.dlc'" in err) == (1, True)


def test_bisect_of_a_model_of_open_sizes(command: Command) -> None:
    onnx.save(model([node("Relu", "x", "y")], {"x": (TensorProto.FLOAT, ["N", 6])}), "m.onnx")
    code, _, err = command("bisect", "m.onnx")
    assert code == 1
    assert "the shape of input 'x' is not known" in err
    np.save("x.npy", np.ones((2, 6), np.float32))
    assert command("bisect", "m.onnx", "--input", "x=x.npy")[0] == 0
    assert command("bisect", "m.onnx", "--shape", "N=3")[0] == 0


def test_reduce_by_passes(command: Command) -> None:
    code, out, err = command("reduce", "f.dlc", "--passes", "canonicalize")
    assert code == 1
    assert "error[MDLC1045]: reduce: f is not bad as it is: is_bad says no" in err
    with mc.use(**PLANTED):
        code, out, _ = command("reduce", "f.dlc", "--passes", "canonicalize", "--save", "s.dlc")
    assert code == 0
    assert [n.op.name for n in load_text("s.dlc").nodes] == ["relu"]
    assert out.splitlines()[-1].startswith("# 3 nodes -> 1, ")
    assert parse("\n".join(out.splitlines()[:-1])) == load_text("s.dlc")


CHECK = """\
import sys
text = open(sys.argv[1]).read()
sys.exit(1 if "softmax" in text else 0)
"""


def test_reduce_by_a_command(command: Command) -> None:
    Path("check.py").write_text(CHECK)
    check = shlex.join([sys.executable, "check.py"])
    code, out, _ = command("reduce", "f.dlc", "--check", check)
    assert code == 0
    assert out.count(" = ") == 1
    assert "softmax(" in out
    code, out, _ = command("reduce", "f.dlc", "--check", check, "--tests", "2")
    assert "more would be possible: --tests" in out


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_reduce_where_the_command_dies(command: Command) -> None:
    """A signal is as bad as exit code 1, but it is another fault."""
    dies = 'sys.exit(1) if "tanh" in text and "softmax" not in text else None\n'
    dies += 'import os; os.kill(os.getpid(), 11 if "softmax" in text else 0)\n'
    Path("check.py").write_text(CHECK.replace(CHECK.splitlines(True)[-1], dies))
    code, out, _ = command("reduce", "f.dlc", "--check", shlex.join([sys.executable, "check.py"]))
    assert code == 0
    assert "softmax(" in out
    assert out.count(" = ") == 1


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ((), "give --passes or --check"),
        (("--passes", "cse", "--check", "x"), "give --passes or --check"),
        (("--check", "no_such_program_here"), "--check 'no_such_program_here': "),
        (
            ("--check", shlex.join([sys.executable, "-c", "0"])),
            "exits with 0 on the graph as it is",
        ),
        (("--check", shlex.join([sys.executable, "-c", "exit(2)"])), "exits with 2"),
    ],
)
def test_reduce_needs_one_question(command: Command, args: tuple[str, ...], part: str) -> None:
    code, _, err = command("reduce", "f.dlc", *args)
    assert code == 1
    assert "error[MDLC1046]" in err
    assert part in err


def test_explain(command: Command) -> None:
    code, out, _ = command("explain", MODEL, "--op", "Plus112", "--threads", "1")
    assert code == 0
    assert out.startswith("from ")
    assert "fold add into conv at Plus112_Output_0: done" in out
    code, _, err = command("explain", MODEL, "--op", "Plus11", "--threads", "1")
    assert code == 1
    assert "did you mean 'Plus112'?" in err
    assert "Traceback" not in err


def test_reports_of_a_whole_compilation(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("compile", MODEL, "--threads", "1")[2] == ""
    monkeypatch.setenv("MINIDLC_LOG", "passes,kernels")
    code, out, err = command("compile", MODEL, "--threads", "1")
    assert code == 0
    lines = err.splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("passes: ")]
    assert names == list(Pipeline.default().names)
    kernels = [line.removeprefix("kernels: ") for line in lines if line.startswith("kernels")]
    assert kernels == [line.strip() for line in out.splitlines() if "schedule" in line]
    monkeypatch.setenv("MINIDLC_LOG", "kernel")
    code, _, err = command("opt", MODEL)
    assert code == 1
    assert "error[MDLC1041]" in err
    assert "did you mean 'kernels'?" in err


def test_a_model_that_lies_in_the_cache_is_compiled_anew_for_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MINIDLC_CACHE", str(tmp_path))
    mc.compile(MODEL, threads=1)
    assert "from the cache" in repr(mc.compile(MODEL, threads=1))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("MINIDLC_LOG", "passes")
    mc.compile(MODEL, threads=1)
    assert capsys.readouterr().err.count("passes: ") == len(Pipeline.default().names)


@pytest.mark.parametrize(
    ("check", "part"),
    [
        ("'", '--check "\'": No closing quotation'),
        ("", "empty"),
        ("  ", "empty"),
        ("''", "--check"),
    ],
)
def test_a_command_that_is_none(command: Command, check: str, part: str) -> None:
    code, _, err = command("reduce", "f.dlc", "--check", check)
    assert code == 1
    assert "error[MDLC1046]" in err
    assert part in err


OPEN = """\
def f(x: f32["N", 8]):
    a = tanh(x)
    b = relu(a)
    return b
"""


@pytest.mark.parametrize(
    "args",
    [
        ("compile",),
        ("run",),
        ("explain", "--op", "a"),
        ("reduce", "--passes", "canonicalize"),
        ("bisect",),
        ("opt",),
        ("show",),
    ],
    ids=lambda args: args[0],
)
def test_a_text_of_open_sizes(command: Command, args: tuple[str, ...]) -> None:
    """--shape closes them in every command; without it the hint says so, and is right."""
    Path("open.dlc").write_text(OPEN)
    name, *rest = args
    planted = PLANTED if name == "reduce" else {}
    if name != "opt":  # passes take symbols
        code, _, err = command(name, "open.dlc", *rest)
        assert code == 1
        assert "error[MDLC1008]" in err
        assert "--shape N=4" in err
    with mc.use(**planted):
        code, out, err = command(name, "open.dlc", *rest, "--shape", "N=4")
    assert (code, err) == (0, "")
    if name in ("opt", "show"):
        assert parse(out).inputs[0].type.dims == (4, 8)
    code, _, err = command(name, "f.dlc", *rest, "--shape", "N=4")
    assert code == 1
    assert "--shape: all sizes of f are known" in err


def test_a_question_may_take_symbols(command: Command) -> None:
    Path("open.dlc").write_text(OPEN)
    Path("check.py").write_text(CHECK.replace("softmax", "tanh("))
    code, out, _ = command(
        "reduce", "open.dlc", "--check", shlex.join([sys.executable, "check.py"])
    )
    assert code == 0
    assert out.count(" = ") == 1


def test_a_text_ends_its_last_line(command: Command) -> None:
    assert command("opt", "f.dlc", "--passes", "dce")[1].endswith("return c\n")
    assert command("show", "f.dlc", "--level", "graph")[1].endswith("return c\n")
