"""Fixed cost tables: kernels of which thousands of points were measured once, for good.

    table = Table.load("gemm_512")                  # shipped: names() lists them
    trials = explore(TableProblem(table), RandomSearch(), trials=64, seed=0)
    best(trials).cost / table.best                  # 1.08: 8 % off the best of all points

On a table a search takes no time and has the same answer everywhere, so that searches and models
can be compared over many seeds. The file (.npz) holds, of each point, the number of its way, its
knobs, seconds, fate and features, and a header in JSON: kernel, machine, date, how it was measured,
the kit's version. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.arguments import expect
from minidlc.support.errors import TuneError, nearest
from minidlc.support.names import is_name
from minidlc.tuning.listed import Listed
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

TABLES = Path(__file__).parent / "tables"
_FORMAT = 1
_FATES = tuple(Fate)


@dataclass(frozen=True)
class Table:
    """Points, seconds f64[n] (infinite where failed), fates, features f64[n, f] and their names.

    `about` says what was measured: kernel, machine, threads, date, how, kit.
    """

    name: str
    configs: tuple[Config, ...]
    costs: Array
    fates: tuple[Fate, ...]
    features: Array
    feature_names: tuple[str, ...]
    about: Mapping[str, str]

    @cached_property
    def space(self) -> Listed:
        """The points that were measured; no other is allowed."""
        return Listed.of(self.configs)

    @cached_property
    def best(self) -> float:
        """Least seconds of all points."""
        return float(self.costs.min())

    @cached_property
    def rows(self) -> Mapping[Config, int]:
        """The row of each point."""
        return {config: row for row, config in enumerate(self.configs)}

    @staticmethod
    def of(
        task: Task,
        trials: Sequence[Trial],
        features: Array,
        name: str,
        how: str,
        *,
        date: str = "",
        feature_names: Sequence[str] = FEATURES,
    ) -> Table:
        """The table of a task's trials and their features, f64[trials, f], rows in the same order.

        `how` says how they were measured, `date` (YYYY-MM-DD) when, today if empty. TuneError
        (MDLC1332) if they make no table.
        """
        about = {
            "kernel": task.workload.text,
            "kind": task.kind,
            "machine": str(task.target),
            "threads": str(task.threads),
            "date": date or str(datetime.date.today()),
            "how": how,
            "kit": version("minidlc"),
        }
        rows = np.asarray(features, np.float64)
        costs = np.array([t.cost for t in trials])
        table = Table(
            name,
            tuple(t.config for t in trials),
            costs,
            tuple(t.fate for t in trials),
            rows,
            tuple(feature_names),
            about,
        )
        if problem := table.fault():
            raise TuneError(f"no table {name!r}: {problem}", code="MDLC1332")
        return table

    def fault(self) -> str | None:
        """What keeps this from being a table; None if nothing does."""
        count, ran = len(self.configs), np.isfinite(self.costs)
        wanted = (count, len(self.feature_names))
        values = [v for c in self.configs for _, v in c.knobs]
        if not is_name(self.name):
            return "its name is none of Python"
        if self.costs.shape != (count,) or len(self.fates) != count or not ran.any():
            return f"{count} points, {int(ran.sum())} that ran, {len(self.fates)} fates"
        if self.features.shape != wanted:
            return f"features of shape {self.features.shape}, expected {wanted}"
        if len(set(self.configs)) < count:
            return "a point stands twice"
        if any(abs(v) > np.iinfo(np.int16).max for v in values):
            return "a knob does not fit 16 bits"
        if not (self.costs > 0).all() or any(
            (fate is Fate.OK) != bool(ok) for fate, ok in zip(self.fates, ran, strict=True)
        ):
            return "a point has a fate and a cost that do not belong together"
        return None

    def save(self, path: str | Path | None = None) -> Path:
        """Write the file, None: among those that the kit ships; the same table, the same bytes.

        Costs and features become f32.
        """
        expect("Table.save", "path", path, str, Path, type(None))
        to = TABLES / f"{self.name}.npz" if path is None else Path(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        ways = {c.way: [n for n, _ in c.knobs] for c in self.configs}
        names = list(ways)
        width = max(map(len, ways.values()))
        knobs = np.zeros((len(self.configs), width), np.int16)
        for row, config in zip(knobs, self.configs, strict=True):
            row[: len(config.knobs)] = [v for _, v in config.knobs]
        header = {
            "format": _FORMAT,
            "name": self.name,
            "ways": ways,
            "fates": _FATES,
            "features": self.feature_names,
            "about": dict(self.about),
        }
        text = json.dumps(header, ensure_ascii=False).encode()
        np.savez_compressed(
            to,
            header=np.frombuffer(text, np.uint8),
            ways=np.array([names.index(c.way) for c in self.configs], np.uint8),
            knobs=knobs,
            seconds=self.costs.astype(np.float32),
            fates=np.array([_FATES.index(f) for f in self.fates], np.uint8),
            features=self.features.astype(np.float32),
        )
        return to

    @staticmethod
    def load(table: str | Path) -> Table:
        """A shipped table by name, or the file of a path that ends in .npz.

        TuneError: MDLC1330 if there is none, MDLC1331 if the file is damaged.
        """
        expect("Table.load", "table", table, str, Path)
        path = Path(table) if Path(table).suffix == ".npz" else TABLES / f"{table}.npz"
        if not path.is_file() or (path.parent == TABLES and path.stem not in names()):
            hint = nearest(str(table), names()) or "no table is shipped"
            raise TuneError(f"no cost table {str(table)!r}", hint=hint, code="MDLC1330")
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                return _read({name: file[name] for name in file.files})
        except Exception as e:  # zip, zlib, NumPy and JSON raise what they like
            text = f"the cost table {str(path)!r} is damaged: {type(e).__name__}: {e}"
            raise TuneError(text, code="MDLC1331") from e


def _read(arrays: Mapping[str, Array]) -> Table:
    header = json.loads(arrays["header"].tobytes().decode())
    if header["format"] != _FORMAT:
        raise ValueError(f"format {header['format']}, expected {_FORMAT}")
    ways, names = header["ways"], list(header["ways"])
    if arrays["knobs"].shape[1] != max(map(len, ways.values())):
        raise ValueError(f"knobs of shape {arrays['knobs'].shape}")
    configs = tuple(
        Config(names[way], tuple(zip(ways[names[way]], map(int, knobs), strict=False)))
        for way, knobs in zip(arrays["ways"], arrays["knobs"], strict=True)
    )
    table = Table(
        header["name"],
        configs,
        arrays["seconds"].astype(np.float64),
        tuple(Fate(header["fates"][int(number)]) for number in arrays["fates"]),
        arrays["features"].astype(np.float64),
        tuple(header["features"]),
        header["about"],
    )
    if problem := table.fault():
        raise ValueError(problem)
    return table


def names() -> list[str]:
    """The tables that come with the kit."""
    return sorted(path.stem for path in TABLES.glob("*.npz"))


@dataclass(frozen=True)
class TableProblem:
    """A table as something to be tuned: measuring is looking up."""

    table: Table

    @property
    def space(self) -> Listed:
        """The points of the table."""
        return self.table.space

    def features(self, configs: Sequence[Config]) -> Array:
        """f64[n, len(FEATURES)] from the file, by name; as they are where it lacks some of them."""
        rows = self.table.features[[self._row(c) for c in configs]]
        names = self.table.feature_names
        if not set(FEATURES) <= set(names):
            return rows
        return rows[:, [names.index(name) for name in FEATURES]]

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        """What became of the points when the table was measured."""
        return [self._trial(c, self._row(c)) for c in configs]

    def _row(self, config: Config) -> int:
        return self.table.rows[self.space.check(config)]

    def _trial(self, config: Config, row: int) -> Trial:
        fate, cost = self.table.fates[row], float(self.table.costs[row])
        if math.isfinite(cost):
            return Trial(config, fate, (cost,))
        return Trial(config, fate, reason="it failed when the table was measured")
