"""What a kernel computes, whatever its tensors are called: the key that tuning results have.

    w = Workload.of(group, "matmul", target, threads=1)
    print(w.text)                                   # in0 = placeholder(f32[64, 64]) …
    w.key                                           # '9f0c3a…', the same for every such product

Two nodes of a model, or of two models, that compute the same on the same shapes share their best
schedule. Names are given by position: placeholders `in0`, `in1`, …, stages by what they are.
The text parses back (te/text.py), so a record can be run again without the model it came from.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from minidlc.expr.nodes import Expr, Load
from minidlc.expr.walk import rewrite
from minidlc.schedules import Group
from minidlc.support.names import Names
from minidlc.target import Target
from minidlc.te import Tensor, parse_te, print_te, stages
from minidlc.te.scan import Recurrent, Scan
from minidlc.te.tensor import WORDS


@dataclass(frozen=True)
class Workload:
    """A kernel by content: tensor expressions, kind of schedule, machine, threads.

    `anchor` is the stage that schedules are built around ("" if none), `constants` the
    placeholders that are known at compile time.
    """

    text: str
    kind: str
    anchor: str
    constants: tuple[str, ...]
    target: Target
    threads: int

    @staticmethod
    def of(group: Group, kind: str, target: Target, threads: int) -> Workload:
        """The workload of a kernel."""
        plain, names = canonical(group)
        anchor = names[group.anchor.name] if group.anchor else ""
        constants = tuple(sorted(names[name] for name in group.constants))
        return Workload(print_te(plain.outputs), kind, anchor, constants, target, threads)

    @property
    def key(self) -> str:
        """Digest of everything above."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]

    @property
    def group(self) -> Group:
        """The kernel again, from the text."""
        program = parse_te(self.text)
        anchor = program.tensors[self.anchor] if self.anchor else None
        return Group(program.outputs, anchor, frozenset(self.constants))


def is_tunable(group: Group) -> bool:
    """False for recurrences: their steps run in order, there is nothing to choose."""
    return not any(isinstance(t, (Scan, Recurrent)) for t in stages(group.outputs))


def canonical(group: Group) -> tuple[Group, Mapping[str, str]]:
    """The group with names that depend on what is computed only, and old name → new name."""
    order = stages(group.outputs)
    names, renamed = Names(WORDS), dict[str, str]()
    new = dict[str, Tensor]()
    for number, tensor in enumerate(t for t in order if t.body is None):
        renamed[tensor.name] = names.fresh(f"in{number}")
    for tensor in order:
        if tensor.body is not None:
            renamed[tensor.name] = names.fresh(tensor.name.rstrip("_0123456789") or "stage")
    for tensor in order:
        inputs = tuple(new[t.name] for t in tensor.inputs)
        body = None if tensor.body is None else _renamed(tensor.body, renamed)
        new[tensor.name] = replace(tensor, name=renamed[tensor.name], body=body, inputs=inputs)
    anchor = new[group.anchor.name] if group.anchor else None
    constants = frozenset(renamed[name] for name in group.constants if name in renamed)
    outputs = tuple(new[t.name] for t in group.outputs)
    return replace(group, outputs=outputs, anchor=anchor, constants=constants), renamed


def _renamed(body: Expr, names: Mapping[str, str]) -> Expr:
    def load(e: Expr) -> Expr:
        return replace(e, buffer=names[e.buffer]) if isinstance(e, Load) else e

    return rewrite(body, load)
