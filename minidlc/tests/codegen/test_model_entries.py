"""Entries of the model cache: what a call needs to know comes back as it was written."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from minidlc.codegen.model_cache import ModelCache
from minidlc.runtime.module import LoadedModule, PositionCheck
from minidlc.runtime.spec import ArraySpec
from minidlc.support.locations import Derived, FileLoc, Loc, OnnxLoc, PyLoc

PLACES: tuple[Loc | None, ...] = (
    None,
    FileLoc("g.dlc", 2, 5, 9, "    y = gather(x, i)"),
    OnnxLoc("m.onnx", "/layer/Gather", "Gather"),
    PyLoc("model.py", 12),
    Derived("fuse", OnnxLoc("m.onnx", "a", "Relu"), (FileLoc("g.dlc", 1), PyLoc("m.py", 3))),
    Derived("rule x of", Derived("decompose", None)),
)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_places_come_back(tmp_path: Path, place: Loc | None) -> None:
    half = np.dtype(ml_dtypes.bfloat16)
    module = LoadedModule(
        objects=(b"one", b"", b"three"),
        entry="m_0",
        inputs=(ArraySpec("x", np.dtype("f4"), (2, 3), place),),
        outputs=(ArraySpec("y", half, (), place),),
        constants=np.arange(5, dtype=np.float32),
        arena_bytes=192,
        threads=3,
        checks=(PositionCheck("out of range", "0 to 4", place), PositionCheck("other")),
        long_loops=True,
        name="m",
    )
    cache = ModelCache(tmp_path)
    cache.write("key", module)
    found = cache.read("key")
    assert found is not None
    assert [s.loc for s in (*found.inputs, *found.outputs)] == [place, place]
    assert (found.inputs, found.outputs, found.checks) == (
        module.inputs,
        module.outputs,
        module.checks,
    )
    assert found.objects == module.objects
    np.testing.assert_array_equal(found.constant_bytes, module.constant_bytes)
    plain = ("entry", "arena_bytes", "threads", "long_loops", "name")
    assert [getattr(found, x) for x in plain] == [getattr(module, x) for x in plain]
    assert (cache.hits, cache.misses) == (1, 0)
    assert cache.read("another") is None
    assert (cache.hits, cache.misses) == (1, 1)
