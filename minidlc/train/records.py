"""Records of named arrays in one file, found by number: a data set that need not fit into memory.

    with RecordWriter("digits.rec", {"x": mc.f32[8, 8], "y": mc.i64[()]}) as writer:
        writer.append(x=image, y=label)             # as often as there are records
    records = Records("digits.rec")                 # len(records), records[17]["x"]
    mc.train.dataset(records)                       # shuffled, in batches

    header   magic, length, CRC; JSON: version, the type of each array
    records  each: the sizes that its types leave open, then the arrays as they lie in memory
    index    of each record where it begins, its length, its CRC (20 bytes)
    footer   where the index begins, how many records, CRC of the index, magic

A size may be a symbol: `mc.u8["N"]` holds texts of any length. Every record has a checksum (CRC-32,
that of Ethernet and zip), so damage is found and named. All numbers are little-endian. The idea of
an index behind the records is that of the zip format. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Never, cast
from zlib import crc32

import numpy as np

from minidlc.expr.types import DTYPES, Array, TensorType
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.train.atomic import atomic_file

_MAGIC = b"mdlc-records\n"
_END = b"mdlc-rec-end"
_VERSION = 1
_HEAD = struct.Struct("<II")  # bytes and CRC of the JSON text
_FOOT = struct.Struct("<QQI")  # where the index begins, number of records, CRC of the index
_INDEX = np.dtype([("offset", "<u8"), ("length", "<u8"), ("crc", "<u4")])
_SIZE = np.dtype("<u4")


class RecordWriter:
    """Writes a record file; it stands under its name when the `with` block ends, else not at all.

    `schema` names the arrays of a record and their types. Raises TrainError: MDLC1265 the file
    cannot be written, MDLC1268 a schema or record that does not fit.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Mapping[str, TensorType]) -> None:
        expect("RecordWriter", "path", path, str, os.PathLike)
        expect("RecordWriter", "schema", schema, Mapping, hint='{"x": mc.f32[8, 8]}')
        if not schema:
            raise TrainError("RecordWriter: schema names no array", code="MDLC1268")
        for name, type in schema.items():
            expect("RecordWriter", f"schema[{name!r}]", type, TensorType, hint="mc.f32[8, 8]")
        self.schema = dict(schema)
        self._path = path
        self._stack = contextlib.ExitStack()
        self._file: BinaryIO | None = None
        self._index: list[tuple[int, int, int]] = []

    def __enter__(self) -> RecordWriter:
        self._file = self._stack.enter_context(atomic_file(self._path))
        text = json.dumps({"version": _VERSION, "schema": _schema_as_json(self.schema)}).encode()
        self._file.write(_MAGIC + _HEAD.pack(len(text), crc32(text)) + text)
        return self

    def append(self, **arrays: object) -> None:
        """Add a record: one array for each name of the schema, of its type."""
        number = len(self._index)
        if self._file is None:
            _refuse_record(number, "comes outside of the with block that makes the file")
        if arrays.keys() != self.schema.keys():
            got, wanted = ", ".join(arrays) or "nothing", ", ".join(self.schema)
            _refuse_record(number, f"has {got}, expected {wanted}")
        given = {name: np.asarray(array) for name, array in arrays.items()}
        parts = [_bytes_of(number, n, given[n], self.schema[n]) for n in self.schema]
        data = b"".join(parts)
        self._index.append((self._file.tell(), len(data), crc32(data)))
        self._file.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        file, self._file = self._file, None
        if kind is None and file is not None:
            index = np.array(self._index, _INDEX).tobytes()
            foot = _FOOT.pack(file.tell(), len(self._index), crc32(index))
            file.write(index + foot + _END)
        self._stack.__exit__(kind, error, trace)


