"""Compiled models on disk: a later start needs no import, no passes, no lowering and no LLVM.

    cache = ModelCache()
    cache.write(key, module)                        # a LoadedModule
    cache.read(key)                                 # the same, its constants mapped from the file

An entry is one file: magic, checksum, sizes, a header (JSON), the objects, and from a cache line on
the constants as kernels read them, so that nothing is copied. SHA-256 covers key, header and
objects; CRC-32, which is quicker, the constants: both are compared at each read, so that an entry
with a wrong bit counts as absent. What a process has mapped stays as it was when the entry is
replaced or evicted. Nothing is pickled, but an entry is machine code: a folder that others may
write to is to be trusted as much as the package itself. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import hashlib
import json
import platform
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import llvmlite
import ml_dtypes
import numpy as np
import onnx

from minidlc.codegen.cache import EntryFolder, digest
from minidlc.expr.types import dtype
from minidlc.runtime.memory import ALIGNMENT
from minidlc.runtime.module import Bytes, LoadedModule, PositionCheck
from minidlc.runtime.spec import ArraySpec
from minidlc.support.locations import Derived, FileLoc, Loc, OnnxLoc, PyLoc

_MAGIC = b"minidlc-model-1\n"
_SIZES = struct.Struct("<QQQQ")  # header, objects, constants; CRC-32 of the constants
_START = len(_MAGIC) + hashlib.sha256().digest_size
_LOCATIONS: dict[str, Callable[..., Loc]] = {
    cls.__name__: cls for cls in (FileLoc, OnnxLoc, PyLoc, Derived)
}


def _package() -> str:
    """Digest of the source of the whole compiler; empty where it lies in no folder."""
    root = Path(__file__).parents[1]
    files = sorted(f for f in root.glob("**/*.py") if "tests" not in f.parts)
    content = hashlib.sha256()
    for f in files:
        text = f.read_bytes()
        content.update(f"{f.relative_to(root)} {len(text)}\n".encode() + text)
    return content.hexdigest() if files else ""


PACKAGE = _package()  # on import: what runs is what was read then, whatever is edited later


def versions() -> str:
    """All programs that have a part in machine code."""
    used = (np.__version__, onnx.__version__, ml_dtypes.__version__, llvmlite.__version__)
    return digest(PACKAGE, *used, sys.version, platform.machine(), sys.platform)


class ModelCache(EntryFolder):
    """The machine code and the constants of whole models."""

    kind = "models"
    suffix = "model"
    limit_bytes = 2 << 30

    def read(self, key: str) -> LoadedModule | None:
        """The model of an entry; None if there is none that can be trusted."""
        try:
            found = _decode(key, np.memmap(self.path(key), np.uint8, "r").view(np.ndarray))
        except (OSError, ValueError, LookupError, TypeError):  # absent, empty, damaged, foreign
            found = None
        return self.counted(key, found)

    def write(self, key: str, module: LoadedModule) -> None:
        """Keep an entry, replacing what is there in one step."""
        code = b"".join(module.objects)
        header = json.dumps(_header(module)).encode()
        constants = module.constant_bytes
        sizes = _SIZES.pack(len(header), len(code), constants.nbytes, zlib.crc32(constants.data))
        head = sizes + header + code
        head += bytes(-(_START + len(head)) % ALIGNMENT)
        checksum = hashlib.sha256(key.encode() + head).digest()
        self.store(key, _MAGIC, checksum, head, constants.data)


def _decode(key: str, data: Bytes) -> LoadedModule | None:
    if len(data) < _START + _SIZES.size or data[: len(_MAGIC)].tobytes() != _MAGIC:
        return None
    header, code, length, crc = _SIZES.unpack_from(data.data, _START)
    first = _START + _SIZES.size + header + code
    first += -first % ALIGNMENT
    if len(data) != first + length:
        return None
    head = data[_START:first].tobytes()
    if hashlib.sha256(key.encode() + head).digest() != data[len(_MAGIC) : _START].tobytes():
        return None
    constants = data[first:]
    if zlib.crc32(constants.data) != crc:
        return None
    text, objects = head[_SIZES.size : _SIZES.size + header], head[_SIZES.size + header :]
    return _module(json.loads(text), objects, constants)


def _header(module: LoadedModule) -> dict[str, Any]:
    checks = [[c.message, c.hint, _location(c.loc)] for c in module.checks]
    return {
        "objects": [len(code) for code in module.objects],
        "inputs": [_spec(s) for s in module.inputs],
        "outputs": [_spec(s) for s in module.outputs],
        "checks": checks,
        "donated": list(module.donated.items()),
        **{name: getattr(module, name) for name in _PLAIN},
    }


_PLAIN = ("entry", "arena_bytes", "threads", "long_loops", "name")


def _module(header: Mapping[str, Any], code: bytes, constants: Bytes) -> LoadedModule:
    objects: list[bytes] = []
    for size in header["objects"]:
        objects.append(code[:size])
        code = code[size:]
    return LoadedModule(
        objects=tuple(objects),
        inputs=tuple(_read_spec(*s) for s in header["inputs"]),
        outputs=tuple(_read_spec(*s) for s in header["outputs"]),
        constants=constants,
        donated=dict(header["donated"]),
        checks=tuple(PositionCheck(m, hint, _place(loc)) for m, hint, loc in header["checks"]),
        **{name: header[name] for name in _PLAIN},
    )


def _spec(spec: ArraySpec) -> list[Any]:
    return [spec.name, dtype(spec.dtype).name, list(spec.shape), _location(spec.loc)]


def _read_spec(name: str, element: str, shape: list[int], loc: Any) -> ArraySpec:
    return ArraySpec(name, dtype(element).numpy, tuple(shape), _place(loc))


def _location(loc: Loc | None) -> Any:
    """A location as JSON: the name of its class, and its fields."""
    if loc is None:
        return None
    if isinstance(loc, Derived):
        return ["Derived", loc.how, _location(loc.of), [_location(also) for also in loc.also]]
    return [type(loc).__name__, *vars(loc).values()]


def _place(written: Any) -> Any:
    """The location that JSON says."""
    if written is None:
        return None
    kind, *fields = written
    if kind == "Derived":
        how, of, also = fields
        return Derived(how, _place(of), tuple(map(_place, also)))
    return _LOCATIONS[kind](*fields)
