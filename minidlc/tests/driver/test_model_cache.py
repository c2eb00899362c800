"""Models that start from the cache on disk: when they do, and everything that must not be trusted.

What is counted is `compile_levels`: a start from the cache imports, lowers and compiles nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import minidlc as mc
from minidlc import driver, origin
from minidlc.codegen import cache as disk
from minidlc.codegen.model_cache import ModelCache
from minidlc.expr.types import dtype
from minidlc.support.errors import CallError, OnnxImportError, OptionError
from minidlc.target import host
from minidlc.tests.frontend.helpers import model, node
from minidlc.transform import Pipeline, graph_pass
from minidlc.transform.pass_ import unregister_pass

pytestmark = pytest.mark.llvm
F = np.float32
X = np.linspace(-1, 1, 12, dtype=F).reshape(3, 4)
W = np.linspace(-1, 2, 20, dtype=F).reshape(4, 5)


def small(scale: float = 1.0, rows: int | str = 3) -> onnx.ModelProto:
    """relu(x @ w), w a constant."""
    nodes = [node("MatMul", "x w", "t"), node("Relu", "t", "y")]
    return model(nodes, {"x": (TensorProto.FLOAT, [rows, 4])}, weights={"w": W * F(scale)})


def right(y: np.ndarray, scale: float = 1.0, x: np.ndarray = X) -> None:
    np.testing.assert_allclose(y, np.maximum(x @ (W * F(scale)), 0), rtol=1e-5, atol=1e-6)


class Compilations:
    """How often a model was compiled; the cache in use."""

    def __init__(self, models: ModelCache, monkeypatch: pytest.MonkeyPatch) -> None:
        self.models = models
        self.count = 0
        real = driver.compile_levels

        def counted(*args):
            levels = real(*args)  # ValueNeeded if the importer has to know more
            self.count += 1
            return levels

        monkeypatch.setattr(driver, "compile_levels", counted)
        monkeypatch.setattr(driver, "model_cache", models)

    def entries(self) -> list[Path]:
        return [p for p in self.models.root.glob("*/*") if p.is_file()]

    def entry(self) -> Path:
        (path,) = self.entries()
        return path


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilations:
    return Compilations(ModelCache(tmp_path / "models"), monkeypatch)


def save(path: Path, scale: float = 1.0) -> Path:
    onnx.save(small(scale), path)
    return path


@pytest.mark.parametrize("kind", ["path", "bytes", "proto"])
def test_the_second_start_compiles_nothing(kind: str, done: Compilations, tmp_path: Path) -> None:
    path = save(tmp_path / "small.onnx")
    given = {"path": path, "bytes": path.read_bytes(), "proto": small()}[kind]
    first = mc.compile(given, threads=1)
    again = mc.compile(given, threads=1)
    right(again(X)[0])
    right(again.run_dict(x=X)["y"])
    np.testing.assert_array_equal(first(X)[0], again(X)[0])
    assert done.count == 1
    assert repr(again) == repr(first).replace("1 kernels", "from the cache")
    assert list(again.specializations) == list(first.specializations)
    session = mc.session(again)
    session.set_input("x", X)
    session.run()
    right(session.get_output("y"))
    assert done.count == 1  # nothing of that needs another level


def test_levels_are_made_when_asked_for(done: Compilations, tmp_path: Path) -> None:
    path = save(tmp_path / "small.onnx")
    first = mc.compile(path)
    again = mc.compile(path)
    assert done.count == 1
    assert str(again.report()) == str(first.report())
    assert done.count == 2
    assert str(again.module) == str(first.module)
    for old, new in zip(first.kernels, again.kernels, strict=True):
        assert (old.llvm, old.asm, old.te) == (new.llvm, new.asm, new.te)
        assert new.native.object in again.loaded.objects
    assert str(again.graph) == str(first.graph)
    assert str(again.where_to("MatMul_t")) == str(first.where_to("MatMul_t"))
    assert done.count == 2
    assert "1 kernels" in repr(again)


def test_levels_are_found_from_another_folder(
    done: Compilations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "small.onnx")
    monkeypatch.chdir(tmp_path)
    mc.compile("small.onnx")
    again = mc.compile("small.onnx")
    monkeypatch.chdir("/")
    assert len(again.kernels) == 1


def test_levels_of_a_model_that_is_gone_are_refused(done: Compilations, tmp_path: Path) -> None:
    path = save(tmp_path / "small.onnx")
    mc.compile(path)
    again = mc.compile(path)
    path.unlink()
    with pytest.raises(OptionError, match=r"small\.onnx is gone") as caught:
        _ = again.kernels
    assert caught.value.code == "MDLC1040"


def test_levels_of_a_model_that_has_changed_are_refused(done: Compilations, tmp_path: Path) -> None:
    path = save(tmp_path / "small.onnx")
    mc.compile(path)
    again = mc.compile(path)
    save(path, 2.0)
    with pytest.raises(OptionError, match=r"small\.onnx has changed") as caught:
        _ = again.kernels
    assert caught.value.code == "MDLC1040"
    right(again(X)[0])  # the machine code is that of before
    right(mc.compile(path)(X)[0], 2.0)


def test_levels_are_made_without_the_parts_that_stand_in_later(
    done: Compilations, tmp_path: Path
) -> None:
    path = save(tmp_path / "small.onnx")
    mc.compile(path)
    again = mc.compile(path)
    calls = []
    with mc.use(**{"pass.cse": lambda graph: calls.append(1) or graph}):
        assert dict(again.report().overrides) == {}
    assert not calls


def test_the_key_says_everything(done: Compilations, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small().SerializeToString()
    options = [
        {},
        {"threads": 1},
        {"threads": 3},
        {"opt_level": 0},
        {"opt_level": 1},
        {"precision": "strict"},
        {"precision": "fast"},
        {"pipeline": "cse"},
        {"pipeline": "cse,fuse"},
        {"pipeline": "cse,fuse{max_ops=2}"},
        {"max_bytes": 1 << 20},
    ]
    narrow = host(4)
    if narrow != host():
        options.append({"target": narrow})
    for number, option in enumerate(options, 1):
        mc.compile(data, **option)
        assert done.count == number
        right(mc.compile(data, **option)(X)[0])
        assert done.count == number, option
    mc.compile(small(2.0).SerializeToString())
    mc.compile(small())  # its places are called by another name
    assert done.count == len(options) + 2
    monkeypatch.setattr(origin, "_versions", lambda: "another compiler")
    mc.compile(data)
    assert done.count == len(options) + 3
    assert len(done.entries()) == done.count
    monkeypatch.undo()
    assert origin._versions() == origin.versions()


def test_given_shapes_are_part_of_the_key(done: Compilations) -> None:
    data = small(rows="N").SerializeToString()
    for shapes in ({"N": 3}, {"N": 1}, {"x": (3, 4)}, {"x": [3, 4]}):
        for _ in range(2):
            exe = mc.compile(data, shapes=shapes)
            x = X[: shapes.get("N", 3)]
            right(exe(x)[0], x=x)
    assert done.count == 3  # a list is as good as a tuple


def test_a_file_written_anew_is_another_model(done: Compilations, tmp_path: Path) -> None:
    """Also one of the same size and time of change."""
    path = save(tmp_path / "small.onnx")
    before = path.stat()
    mc.compile(path)
    save(path, 2.0)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    right(mc.compile(path)(X)[0], 2.0)


def test_data_in_other_files_is_part_of_the_model(done: Compilations, tmp_path: Path) -> None:
    path = tmp_path / "outside.onnx"
    for scale in (1.0, 2.0):
        onnx.save(
            small(scale), path, save_as_external_data=True, location="w.bin", size_threshold=0
        )
        for _ in range(2):
            right(mc.compile(path)(X)[0], scale)
    assert done.count == 2
    (tmp_path / "w.bin").unlink()
    with pytest.raises(OnnxImportError, match="cannot be read"):
        mc.compile(path)


def test_a_graph_has_no_key(done: Compilations) -> None:
    x = mc.Input("x", mc.f32[3, 4])
    for _ in range(2):
        mc.compile(mc.Graph.of("g", [x], [mc.relu(x)]))
    assert done.count == 2
    assert not done.entries()


def test_replaced_stages_are_called_every_time(done: Compilations) -> None:
    data = small().SerializeToString()
    mc.compile(data)
    for _ in range(2):
        with mc.use(**{"pass.cse": lambda graph: graph}):
            exe = mc.compile(data)
        assert exe.report().overrides == {"pass.cse": 1}
    assert done.count == 3
    assert len(done.entries()) == 1
    mc.compile(data)
    assert done.count == 3


def test_parts_that_are_not_the_compilers_have_no_key(
    done: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small().SerializeToString()
    calls = []

    @graph_pass("mine", register=True)
    def mine(graph):
        calls.append(1)
        return graph

    try:
        for pipeline in ("mine", Pipeline.default().insert_after("cse", mine)):
            for _ in range(2):
                mc.compile(data, pipeline=pipeline)
    finally:
        unregister_pass("mine")
    assert len(calls) == 4
    mc.compile(data, pipeline=Pipeline.default().without("cse"))
    mc.compile(data, pipeline=Pipeline.default().without("cse"))
    assert done.count == 5  # a pipeline of the compiler's own passes has a name
    converters = {"Relu": lambda node, x: mc.relu(x)}
    monkeypatch.setattr(origin, "registered_converters", lambda: converters)
    mc.compile(data)
    mc.compile(data)
    assert done.count == 7


DAMAGES = [
    "empty",
    "half",
    "short",
    "long",
    "foreign",
    "header",
    "code",
    "constants",
    "other",
    "folder",
    "kernel",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_trusted_is_ignored(damage: str, done: Compilations) -> None:
    data = small().SerializeToString()
    mc.compile(data, threads=1)
    path = done.entry()
    good = path.read_bytes()

    def flipped(at: int) -> bytes:
        return good[:at] + bytes([good[at] ^ 16]) + good[at + 1 :]

    bad = {
        "empty": b"",
        "half": good[: len(good) // 2],
        "short": good[:-1],
        "long": good + b"\0",
        "foreign": b"#!/bin/sh\necho hello\n" * 200,
        "header": flipped(good.index(b'"arena_bytes"')),
        "code": flipped(good.index(b"\x7fELF") + 100 if b"\x7fELF" in good else len(good) // 3),
        "constants": flipped(len(good) - 5),
        "kernel": b"minidlc-kernel-2\n" + bytes(400),
    }
    if damage == "other":
        mc.compile(small(2.0).SerializeToString(), threads=1)
        (other,) = set(done.entries()) - {path}
        os.replace(other, path)
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(bad[damage])
    count = done.count
    right(mc.compile(data, threads=1)(X)[0])
    assert done.count == count + 1
    if damage != "folder":
        assert path.read_bytes() == good
        right(mc.compile(data, threads=1)(X)[0])
        assert done.count == count + 1


def test_every_bit_of_an_entry_is_checked(done: Compilations) -> None:
    mc.compile(small().SerializeToString(), threads=1)
    path = done.entry()
    good, key = path.read_bytes(), path.stem
    assert done.models.read(key) is not None
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(good), 300):
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        assert done.models.read(key) is None
    for size in rng.integers(0, len(good), 100):
        path.write_bytes(good[:size])
        assert done.models.read(key) is None


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing(
    problem: BaseException, done: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise problem

    data = small().SerializeToString()
    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "replace", fail)
        with contextlib.suppress(KeyboardInterrupt):
            right(mc.compile(data, cache=True)(X)[0])
            assert isinstance(problem, OSError)
    assert not done.entries()
    right(mc.compile(data)(X)[0])
    assert len(done.entries()) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = Compilations(ModelCache(tmp_path / "file" / "models"), monkeypatch)
    for _ in range(2):
        right(mc.compile(small())(X)[0])
    assert done.count == 2


@pytest.mark.parametrize("how", ["option", "environment"])
def test_no_cache_is_wanted(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIDLC_CACHE", "off" if how == "environment" else str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path)
    done = Compilations(ModelCache(), monkeypatch)
    for _ in range(2):
        right(mc.compile(small(), cache=how == "environment")(X)[0])
    assert done.count == 2
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OptionError, match="cache is a str"):
        mc.compile(small(), cache="no")


def test_constants_are_mapped_and_outlive_their_file(done: Compilations) -> None:
    data = small().SerializeToString()
    mc.compile(data)
    exe = mc.compile(data)
    block, where = exe.loaded._constants
    assert where % 64 == 0
    assert np.shares_memory(block, exe.loaded.constants)  # no copy
    assert not block.flags.writeable
    path = done.entry()
    good = path.read_bytes()
    done.models.store(path.stem, bytes(len(good)))  # replaced
    right(exe(X)[0])
    path.unlink()  # evicted
    gc.collect()
    right(exe(X)[0])
    right(pickle.loads(pickle.dumps(exe.loaded)).run([X])[0])


def test_a_model_from_the_cache_can_be_pickled(done: Compilations) -> None:
    data = small().SerializeToString()
    mc.compile(data)
    exe = pickle.loads(pickle.dumps(mc.compile(data)))
    right(exe(X)[0])
    assert len(exe.kernels) == 1


def test_least_recently_used_models_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Compilations(ModelCache(tmp_path / "models"), monkeypatch)
    for scale in range(1, 6):
        mc.compile(small(scale).SerializeToString(), threads=1)
    for number, path in enumerate(sorted(done.entries(), key=lambda p: p.stat().st_mtime_ns)):
        os.utime(path, (number, number))
    size = done.entries()[0].stat().st_size
    mc.compile(small(1.0).SerializeToString(), threads=1)  # used last now
    assert done.count == 5
    ModelCache(tmp_path / "models", limit=2 * size + size // 2).sweep()
    assert len(done.entries()) == 2
    mc.compile(small(1.0).SerializeToString(), threads=1)
    assert done.count == 5
    mc.compile(small(2.0).SerializeToString(), threads=1)
    assert done.count == 6


def test_each_signature_of_a_model_of_open_sizes(done: Compilations) -> None:
    data = small(rows="N").SerializeToString()
    for _ in range(2):
        exe = mc.compile(data)
        for n in (1, 3, 2, 3):
            right(exe(X[:n])[0], x=X[:n])
        assert len(exe.specializations) == 3
        assert str(exe.report()).count("compiled for") == 3
    assert done.count == 3 + 1  # the report asks for the levels of one


def test_values_that_decide_shapes(done: Compilations) -> None:
    """The values are part of the key, and of what a call compares."""
    nodes = [node("Reshape", "x s", "y")]
    data = model(nodes, {"x": X, "s": (TensorProto.INT64, [2])}).SerializeToString()
    for _ in range(2):
        exe = mc.compile(data)
        for shape in ([4, 3], [2, -1]):
            np.testing.assert_array_equal(exe(X, np.array(shape))[0], X.reshape(shape))
        one = exe.specialize({"s": np.array([4, 3])})
        with pytest.raises(CallError, match="its value decides") as caught:
            one(X, np.array([3, 4]))
        assert caught.value.code == "MDLC0916"
    assert done.count == 2


def test_errors_of_a_call_are_the_same(done: Compilations) -> None:
    """Positions out of range, with the place in the model; and names of the ONNX file."""
    nodes = [node("Gather", "x i", "y", name="pick")]
    inputs = {"x": X, "i": (TensorProto.INT64, [2])}
    data = model(nodes, inputs).SerializeToString()
    texts = []
    for _ in range(2):
        exe = mc.compile(data)
        for bad in ([0, 9], [0.5, 1.0], [1]):
            with pytest.raises(CallError) as caught:
                exe(X, np.array(bad))
            texts.append(str(caught.value).split("test_model_cache")[0])
        np.testing.assert_array_equal(exe(X, np.array([2, -1]))[0], X[[2, -1]])
    assert texts[:3] == texts[3:]
    assert "pick" in texts[0]
    assert done.count == 1
    odd = model([node("Relu", "x:0", "y:0")], {"x:0": X}, ["y:0"]).SerializeToString()
    for _ in range(2):
        exe = mc.compile(odd)
        np.testing.assert_array_equal(exe(**{"x:0": X})[0], np.maximum(X, 0))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "i8", "u16", "i64", "bool"])
def test_element_types_scalars_and_empty_arrays(name: str, done: Compilations) -> None:
    element = dtype(name).numpy
    onnx_type = helper.np_dtype_to_tensor_dtype(element)
    arrays = {"a": np.ones((2, 3), element), "b": np.zeros((), element), "c": np.ones(0, element)}
    nodes = [node("Identity", n, f"y{n}") for n in arrays]
    inputs = {n: (onnx_type, a.shape) for n, a in arrays.items()}
    data = model(nodes, inputs, "ya yb yc").SerializeToString()
    for _ in range(2):
        for got, want in zip(mc.compile(data)(arrays), arrays.values(), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            assert (got == want).all()
    assert done.count == 1


def test_names_that_are_no_ascii(done: Compilations) -> None:
    w = numpy_helper.from_array(W, "größe")
    proto = small()
    proto.graph.initializer[0].CopyFrom(w)
    proto.graph.node[0].input[1] = "größe"
    proto.graph.name = "модель"
    for _ in range(2):
        right(mc.compile(proto)(X)[0])
    assert done.count == 1


TWO = """
import sys
import numpy as np
import minidlc as mc
from minidlc import driver
path = sys.argv[1]
sys.stdin.readline()
for _ in range(3):
    driver.model_cache.sweep()
    y, = mc.compile(path, threads=1)(np.ones((3, 4), np.float32))
    print(y[0].tolist())
"""


def test_two_processes_at_once(tmp_path: Path) -> None:
    path = save(tmp_path / "small.onnx")
    environment = {**os.environ, "MINIDLC_CACHE": str(tmp_path / "cache")}
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(path)],
            env=environment,
            text=True,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        for _ in range(2)
    ]
    results = [process.communicate("go\n", timeout=60) for process in running]
    lines = [line for out, _ in results for line in out.splitlines()]
    assert len(lines) == 6, results
    assert len(set(lines)) == 1
    models = list((tmp_path / "cache" / "models").glob("*/*"))
    assert len(models) == 1
    assert models[0].suffix == ".model"