class Records(Sequence[dict[str, Array]]):
    """A record file, open for reading: `records[n]` is a dict of fresh arrays.

    Threads may read at the same time. The file is mapped into memory: opening reads its index, and
    each record is read from the disk when it is asked for. Close it, or use `with`.

    Raises TrainError: MDLC1266 a file that is missing, foreign, cut off or damaged, with the place;
    MDLC1267, when a record is read, for one that is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        expect("Records", "path", path, str, os.PathLike)
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except OSError as e:
            self._refuse(f"cannot be read: {e.strerror or e}")
        self._data: mmap.mmap | bytes = data
        self._closed = False
        try:
            start = self._read_header()
            self._index = self._read_index(start)
        except TrainError:
            self.close()
            raise

    def _read_header(self) -> int:
        """Read the schema; the records begin where the header ends."""
        if self._data[: len(_MAGIC)] != _MAGIC:
            self._refuse("is no record file", "mc.train.RecordWriter writes them")
        begin = len(_MAGIC) + _HEAD.size
        if len(self._data) < begin:
            self._refuse(f"is cut off at byte {len(self._data)}, in its header")
        length, crc = _HEAD.unpack(self._data[len(_MAGIC) : begin])
        text = self._data[begin : begin + length]
        if len(text) < length:
            self._refuse(f"is cut off at byte {len(self._data)}, in its header")
        if crc32(text) != crc:
            self._refuse("has a damaged header: its checksum is wrong")
        header = json.loads(text)
        if header["version"] > _VERSION:
            self._refuse(f"is of version {header['version']}, this minidlc reads {_VERSION}")
        self.schema = {name: _type_of(fields) for name, fields in header["schema"].items()}
        return begin + length

    def _read_index(self, start: int) -> Array:
        foot_size = _FOOT.size + len(_END)
        foot = self._data[-foot_size:]
        end = len(self._data) - foot_size
        if end < start or foot[_FOOT.size :] != _END:
            text = f"has no index at its end, byte {len(self._data)}: it is cut off, or has more"
            self._refuse(f"{text} behind it")
        begin, count, crc = _FOOT.unpack(foot[: _FOOT.size])
        index = self._data[begin:end]
        if begin < start or len(index) != count * _INDEX.itemsize or crc32(index) != crc:
            self._refuse(f"has a damaged index, at byte {begin}: its checksum is wrong")
        return np.frombuffer(index, _INDEX)

    def _refuse(self, text: str, hint: str | None = None) -> Never:
        raise TrainError(f"{self.path} {text}", hint=hint, code="MDLC1266") from None

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, number: Any) -> Any:
        expect("Records", "number", number, int, np.integer)
        if self._closed:
            self._refuse("is closed")
        entry = self._index[number]  # IndexError ends a loop, as for every sequence
        begin, length = int(entry["offset"]), int(entry["length"])
        data = self._data[begin : begin + length]
        if len(data) != length or crc32(data) != entry["crc"]:
            place = int(number) % len(self)
            text = f"record {place} of {self.path} is damaged: its checksum is wrong"
            raise TrainError(f"{text} (byte {begin})", hint="write it again", code="MDLC1267")
        found: dict[str, Array] = {}
        place = 0
        for name, type in self.schema.items():
            sizes = [d for d in type.shape if not isinstance(d, int)]
            read = np.frombuffer(data, _SIZE, len(sizes), place).tolist()
            place += len(sizes) * _SIZE.itemsize
            open_sizes = iter(read)
            shape = [d if isinstance(d, int) else next(open_sizes) for d in type.shape]
            element = type.dtype.numpy.newbyteorder("<")
            array = np.frombuffer(data, element, math.prod(shape), place).reshape(shape)
            found[name] = array.astype(type.dtype.numpy)  # a copy: aligned, and it may be changed
            place += array.nbytes
        return found

    def close(self) -> None:
        """Let go of the file; reading it is an error from now on."""
        self._closed = True
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes_of(number: int, name: str, array: Array, type: TensorType) -> bytes:
    """An array as it lies in the file, its open sizes first."""
    fits = array.ndim == type.rank and all(
        not isinstance(d, int) or d == n for d, n in zip(type.shape, array.shape, strict=True)
    )
    if array.dtype != type.dtype.numpy or not fits:
        shape = ", ".join(map(str, array.shape))
        _refuse_record(number, f"has {name}: {array.dtype}[{shape}], expected {type}")
    open_sizes = [n for d, n in zip(type.shape, array.shape, strict=True) if not isinstance(d, int)]
    element = array.dtype.newbyteorder("<")
    return np.array(open_sizes, _SIZE).tobytes() + array.astype(element).tobytes()


def _refuse_record(number: int, text: str) -> Never:
    raise TrainError(f"RecordWriter: record {number} {text}", code="MDLC1268")


def _schema_as_json(schema: Mapping[str, TensorType]) -> dict[str, list[object]]:
    """Of each array the element type, then the sizes; a symbol as text."""
    return {
        name: [str(t.dtype), *(d if isinstance(d, int) else str(d) for d in t.shape)]
        for name, t in schema.items()
    }


def _type_of(fields: Sequence[object]) -> TensorType:
    element, *dims = fields
    return DTYPES[str(element)][cast("tuple[int | str, ...]", tuple(dims))]
