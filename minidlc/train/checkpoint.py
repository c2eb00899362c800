"""Checkpoints: the state of a training run in one file that is whole or not there.

    save("run.mdlt", step.state(), {"step": 100})   # arrays by name, and what JSON can say
    found = load("run.mdlt")                        # found.state, found.meta
    kept = Checkpoints("runs/digits", keep=3)       # a folder: the last three
    kept.save(100, step.state(), {}); kept.latest() # the newest that is not damaged

    magic, length, JSON: version, kit, meta, of each array name, type, shape, place
    the arrays, each at a multiple of 64 bytes, little-endian
    SHA-256 of all that

A file takes its name in one step (`atomic`), so a process may be killed at any time. What is loaded
has the very bits that were saved. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Never, cast

import numpy as np

from minidlc.expr.types import DTYPES, Array, dtype
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError, TypeRuleError
from minidlc.train.atomic import atomic_file, path_of, refusing, sweep

_MAGIC = b"mdlc-checkpoint\n"
_VERSION = 1
_HEAD = struct.Struct("<Q")  # bytes of the JSON text
_ALIGN = 64
_DIGEST = hashlib.sha256().digest_size
_NAME = re.compile(r"step-(\d+)\.mdlt")


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: arrays by name, what came with them, the minidlc that wrote it."""

    state: dict[str, Array]
    meta: dict[str, Any]
    kit: str
    path: Path


