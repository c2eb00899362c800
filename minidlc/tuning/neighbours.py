"""Layouts of neighbouring convolutions chosen together, from the times of their kernels.

    seconds = prices(graph, 16, [plain_kernels, blocked_kernels])   # each: (kernel, seconds) pairs
    found = plan(graph, 16, seconds)                # graph: as it goes into the layout pass
    found.plain, found.seconds                      # ('conv_3',), 0.0041
    Layout(block=16, plain=found.plain)

A convolution costs what its kernel takes, in blocks of channels or plain; an image read in the
other layout costs a move, once however many read it. Ops between convolutions go as the layout pass
takes them: in blocks if all their images are there in blocks, as at the add of a residual branch.
The least sum is found by elimination.py, exactly. What the sum cannot know (caches, fusion across
a move) the run of the whole model decides. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeAlias

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph import Fused, Graph, Node, Value
from minidlc.graph.graph import tensor_type
from minidlc.graph.printer import value_names
from minidlc.ops.blocked import BlockedConv, Pack, Unpack
from minidlc.ops.conv import Conv
from minidlc.transform.layout.layout import (
    GAIN,
    candidates,
    connected,
    is_light,
    moved,
    packed_for,
)
from minidlc.transform.layout.layout_ops import blocked_work, work
from minidlc.transform.rebuild import bodies_of
from minidlc.tuning.elimination import WIDEST, Factor, cheapest

BYTE = 1 / 10e9  # seconds of a move for a byte read or written, where no move was measured


class Kernel(Protocol):
    """What is asked of a `LoweredKernel`; a picture of results needs no compiler for it."""

    @property
    def origin(self) -> Value:
        """The node that it computes, or a value that it copies."""
        ...

    @property
    def is_copy(self) -> bool:
        """True if it copies a value."""
        ...


Timed: TypeAlias = Sequence[tuple[Kernel, float]]


@dataclass(frozen=True)
class Prices:
    """Seconds in a run: of nodes in either layout, and of a byte that a move reads or writes."""

    plain: Mapping[Node, float]
    blocked: Mapping[Node, float]
    byte: float = BYTE

    def of(self, node: Node, block: int) -> tuple[float, float]:
        """Plain, and in blocks.

        An op without a kernel of its own costs nothing: it is in that of a convolution. Of a
        convolution that was measured in one layout only, the other is estimated by its work.
        """
        plain, blocked = self.plain.get(node), self.blocked.get(node)
        if isinstance(node.op, Conv) and (plain is None) != (blocked is None):
            share = blocked_work(node, block) / (GAIN * work(node))
            plain = blocked / share if plain is None and blocked is not None else plain
            blocked = plain * share if blocked is None and plain is not None else blocked
        return plain or 0.0, blocked or 0.0

    def move(self, image: Value, block: int) -> float:
        """From one layout to the other: every element is read and written."""
        return 2 * moved(image, block) * tensor_type(image).dtype.itemsize * self.byte


@dataclass(frozen=True)
class Plan:
    """Names of the convolutions that stay plain, and the sum of times that is expected; the same
    where all convolutions have one layout, the better."""

    plain: tuple[str, ...]
    seconds: float
    uniform: float


def plan(graph: Graph, block: int, seconds: Prices) -> Plan | None:
    """The layouts of least time; None if there is nothing to choose, or too much at once.

    `graph` is the one that the layout pass gets. Bodies of branches and loops are of another
    count of runs than the graph, so a graph with one is left to the uniform layouts.
    """
    convs = candidates(graph, block)
    is_flat = not any(bodies_of(n.op) for n in graph.nodes)
    if not convs or not is_flat or _fan(graph) > WIDEST - 2:
        return None
    factors = [*_factors(graph, block, convs, seconds)]
    found = cheapest(factors)
    if found is None:
        return None
    names, (choice, cost) = value_names(graph), found
    only = ([Factor((c,), np.array(state)) for c in convs] for state in ((0, np.inf), (np.inf, 0)))
    uniform = [u[1] for fixed in only if (u := cheapest([*factors, *fixed])) is not None]
    return Plan(tuple(names[c] for c in convs if not choice[c]), cost, min(uniform))


def _fan(graph: Graph) -> int:
    """Of the values that an op reads, or that read one value, the most."""
    read = max((len(n.inputs) for n in graph.nodes), default=0)
    return max(read, *map(len, graph.users().values()), 0)


def _factors(graph: Graph, block: int, convs: Sequence[Node], seconds: Prices) -> Iterator[Factor]:
    """What each choice costs. A node is a variable, 1 in blocks; so is `_Form` of an image."""
    nodes = connected(graph, block, convs)  # those that may be in blocks
    packing = defaultdict[Value, list[Node]](list)  # convolutions by the image they need in blocks
    for conv in convs:
        if (x := packed_for(conv, block)) is not None:
            packing[x].append(conv)
    for node in (n for n in graph.nodes if n in nodes):
        yield Factor((node,), np.array(seconds.of(node, block)))
        if not isinstance(node.op, Conv):
            yield _follows(node, nodes, packing, block)
        yield _unpacked(node, nodes, graph, seconds.move(node, block))
    for image, readers in packing.items():
        yield _packed(image, image in nodes, readers, seconds.move(image, block))


@dataclass(frozen=True)
class _Form:
    """That an image is there in blocks, computed so or packed."""

    image: Value


def _follows(
    light: Node, nodes: set[Value], packing: Mapping[Value, Sequence[Node]], block: int
) -> Factor:
    """An op between convolutions has no choice: the layout pass looks at its images."""
    read = dict.fromkeys(v for v in light.inputs if v is not None)
    images = [v for v in read if v in nodes or v in packing]
    forms = [_Form(v) if v in packing else v for v in images]

    def cost(state: int, *there: int) -> float:
        given = {v for v, is_there in zip(images, there, strict=True) if is_there}
        return 0.0 if is_light(light, given, block) == bool(state) else np.inf

    return _factor((light, *forms), cost)


def _packed(image: Value, may_be_blocked: bool, readers: Sequence[Node], move: float) -> Factor:
    """The image is there in blocks if it is computed so or a convolution needs it so: a move."""
    own = [image] if may_be_blocked else []

    def cost(form: int, *states: int) -> float:
        if form != max(states):
            return np.inf
        return move if form and not (own and states[0]) else 0.0

    return _factor((_Form(image), *own, *readers), cost)


def _unpacked(node: Node, nodes: set[Value], graph: Graph, move: float) -> Factor:
    """A blocked image that something reads plain: a move."""
    readers = dict.fromkeys(graph.users().get(node, ()))
    if node in graph.outputs or any(r not in nodes for r in readers):
        return Factor((node,), np.array([0.0, move]))

    def cost(state: int, *read: int) -> float:
        return move if state and not all(read) else 0.0

    return _factor((node, *readers), cost)


def _factor(scope: Sequence[Hashable], cost: Callable[..., float]) -> Factor:
    """The table of a cost, which takes 0 or 1 for each variable."""
    table = np.empty((2,) * len(scope))
    for choice in itertools.product((0, 1), repeat=len(scope)):
        table[choice] = cost(*choice)
    return Factor(tuple(scope), table)


def prices(graph: Graph, block: int, measured: Iterable[Timed]) -> Prices:
    """What kernels of the graph compiled in several layouts say of its nodes, the first to say it.

    A kernel's time is that of its convolution, with all that was fused to it; of one without, of
    its first node. Kernels find their nodes by name and kind of op, equal ones in their order.
    """
    plain, blocked, moves = dict[Node, float](), dict[Node, float](), list[float]()
    for kernels in measured:
        waiting = defaultdict[tuple[str, str], deque[Node]](deque)
        for node in graph.nodes:
            waiting[_key(node)].append(node)
        for kernel, seconds in kernels:
            made = _computed(kernel)
            found = [waiting[_key(n)].popleft() if waiting[_key(n)] else None for n in made]
            pairs = [(n, old) for n, old in zip(made, found, strict=True) if old is not None]
            if pairs:
                new, old = min(pairs, key=lambda p: not isinstance(p[1].op, Conv))
                (blocked if _is_blocked(new) else plain).setdefault(old, seconds)
            elif len(made) == 1 and isinstance(made[0].op, Pack | Unpack):
                result = tensor_type(made[0])
                if result.dims[2:4] != (1, 1):  # the time of a vector is that of the call
                    moves.append(seconds / (2 * result.nbytes))
    return Prices(plain, blocked, median(moves) if moves else BYTE)


def _computed(kernel: Kernel) -> tuple[Node, ...]:
    """The nodes that a kernel computes."""
    origin = kernel.origin
    if not isinstance(origin, Node) or kernel.is_copy:
        return ()
    return origin.op.body.nodes if isinstance(origin.op, Fused) else (origin,)


def _key(node: Node) -> tuple[str, str]:
    is_conv = isinstance(node.op, Conv | BlockedConv)
    return node.name, "conv" if is_conv else node.op.name


def _is_blocked(node: Node) -> bool:
    """True for a result [n, c / b, h, w, b]."""
    return isinstance(node.type, TensorType) and node.type.rank == 5
