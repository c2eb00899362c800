"""A derivative by formulas, as on paper; and how long it gets.

    f = formula_of(g)                               # '4*x*(1 - x)'
    str(derivative(f, "x"))                         # '(1 - x)*4 - 4*x'
    swell(g)                                        # operations of this way and of mc.grad

Reads a graph of single numbers and writes a tree, in which nothing has a name: what is read twice
stands there twice. That is why it swells; with names it would be as short as the automatic one (S.
Laue, "On the Equivalence of Automatic and Symbolic Differentiation", 2019). Treated in course
chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minidlc.autodiff.numeric import expect_loss
from minidlc.autodiff.reverse import grad, inputs_named
from minidlc.graph.graph import Graph, Value, tensor_type
from minidlc.ops.gradients import given
from minidlc.support.arguments import expect
from minidlc.support.errors import GradientError


@dataclass(frozen=True, eq=False)
class Formula:
    """A number, a letter, or an operation (`sign`, a name of OF_ONE or OF_TWO) on formulas.

    What one drops on paper is dropped: 0 in a sum, 0 and 1 in a product. Nothing else is.
    """

    sign: str | float
    parts: tuple[Formula, ...] = ()

    def __add__(self, other: Formula) -> Formula:
        if 0 in (self.sign, other.sign):
            return other if self.sign == 0 else self
        if other.parts and other.sign == "neg":
            return self - other.parts[0]
        return Formula("add", (self, other))

    def __sub__(self, other: Formula) -> Formula:
        if other.sign == 0:
            return self
        return -other if self.sign == 0 else Formula("sub", (self, other))

    def __mul__(self, other: Formula) -> Formula:
        if 0 in (self.sign, other.sign):
            return ZERO
        for factor, rest in ((self, other), (other, self)):
            if factor.sign in (1, -1):
                return rest if factor.sign == 1 else -rest
        return Formula("mul", (self, other))

    def __truediv__(self, other: Formula) -> Formula:
        return self if self.sign == 0 or other.sign == 1 else Formula("div", (self, other))

    def __neg__(self) -> Formula:
        return Formula("neg", (self,)) if isinstance(self.sign, str) else Formula(-self.sign)

    def __str__(self) -> str:
        return _text(self)


ZERO, ONE = Formula(0.0), Formula(1.0)

OF_ONE: Mapping[str, Callable[[Formula], Formula]] = {
    "neg": lambda a: -ONE,
    "exp": lambda a: Formula("exp", (a,)),
    "log": lambda a: ONE / a,
    "sin": lambda a: Formula("cos", (a,)),
    "cos": lambda a: -Formula("sin", (a,)),
    "tanh": lambda a: ONE - Formula("tanh", (a,)) * Formula("tanh", (a,)),
    "sigmoid": lambda a: Formula("sigmoid", (a,)) * (ONE - Formula("sigmoid", (a,))),
}
OF_TWO: Mapping[str, Callable[[Formula, Formula], tuple[Formula, Formula]]] = {
    "add": lambda a, b: (ONE, ONE),
    "sub": lambda a, b: (ONE, -ONE),
    "mul": lambda a, b: (b, a),
    "div": lambda a, b: (ONE / b, -(a / (b * b))),
}
"""How an operation changes with each of its parts: the table in the cover of a textbook."""


def _partials(f: Formula) -> tuple[Formula, ...]:
    match f.parts:
        case ():
            return ()
        case (a,):
            return (OF_ONE[str(f.sign)](a),)
        case _:
            return OF_TWO[str(f.sign)](*f.parts)


def derivative(f: Formula, letter: str) -> Formula:
    """The derivative of a formula by a letter, by the chain rule and the tables.

    It is the formula that the rules write. (They are asked once for each part of `f`, so that it is
    made quickly even where it is too long to be printed.)
    """
    found: dict[Formula, Formula] = {}
    for part in _inside_out(f):
        found[part] = ONE if part.sign == letter and not part.parts else ZERO
        for by_piece, piece in zip(_partials(part), part.parts, strict=True):
            found[part] += by_piece * found[piece]
    return found[f]


def formula_of(graph: Graph) -> Formula:
    """The loss as a formula of the graph's inputs: a value read twice stands there twice.

    Raises GradientError MDLC1285 if the graph is no loss, MDLC1286 if it has an op that is in
    neither table, or works on more than single numbers.
    """
    expect("formula_of", "graph", graph, Graph)
    expect_loss("formula_of", graph)
    known: dict[Value, Formula] = {i: Formula(i.name) for i in graph.inputs}
    known |= {c: Formula(float(c.array.item())) for c in graph.constants if c.array.size == 1}
    for node in graph.nodes:
        parts = tuple(known[v] for v in given(node) if v in known)
        numbers = len(parts) == len(node.inputs) and tensor_type(node).size == 1
        if not numbers or node.op.name not in {**OF_ONE, **OF_TWO}:
            text = f"formula_of: no formula for {node.op.name}: {node.name} is {node.type}"
            hint = f"single numbers only, and {', '.join([*OF_ONE, *OF_TWO])}"
            raise GradientError(text, loc=node.loc, hint=hint, code="MDLC1286")
        known[node] = Formula(node.op.name, parts)
    return known[graph.outputs[0]]


def _inside_out(f: Formula) -> list[Formula]:
    """The parts of a formula, each object once, behind its own parts."""
    done: dict[Formula, None] = {}
    to_do = [(f, False)]
    while to_do:
        part, parts_are_done = to_do.pop()
        if parts_are_done:
            done[part] = None
        elif part not in done:
            to_do += [(part, True), *((p, False) for p in part.parts)]
    return list(done)


_SIGNS = {"add": (" + ", 1), "sub": (" - ", 1), "mul": ("*", 2), "div": ("/", 2)}
_TIGHT = 3  # what needs no brackets anywhere


def _text(f: Formula) -> str:
    """The formula, with brackets around what binds less tightly than what it stands in."""
    texts: dict[Formula, tuple[str, int]] = {}
    for part in _inside_out(f):
        texts[part] = _text_of(part, [texts[p] for p in part.parts])
    return texts[f][0]


def _text_of(f: Formula, parts: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """A text and how tightly it binds, from those of the parts."""

    def bracketed(part: int, least: int) -> str:
        text, binds = parts[part]
        return text if binds >= least else f"({text})"

    if not isinstance(f.sign, str):
        return f"{f.sign:g}", _TIGHT if f.sign >= 0 else 1
    if not parts:
        return f.sign, _TIGHT
    if f.sign == "neg":
        return f"-{bracketed(0, 2)}", 1
    if f.sign in _SIGNS:
        sign, own = _SIGNS[f.sign]
        right = own + (f.sign in ("sub", "div"))  # a - (b - c)
        return f"{bracketed(0, own)}{sign}{bracketed(1, right)}", own
    return f"{f.sign}({parts[0][0]})", _TIGHT


def operations(*formulas: Formula, shared: bool = False) -> int:
    """How many operations stand in formulas; `shared`: those that are equal count once."""
    counts: dict[Formula, int] = {}
    own: dict[Formula, int] = {}  # a part -> its number, the same for equal ones
    numbers: dict[tuple[object, ...], int] = {}
    for part in (p for f in formulas for p in _inside_out(f)):
        counts[part] = bool(part.parts) + sum(counts[p] for p in part.parts)
        own[part] = numbers.setdefault((part.sign, *(own[p] for p in part.parts)), len(numbers))
    return sum(len(key) > 1 for key in numbers) if shared else sum(counts[f] for f in formulas)


@dataclass(frozen=True)
class Swell:
    """Operations of a loss written as a formula, and of its gradient in three ways."""

    formula: int
    symbolic: int
    shared: int  # the symbolic one, equal operations computed once
    automatic: int


def swell(graph: Graph, wrt: str | Sequence[str] | None = None) -> Swell:
    """Count the operations of a loss and of its gradient: how much longer is a derivative?

    Raises GradientError as `grad` and `formula_of` do.
    """
    names = [i.name for i in inputs_named("swell", graph, wrt)]
    f = formula_of(graph)
    gradient = [derivative(f, name) for name in names]
    return Swell(
        formula=operations(f),
        symbolic=operations(*gradient),
        shared=operations(*gradient, shared=True),
        automatic=len(grad(graph, names).nodes),
    )
