"""What a data set is made of: stages that say what element n of epoch e is.

    stage = Batch(Shuffle(Arrays({"x": x, "y": y}), seed=0), size=64, drop_last=True)
    len(stage)                                      # batches in an epoch
    stage.at(epoch=3, n=17)                         # batch 17 of epoch 3: the same whenever asked

Nothing is remembered from one element to the next. So any number of workers may compute elements in
any order, and training resumes in the middle of an epoch at no cost. Random augmentation fits in: a
generator is made from (seed, epoch, index of the record). The idea is that of counter-based random
numbers: Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Treated in
course chapter 03_autodiff.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, TracebackType
from typing import Any, Never, cast

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TrainError
from minidlc.support.locations import PyLoc


class Stage(ABC):
    """A number of elements for each epoch; `str` names the stages that they went through."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def at(self, epoch: int, n: int) -> Any:
        """Element `n` of the epoch."""

    def many(self, epoch: int, numbers: Sequence[int] | Array) -> Any:
        """Several elements, stacked on a new first axis."""
        return stacked([self.at(epoch, int(n)) for n in numbers], [int(n) for n in numbers])

    def index(self, epoch: int, n: int) -> int:
        """Which record of the source element `n` comes from (batches: their own number)."""
        return n

    def is_rest(self, epoch: int, n: int) -> bool:
        """Is element `n` a last batch, smaller than the others?"""
        return False


@dataclass(frozen=True)
class Arrays(Stage):
    """Arrays of equal length: record n is row n of each."""

    arrays: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def at(self, epoch: int, n: int) -> dict[str, Array]:
        return {name: array[n] for name, array in self.arrays.items()}

    def many(self, epoch: int, numbers: Sequence[int] | Array) -> dict[str, Array]:
        for name, array in self.arrays.items():
            if array.dtype.hasobject:
                _refuse(f"batch: {name!r} holds objects of Python, no numbers")
        return {name: array[np.asarray(numbers)] for name, array in self.arrays.items()}

    def __str__(self) -> str:
        return f"arrays({', '.join(self.arrays)}: {len(self)})"


@dataclass(frozen=True)
class Items(Stage):
    """A Python sequence, such as a list or a record file."""

    items: Sequence[Any]

    def __len__(self) -> int:
        return len(self.items)

    def at(self, epoch: int, n: int) -> Any:
        return self.items[n]

    def __str__(self) -> str:
        return f"{type(self.items).__name__.lower()}({len(self)})"


