"""What a compiled model depends on, as a key of the cache on disk; and when there is no key.

    recipe = Recipe(threads, target, passes, fast, max_bytes)
    origin = Origin.of("model.onnx", shapes, recipe)    # None: such a model is never kept
    origin.key({"x": (4, 3)}, {})                       # of one signature; None while `use` is on

A key says the content of the model with all its files, every option, the target, and the versions
of the compiler and of what it runs on. Where something has no faithful name, there is no key: a
Graph, a pass or an op that is not the compiler's own, stages replaced by `use` (they are to be
called every time). Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError, Message

from minidlc.codegen.cache import digest
from minidlc.codegen.model_cache import PACKAGE, versions
from minidlc.expr.types import Array
from minidlc.frontend.onnx.inputs import Shapes
from minidlc.frontend.onnx.reader import source_name
from minidlc.frontend.onnx.registry import registered_converters
from minidlc.graph.op import registered_ops
from minidlc.sources import Model, Source, open_source
from minidlc.support import extension
from minidlc.support.errors import OptionError
from minidlc.support.locations import caller
from minidlc.target import Target
from minidlc.transform import Pipeline
from minidlc.transform.pass_ import Pass
from minidlc.tuning.lookup import Snapshot

_BLOCK = 1 << 16
_OUTSIDE = b"location"  # the word that tensors use which lie in another file


@dataclass(frozen=True)
class Recipe:
    """How to compile: every option that machine code depends on. `cache`: the disk may be used.

    `donate` are pairs of names: an input, and the output that goes over it. `tuned` holds the
    records of a database that decide schedules.
    """

    threads: int
    target: Target
    passes: Pipeline
    fast: bool
    max_bytes: int
    cache: bool = True
    donate: tuple[tuple[str, str], ...] = ()
    tuned: Snapshot | None = None

    @property
    def text(self) -> str | None:
        """The options as text; None if it cannot say what a pass does."""
        passes = [_name(p) for p in self.passes.passes]
        if None in passes:
            return None
        records = self.tuned.fingerprint if self.tuned else ""
        options = f"{self.fast} {self.max_bytes} {self.donate} {records}"
        return f"{self.threads} {self.target!r} {passes} {options}"


def _name(step: Pass) -> str | None:
    """A pass with its options; None if it is not the compiler's, or an option has no plain name."""
    cls = type(step)
    options = {f.name: getattr(step, f.name) for f in fields(step)}
    plain = all(map(_is_plain, options.values()))
    return f"{cls.__module__}.{cls.__qualname__} {options}" if plain and _is_own(cls) else None


def _is_plain(option: object) -> bool:
    """True for what its text says completely."""
    if isinstance(option, tuple):
        return all(map(_is_plain, option))  # pyright: ignore[reportUnknownArgumentType]
    return type(option) in (int, str, bool, float, type(None))


def _is_own(part: object) -> bool:
    """True for what this package brings."""
    module = str(getattr(part, "__module__", ""))
    return module.startswith("minidlc.") and not module.startswith("minidlc.tests.")


def only_own_parts() -> bool:
    """False if somebody has registered an op or a converter: their code is in no digest."""
    return all(map(_is_own, (*registered_ops().values(), *registered_converters().values())))


@dataclass(frozen=True)
class Origin:
    """A model that can be read again, and what it was when it was first looked at."""

    model: Model
    shapes: Shapes | None
    recipe: str
    content: str

    @staticmethod
    def of(model: Model, shapes: Shapes | None, recipe: Recipe) -> Origin | None:
        """The origin of a file, of bytes or a ModelProto; None if it cannot be told faithfully."""
        if not (recipe.cache and PACKAGE and recipe.text):
            return None
        if isinstance(model, str | os.PathLike):
            model = os.path.abspath(model)  # the process may be in another folder when it is asked
        content = _content(model, shapes)
        return None if content is None else Origin(model, shapes, recipe.text, content)

    def key(self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Array]) -> str | None:
        """The key of one signature; None while parts of the compiler are replaced or added."""
        if extension.active() or not only_own_parts():
            return None
        sizes = [(name, [int(n) for n in shape]) for name, shape in shapes.items()]
        known = [(name, str(a.dtype), a.shape, a.tobytes()) for name, a in values.items()]
        return digest(self.content, self.recipe, repr(sizes), repr(known), _versions())

    @property
    def is_unchanged(self) -> bool:
        """True if the model is still what it was."""
        return _content(self.model, self.shapes) == self.content

    def source(self) -> Source:
        """The model, read now; OptionError (MDLC1040) if it is no longer what it was."""
        if isinstance(self.model, str) and not os.path.exists(self.model):
            what = f"{os.path.basename(self.model)} is gone"
        else:
            source = open_source(self.model, self.shapes)
            if self.is_unchanged:
                return source.kept()
            what = f"{source.name} has changed"
        raise OptionError(
            f"{what} since it was compiled",
            loc=caller(),
            notes=["it started from the cache on disk, which holds machine code and constants"],
            hint="compile it again; with cache=False all levels are made at once",
            code="MDLC1040",
        )


_versions = cache(versions)


def _content(model: Model, shapes: Shapes | None) -> str | None:
    """Digest of a model with its files and given shapes; None if there is none."""
    try:
        sizes = _plain_shapes(shapes)
        match model:
            case _ if sizes is None:
                return None
            case bytes():
                parts = ("bytes", hashlib.sha256(model).hexdigest())
            case str() | os.PathLike():
                parts = ("file", *_file(Path(model)))
            case onnx.ModelProto():
                data = model.SerializeToString(deterministic=True)
                parts = ("proto", hashlib.sha256(data).hexdigest())
            case _:
                return None
    except (OSError, ValueError, TypeError, AttributeError, EncodeError, DecodeError):
        # the importer says what is wrong
        return None
    return digest(source_name(model), sizes, *parts)


def _file(path: Path) -> Iterator[str]:
    """Digest of a model file, then name and digest of each file that holds tensors of it."""
    content, outside, tail = hashlib.sha256(), False, b""
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            content.update(block)
            outside = outside or _OUTSIDE in block or _OUTSIDE in tail + block[: len(_OUTSIDE)]
            tail = block[-len(_OUTSIDE) :]
    yield content.hexdigest()
    if outside:
        model = onnx.ModelProto.FromString(path.read_bytes())
        for name in sorted(set(_locations(model))):
            with (path.parent / name).open("rb") as file:
                yield f"{name}: {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _locations(message: Message) -> Iterator[str]:
    """Files that tensors anywhere in a message lie in."""
    if isinstance(message, onnx.TensorProto):
        yield from (entry.value for entry in message.external_data if entry.key == "location")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in (value,) if isinstance(value, Message) else value:
                yield from _locations(inner)


def _plain_shapes(shapes: Shapes | None) -> str | None:
    """`shapes` as text; None for what is not plainly numbers."""
    given: list[tuple[str, object]] = []
    for name, size in (shapes or {}).items():
        sizes = (size,) if isinstance(size, int) else tuple(size)
        if type(name) is not str or any(type(n) is not int for n in sizes):
            return None
        given.append((name, size if isinstance(size, int) else sizes))
    return repr(sorted(given, key=lambda pair: pair[0]))