def save(
    path: str | os.PathLike[str], state: Mapping[str, Any], meta: Mapping[str, Any] | None = None
) -> None:
    """Write arrays and what JSON can say to one file, in one step.

    Raises TrainError: MDLC1265 the file cannot be written (the one before is still there), MDLC1276
    a value that is no array of numbers, or a meta that JSON cannot say: a key that is no text, too.
    A tuple in it comes back as a list.
    """
    target = path_of("save", "path", path)
    expect("save", "state", state, Mapping, hint="step.state()")
    expect("save", "meta", meta, Mapping, type(None), hint='{"step": 100}')
    arrays = {name: _array(name, value) for name, value in state.items()}
    entries: list[list[object]] = []
    place = 0
    for name, array in arrays.items():
        entries.append([name, str(dtype(array.dtype)), list(array.shape), place])
        place = _aligned(place + array.nbytes)
    text = _json(
        {
            "version": _VERSION,
            "kit": version("minidlc"),
            "meta": dict(meta or {}),
            "arrays": entries,
        }
    )
    head = _MAGIC + _HEAD.pack(len(text)) + text
    with atomic_file(path) as file, refusing(target):
        sha = hashlib.sha256()
        for part in (head, *(_little(array) for array in arrays.values())):
            padded = part + bytes(_aligned(len(part)) - len(part))
            sha.update(padded)
            file.write(padded)
        file.write(sha.digest())


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint. Raises TrainError (MDLC1275) for a file that is missing or not whole."""
    source = path_of("load", "path", path)
    try:
        data = source.read_bytes()
    except OSError as e:
        _refuse(source, f"cannot be read: {e.strerror or e}")
    except ValueError as e:  # a path with a zero byte
        _refuse(repr(str(source)), f"cannot be read: {e}")
    begin = len(_MAGIC) + _HEAD.size
    if data[: len(_MAGIC)] != _MAGIC:
        _refuse(source, "is no checkpoint of minidlc")
    if len(data) < begin + _DIGEST:
        _refuse(source, f"is cut off at byte {len(data)}")
    if hashlib.sha256(memoryview(data)[:-_DIGEST]).digest() != data[-_DIGEST:]:
        text = f"is cut off or damaged: the SHA-256 of its {len(data)} bytes is wrong"
        _refuse(source, text)
    (length,) = _HEAD.unpack(data[len(_MAGIC) : begin])
    header = json.loads(data[begin : begin + length])
    if header["version"] > _VERSION:
        _refuse(source, f"is of version {header['version']}, this minidlc reads {_VERSION}")
    first = _aligned(begin + length)
    state = {name: _read(data, first + place, *how) for name, *how, place in header["arrays"]}
    return Checkpoint(state, header["meta"], header["kit"], source)


class Checkpoints:
    """A folder of checkpoints of one run, named by step: the last `keep` of them.

    One process writes there at a time; what an earlier one left half written, the first `save`
    deletes. Steps do not fall: a run that begins anew wants a folder of its own, or `latest()`
    would give it the state of the old one. Raises TrainError: MDLC1265 the folder cannot be
    written, MDLC1278 `keep` below 1 or a step below 0, MDLC1279 a step lower than that of a
    checkpoint that is there, unless `latest()` found that one damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3) -> None:
        self.folder = path_of("Checkpoints", "folder", folder)
        expect("Checkpoints", "keep", keep, int)
        if keep < 1:
            raise TrainError(f"Checkpoints: keep is {keep}, expected 1 or more", code="MDLC1278")
        self.keep = keep
        self.refused: tuple[str, ...] = ()  # what latest() had to pass over, and why
        self._damaged: set[Path] = set()  # the files of these
        self._swept = False

    def paths(self) -> list[Path]:
        """The checkpoints there are, oldest step first."""
        files = self.folder.glob("step-*.mdlt")
        return sorted((p for p in files if _NAME.fullmatch(p.name) and p.is_file()), key=_step_of)

    def _whole(self) -> list[Path]:
        """Those that `latest()` has not found damaged."""
        return [p for p in self.paths() if p not in self._damaged]

    def check(self, step: int) -> None:
        """Raise unless `save` would take the step; a run does well to ask before it begins.

        The folder is made if it is missing.
        """
        expect("Checkpoints", "step", step, int, np.integer)
        if step < 0:
            raise TrainError(f"Checkpoints: step is {step}, below 0", code="MDLC1278")
        with refusing(self.folder):
            if self.folder.is_file():
                raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder")
            self.folder.mkdir(parents=True, exist_ok=True)
        whole = self._whole()
        if whole and _step_of(whole[-1]) > step:
            text = f"{self.folder} has {whole[-1].name} already: step {step} is behind it"
            hint = "a new run wants a new folder; one that goes on begins with latest()"
            raise TrainError(text, hint=hint, code="MDLC1279")

    def save(
        self, step: int, state: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the checkpoint of a step, then delete those that are too many."""
        self.check(step)
        if not self._swept:
            sweep(self.folder, _NAME)
            self._swept = True
        path = self.folder / f"step-{step:08d}.mdlt"
        save(path, state, meta)
        self._damaged.discard(path)
        kept = self._whole()[-self.keep :]
        for old in self.paths():
            if _step_of(old) < _step_of(kept[0]):
                old.unlink(missing_ok=True)
        return path

    def latest(self) -> Checkpoint | None:
        """The newest that is whole, None if there is none; `refused` says what others had."""
        refused: list[str] = []
        found = None
        for path in reversed(self.paths()):
            try:
                found = load(path)
                break
            except TrainError as e:
                refused.append(e.message)
                self._damaged.add(path)
        self.refused = tuple(refused)
        return found


def _step_of(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    assert found is not None, "paths() gives such names only"
    return int(found[1])


def _array(name: object, value: object) -> Array:
    """A contiguous array of an element type that the kit has."""
    expect("save", "a name in state", name, str)
    try:
        array = np.asarray(value)
    except Exception as e:  # of NumPy, or of an `__array__` of somebody's
        text = f"save: {name!r} is a {type(value).__name__} that is no array: {e}"
        raise TrainError(text, code="MDLC1276") from None
    try:
        dtype(array.dtype)
    except TypeRuleError:
        text = f"save: {name!r} is a {type(value).__name__} of {array.dtype}, no array of numbers"
        hint = "what is no array goes into meta"
        raise TrainError(text, hint=hint, code="MDLC1276") from None
    return array


def _little(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _read(data: bytes, begin: int, element: str, shape: list[int]) -> Array:
    """A fresh array of the bytes at `begin`."""
    kind = DTYPES[element].numpy
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, kind.newbyteorder("<"), count, begin).reshape(shape).astype(kind)


def _json(header: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(header)
        for key in _keys(header):
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no text")  # JSON would make one of it
        return text.encode()
    except (TypeError, ValueError, RecursionError) as e:
        text = f"save: meta cannot be written as JSON: {e}"
        hint = "numbers, texts, lists, dicts; float(x) of NumPy's numbers"
        raise TrainError(text, hint=hint, code="MDLC1276") from None


def _keys(meta: object) -> Iterator[object]:
    """The keys of all dicts in what JSON can say."""
    if isinstance(meta, Mapping):
        found = cast("Mapping[object, object]", meta)
        yield from found
        meta = list(found.values())
    if isinstance(meta, (list, tuple)):
        for part in cast("Sequence[object]", meta):
            yield from _keys(part)


def _aligned(place: int) -> int:
    return -(-place // _ALIGN) * _ALIGN


def _refuse(path: object, text: str) -> Never:
    raise TrainError(f"{path} {text}", code="MDLC1275") from None