@dataclass(frozen=True)
class Windows(Stage):
    """Pieces of one array: window n begins at n * stride."""

    array: Array
    length: int
    stride: int

    def __len__(self) -> int:
        return max(0, (len(self.array) - self.length) // self.stride + 1)

    def at(self, epoch: int, n: int) -> Array:
        return self.array[n * self.stride : n * self.stride + self.length]

    def __str__(self) -> str:
        return f"windows({len(self.array)}, {self.length}, {self.stride})"


@dataclass(frozen=True)
class Shuffle(Stage):
    """All elements in an order of their own for each epoch: a permutation of all numbers.

    Fisher and Yates' shuffle, as in NumPy, with random numbers from (seed, epoch).
    """

    below: Stage
    seed: int
    _last: list[tuple[int, Array]] = field(default_factory=list[tuple[int, Array]], compare=False)

    def __len__(self) -> int:
        return len(self.below)

    def order(self, epoch: int) -> Array:
        """Which elements of the stage below come first, second, …; the last order is kept."""
        known = tuple(self._last)
        if known and known[0][0] == epoch:
            return known[0][1]
        order = generator(self.seed, epoch).permutation(len(self.below))
        self._last[:] = [(epoch, order)]  # two threads may both make it: it is the same one
        return order

    def at(self, epoch: int, n: int) -> Any:
        return self.below.at(epoch, int(self.order(epoch)[n]))

    def many(self, epoch: int, numbers: Sequence[int] | Array) -> Any:
        return self.below.many(epoch, self.order(epoch)[np.asarray(numbers)])

    def index(self, epoch: int, n: int) -> int:
        return self.below.index(epoch, int(self.order(epoch)[n]))

    def is_rest(self, epoch: int, n: int) -> bool:
        return self.below.is_rest(epoch, int(self.order(epoch)[n]))

    def __str__(self) -> str:
        return f"{self.below} > shuffle({self.seed})"


@dataclass(frozen=True)
class Map(Stage):
    """A function of each element; with a seed it takes a random generator as well."""

    below: Stage
    function: Callable[..., Any]
    seed: int | None

    def __len__(self) -> int:
        return len(self.below)

    def at(self, epoch: int, n: int) -> Any:
        index = self.below.index(epoch, n)
        element = self.below.at(epoch, n)
        try:
            if self.seed is None:
                return self.function(element)
            return self.function(element, generator(self.seed, epoch, index))
        except Exception as e:
            text = f"map: {self._name} failed on record {index}: {type(e).__name__}: {e}"
            line = _line_of(self.function, e.__traceback__)
            notes = (f"epoch {epoch}, element {n}",)
            raise TrainError(text, loc=line, notes=notes, code="MDLC1271") from e

    def index(self, epoch: int, n: int) -> int:
        return self.below.index(epoch, n)

    def is_rest(self, epoch: int, n: int) -> bool:
        return self.below.is_rest(epoch, n)

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", {self.seed}"
        return f"{self.below} > map({self._name}{seed})"


@dataclass(frozen=True)
class Batch(Stage):
    """So many elements at a time, stacked; the last batch has the rest, or is dropped."""

    below: Stage
    size: int
    drop_last: bool

    def __len__(self) -> int:
        full, rest = divmod(len(self.below), self.size)
        return full + (rest > 0 and not self.drop_last)

    def at(self, epoch: int, n: int) -> Any:
        return self.below.many(
            epoch, range(n * self.size, min((n + 1) * self.size, len(self.below)))
        )

    def is_rest(self, epoch: int, n: int) -> bool:
        return (n + 1) * self.size > len(self.below)

    def __str__(self) -> str:
        return f"{self.below} > batch({self.size}{', drop_last' if self.drop_last else ''})"


def generator(seed: int, *place: int) -> np.random.Generator:
    """Random numbers for one place, independent of those for all others (NumPy's SeedSequence)."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=place))


def stacked(elements: Sequence[Any], numbers: Sequence[int]) -> Any:
    """Elements of one form as one: dicts and tuples part by part, arrays on a new first axis.

    Dicts and tuples may hold others. Raises TrainError (MDLC1272) for elements that differ in their
    parts, shapes or types, and for what is no array, such as None.
    """
    first = _form(elements[0], numbers[0])
    for element, n in zip(elements, numbers, strict=True):
        if (form := _form(element, n)) != first:
            text = f"batch: element {n} is {form}, but element {numbers[0]} is {first}"
            _refuse(text, "a map before the batch can bring them to one size")
    return _joined(elements)


def _joined(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Mapping):
        names = list(cast("Mapping[str, Any]", first))
        return {name: _joined([part[name] for part in parts]) for name in names}
    if isinstance(first, tuple):
        return tuple(_joined(part) for part in zip(*parts, strict=True))
    return np.stack(parts)


def _form(element: Any, n: int) -> str:
    """The parts, types and shapes of element `n` as text."""
    if isinstance(element, Mapping):
        parts = cast("Mapping[str, Any]", element).items()
        return f"{{{', '.join(f'{name}: {_form(part, n)}' for name, part in parts)}}}"
    if isinstance(element, tuple):
        return f"({', '.join(_form(part, n) for part in cast('tuple[Any, ...]', element))})"
    try:
        array = np.asarray(element)
    except Exception as e:  # of NumPy, or of an `__array__` of somebody's
        _refuse(f"batch: element {n} has a {type(element).__name__} that is no array: {e}")
    if array.dtype.hasobject:
        hint = "does the function given to map return its result?" if element is None else None
        kind = "None" if element is None else f"a {type(element).__name__}"
        _refuse(f"batch: element {n} has {kind}, which is no array", hint)
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _refuse(text: str, hint: str | None = None) -> Never:
    raise TrainError(text, hint=hint, code="MDLC1272") from None


def _line_of(function: Callable[..., Any], trace: TracebackType | None) -> PyLoc | None:
    """The line of the function's own file at which it raised; None for one that is not Python's."""
    code: CodeType | None = getattr(function, "__code__", None)
    found = None
    while trace is not None:
        at = trace.tb_frame.f_code
        if code is not None and at.co_filename == code.co_filename:
            found = PyLoc(at.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found
