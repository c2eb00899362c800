"""A graph before and after a pass: what stayed, what went, what came, and what became what.

    found = compare(before, after)
    found.kept                                      # {'relu_1': 'relu_1', …}: box before -> after
    [(c.kind, c.old, c.new) for c in found.changes] # [('merged', ('exp_1', 'exp_2'), ('exp_1',))]
    found.counts()                                  # {'merged': 2, 'into': 1}

What stayed is recognised (recognise.py). What its readers read now in the place of a box that went
tells what that became; names and locations (`Derived`) tell the rest. Reads two graphs, writes keys
of boxes. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.structure import constant_key, op_key
from minidlc.viz.boxes import attributes_text, type_text
from minidlc.viz.recognise import (
    Side,
    comes_from,
    members_of,
    recognised,
    same_frames,
    same_place,
)

KINDS = ("removed", "added", "merged", "into", "changed")  # in the order in which they are counted


@dataclass(frozen=True)
class Change:
    """Boxes `old` became boxes `new`. `note` says more, in words.

    `removed` and `added` have only one side, or (what was replaced) both; `merged`: several boxes
    became one, or (with a `frame`) one kernel; `changed`: same op, other attributes or type.
    """

    kind: str
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    note: str = ""
    frame: str = ""  # of the graph after


@dataclass(frozen=True)
class Comparison:
    """What two graphs have in common, and what not; boxes by their keys."""

    kept: Mapping[str, str]
    changes: tuple[Change, ...]
    frames: Mapping[str, str]  # frame before -> the same frame after

    def counts(self) -> dict[str, int]:
        """Boxes by kind; `merged` counts those that were merged, `into` what they became."""
        found: Counter[str] = Counter()
        for c in self.changes:
            found["removed"] += len(c.old) * (c.kind == "removed")
            found["added"] += len(c.new) * (c.kind in ("removed", "added"))
            found["merged"] += len(c.old) * (c.kind == "merged")
            found["into"] += c.kind == "merged"
            found["changed"] += c.kind == "changed"
        return {kind: found[kind] for kind in KINDS if found[kind]}


def compare(before: Graph, after: Graph) -> Comparison:
    """Recognise the boxes of one graph in the other."""
    old, new = Side.of(before), Side.of(after)
    kept = recognised(old, new)
    frames = same_frames(old, new, kept)
    changes = [*_Search(old, new, kept).changes(), *_kernels(old, new, kept, frames)]
    return Comparison(kept, tuple(changes), frames)


def _kernels(
    old: Side, new: Side, kept: Mapping[str, str], frames: Mapping[str, str]
) -> Iterator[Change]:
    """New groups: several ops became one kernel."""
    came_from = {after: before for before, after in kept.items()}
    known = set(frames.values())
    for frame, members in members_of(new).items():
        if frame not in known and not new.shown.frames[frame].op:
            sources = tuple(came_from[m] for m in members if m in came_from)
            region = new.shown.frames[frame].region
            how = "go to another back end" if region else "run as one kernel"
            note = f"{len(members)} ops {how}"
            yield Change("merged", sources, tuple(members), note, frame)


@dataclass
class _Search:
    """Sorts boxes that went and boxes that came into groups that belong together."""

    old: Side
    new: Side
    kept: dict[str, str]
    group: dict[str, int] = field(default_factory=dict[str, int])  # "− key" or "+ key" -> number
    instead: dict[str, Value] = field(default_factory=dict[str, Value])  # went -> read instead
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # of kept boxes

    def changes(self) -> Iterator[Change]:
        """Every change, in the order of the boxes."""
        gone = [key for key in self.old.ops if key not in self.kept]
        stayed = set(self.kept.values())
        came = [key for key in self.new.ops if key not in stayed]
        self.group = {name: n for n, name in enumerate([f"−{k}" for k in gone])}
        self.group |= {f"+{k}": len(gone) + n for n, k in enumerate(came)}
        self._ask_readers()
        self._ask_names(gone, came)
        self._ask_locations(gone, came)
        groups: dict[int, tuple[list[str], list[str]]] = {}
        for name, number in self.group.items():
            groups.setdefault(number, ([], []))[name[0] == "+"].append(name[1:])
        twins: dict[tuple[str, ...], Change] = {}  # several may be merged into one that stayed
        for change in [self._change(old, new) for old, new in groups.values()]:
            if change.kind == "merged" and change.old[0] in self.kept:
                first = twins.get(change.new)
                if first:
                    names, note = change.old[1:], f"{first.note}; {change.note}"
                    change = replace(first, old=(*first.old, *names), note=note)
                twins[change.new] = change
            else:
                yield change
        yield from twins.values()
        yield from self._kept_but_changed()

    def _join(self, a: str, b: str) -> None:
        """Put the groups of two names together."""
        here, there = self.group[a], self.group[b]
        if here != there:
            self.group = {k: here if n == there else n for k, n in self.group.items()}

    def _ask_readers(self) -> None:
        """What do readers that stayed read now, where they read what went?"""
        now = dict(self.new.readers())
        for key, read in self.old.readers():
            stayed = self.kept.get(key) if key in self.old.ops else key
            after = now.get(stayed or "", ())
            if len(after) != len(read):
                continue
            for was, now_read in zip(read, after, strict=True):
                self._compare_operands(key, was, now_read)

    def _compare_operands(self, reader: str, was: Value, now: Value) -> None:
        a, b = self.old.made_by.get(was, ""), self.new.made_by.get(now, "")
        if f"−{a}" in self.group:
            self.instead.setdefault(a, now)
            if f"+{b}" in self.group:
                self._join(f"−{a}", f"+{b}")
        elif f"+{b}" in self.group or reader not in self.kept:
            return  # something was put between, or the reader is no op
        elif not self._same_operand(was, now):
            note = f"reads {now.name} instead of {was.name}"
            self.notes.setdefault(reader, []).append(note)

    def _ask_names(self, gone: Sequence[str], came: Sequence[str]) -> None:
        """A pass gives what it makes the name of what it replaces: the n-th of each is a pair."""
        named: dict[Hashable, list[str]] = {}
        for key in came:
            named.setdefault(self.new.node(key).name, []).append(key)
        for key in gone:
            node = self.old.node(key)
            found = named.get(node.name, [])
            for other in sorted(found, key=lambda k: self.new.node(k).op.name != node.op.name):
                if comes_from(self.new.node(other), node):
                    self._join(f"−{key}", f"+{other}")
                    found.remove(other)
                    break

    def _ask_locations(self, gone: Sequence[str], came: Sequence[str]) -> None:
        """What has no partner yet goes with its readers, if it was made from the same place."""
        for sign, side, keys in (("+", self.new, came), ("−", self.old, gone)):
            readers: dict[str, list[str]] = {}
            for key, read in side.readers():
                for v in read:
                    readers.setdefault(side.made_by.get(v, ""), []).append(key)
            for key in reversed(keys):
                if (sign == "−" and key in self.instead) or self._has_both(sign + key):
                    continue
                for reader in readers.get(key, ()):
                    if f"{sign}{reader}" in self.group and self._same_place(sign, key, reader):
                        self._join(f"{sign}{reader}", f"{sign}{key}")
                        break

    def _has_both(self, name: str) -> bool:
        """True if something went and something came in the group of a name."""
        return len({k[0] for k, n in self.group.items() if n == self.group[name]}) == 2

    def _same_place(self, sign: str, key: str, reader: str) -> bool:
        """True if boxes that came in the reader's group were made from the place of `key`."""
        side = self.new if sign == "+" else self.old
        number = self.group[f"{sign}{reader}"]
        made = [k[1:] for k, n in self.group.items() if n == number and k[0] == "+"]
        return any(same_place(self.new.node(m).loc, side.node(key).loc) for m in made)

    def _change(self, old: list[str], new: list[str]) -> Change:
        """The change of one group."""
        if not old:
            return Change("added", new=tuple(new))
        if not new:
            return self._removal(old[0])
        names = _list([_title(self.old.node(k)) for k in old])
        if len(new) > 1:
            return Change("removed", tuple(old), tuple(new), f"{names} became {len(new)} ops")
        before, after = self.old.node(old[-1]), self.new.node(new[0])
        if len(old) > 1:
            return Change("merged", tuple(old), tuple(new), f"{names} became {after.op.name}")
        if before.op.name == after.op.name:
            notes = [*_differences(before, after), *self._other_operands(old[0], new[0])]
            return Change("changed", tuple(old), tuple(new), "; ".join(notes))
        return Change("removed", tuple(old), tuple(new), f"{names} became {after.op.name}")

    def _other_operands(self, old: str, new: str) -> list[str]:
        """'reads x instead of y', of two nodes of one op."""
        a, b = self.old.ops[old].reads, self.new.ops[new].reads
        if len(a) == len(b) and all(map(self._same_operand, a, b)):
            return []
        names = [_list([v.name for v in read]) for read in (b, a)]
        if sorted(v.name for v in a) == sorted(v.name for v in b):
            return ["operands in another order"]
        return [f"reads {names[0]} instead of {names[1]}"]

    def _same_operand(self, was: Value, now: Value) -> bool:
        """True if the one became the other."""
        a, b = self.old.made_by.get(was, ""), self.new.made_by.get(now, "")
        if isinstance(was, Constant) and isinstance(now, Constant):
            return was is now or constant_key(was) == constant_key(now)
        if f"−{a}" in self.group:
            return self.group[f"−{a}"] == self.group.get(f"+{b}")
        return f"+{b}" not in self.group and self.kept.get(a, a if a.startswith("in ") else b) == b

    def _removal(self, key: str) -> Change:
        """A box that nothing new stands for: merged into an equal one, or gone."""
        now = self.instead.get(key)
        if now is None:
            read_it = [
                r
                for r, read in self.old.readers()
                if any(self.old.made_by.get(v) == key for v in read)
            ]
            note = f"only {_list(read_it)} read it" if read_it else "nothing reads it"
            return Change("removed", (key,), note=note)
        if isinstance(now, Constant):
            return Change("removed", (key,), note=f"is the constant {now.name} now")
        twin = self.new.made_by.get(now, "")
        before = next((k for k, v in self.kept.items() if v == twin), None)
        node = self.old.node(key)
        if before is not None and op_key(self.old.node(before).op) == op_key(node.op):
            note = f"{node.name} is the same as {now.name}"
            return Change("merged", (before, key), (twin,), note)
        return Change("removed", (key,), note=f"its readers read {now.name}")

    def _kept_but_changed(self) -> Iterator[Change]:
        for key, other in self.kept.items():
            notes = _differences(self.old.node(key), self.new.node(other))
            notes += self.notes.get(key, [])
            if notes:
                yield Change("changed", (key,), (other,), "; ".join(notes))


def _title(node: Node) -> str:
    """'conv h1', or 'conv' of a conv that is called so."""
    return node.op.name if node.name == node.op.name else f"{node.op.name} {node.name}"


def _list(names: Sequence[str]) -> str:
    """'a, b, c' of at most four names."""
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])]) or "nothing"


def _differences(a: Node, b: Node) -> list[str]:
    """In what two nodes of one op differ, bodies apart: 'axis=0 → axis=1', a type."""
    found: list[str] = []
    if a.op is not b.op:
        texts = attributes_text(a.op), attributes_text(b.op)
        found += [f"{texts[0] or 'defaults'} → {texts[1] or 'defaults'}"] * (texts[0] != texts[1])
    if a.type != b.type:
        found.append(f"{type_text(a.type)} → {type_text(b.type)}")
    return found
