"""Sums of products over named axes: einsum.

    apply("einsum", a, b, equation="bij,bjk->bik")  # a matrix product for each b
    apply("einsum", x, equation="...ii->...i")      # diagonals
    apply("einsum", a, b, equation="i,j")           # i and j are left: an outer product

Inputs are taken two at a time; each pair is one matmul between transposes, or one product where
nothing is summed. f16 and bf16 are computed in f32 and rounded once. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed, reshaped, scalar
from minidlc.ops.elementwise import widened
from minidlc.ops.rules import Values

_TERM = re.compile(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?")
# of the axes of a value: letters, and ".0", ".1", … counted from the right
Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class _Terms:
    """The equation with a label for each axis, and the size of each label."""

    inputs: tuple[Labels, ...]
    output: Labels
    sizes: dict[str, int]


@register_op
@dataclass(frozen=True)
class Einsum(Op):
    """einsum(a, b, …)[output labels] = sum over the other labels of the product of the inputs.

    `equation` names the axes of each input, and after "->" those of the result; without it the
    result has the labels named once, in alphabetical order. "..." stands for any number of axes,
    which broadcast; a label named twice in one input takes its diagonal.
    """

    kind = OpKind.COMPOSITE
    onnx = "Einsum"
    equation: str

    def type_rule(self, *inputs: TensorType) -> TensorType:
        if not inputs:
            rules.fail(self, "needs at least one input", "MDLC0201")
        rules.elements(self, rules.NUMBERS, *inputs)
        terms = self._terms(inputs)
        return inputs[0].with_shape(tuple(terms.sizes[label] for label in terms.output))

    def _terms(self, inputs: Sequence[TensorType]) -> _Terms:
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        texts = left.split(",")
        if len(texts) != len(inputs):
            text = f"{self.equation!r} names {len(texts)} inputs, got {len(inputs)}"
            rules.fail(self, text, rules.RANGE)
        if not all(_TERM.fullmatch(t) for t in (*texts, right)):
            hint = 'letters, "..." at most once a term, "," and "->": "bij,bjk->bik"'
            rules.fail(self, f"{self.equation!r} is no equation", rules.RANGE, hint)
        labels = tuple(self._labels(t, x.rank) for t, x in zip(texts, inputs, strict=True))
        sizes = self._sizes(labels, inputs)
        dots = max((len([a for a in term if a[0] == "."]) for term in labels), default=0)
        output = _spread(right, dots) if arrow else self._implied(labels, dots)
        if len(set(output)) != len(output) or not set(output) <= set(sizes):
            text = f"the result of {self.equation!r} names an axis twice, or one that no input has"
            rules.fail(self, text, rules.RANGE)
        return _Terms(labels, output, sizes)

    def _labels(self, text: str, rank: int) -> Labels:
        dots = rank - len(text.replace(".", ""))
        if dots < 0 or (dots and "." not in text):
            rules.fail(self, f"{text!r} does not name the axes of rank {rank}", rules.RANK)
        return _spread(text, dots)

    def _sizes(self, labels: Sequence[Labels], inputs: Sequence[TensorType]) -> dict[str, int]:
        """A size 1 repeats, as in broadcasting."""
        sizes: dict[str, int] = {}
        for term, x in zip(labels, inputs, strict=True):
            for label, size in zip(term, x.dims, strict=True):
                known = sizes.setdefault(label, size)
                if known == 1:
                    sizes[label] = size
                elif size not in (1, known):
                    text = f"axis {label!r} of {self.equation!r} has sizes {known} and {size}"
                    rules.fail(self, text, rules.DIMS)
        return sizes

    def _implied(self, labels: Sequence[Labels], dots: int) -> Labels:
        every = [label for term in labels for label in term if label[0] != "."]
        once = sorted(label for label in set(every) if every.count(label) == 1)
        return (*_spread("...", dots), *once)

    def reference(self, *inputs: Values) -> Values:
        y = np.einsum(self.equation.replace(" ", ""), *map(widened, inputs))
        return np.asarray(y).astype(inputs[0].dtype, copy=False)

    def decompose(self, *inputs: Value) -> Value:
        terms = self._terms([tensor_type(x) for x in inputs])
        values = [
            _distinct(in_wide(x), labels, terms.sizes)
            for x, labels in zip(inputs, terms.inputs, strict=True)
        ]
        y, labels = values[0]
        for n, other in enumerate(values[1:], 2):
            later = {label for _, term in values[n:] for label in term}
            y, labels = _contracted((y, labels), other, {*terms.output, *later})
        y, labels = _summed(y, labels, set(terms.output))
        order = tuple(label for label in terms.output if label in labels)
        y = _transposed(y, labels, order)
        return narrowed(reshaped(y, [terms.sizes[label] for label in terms.output]), inputs[0])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Products, outer products, sums, diagonals, broadcasting, three inputs, element types."""
        for equation, *shapes in (
            ("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
            ("ij,jk", (3, 4), (4, 5)), ("i,j", (3,), (4,)), ("ij->ji", (3, 4)), ("ij->", (3, 4)),
            ("ij->i", (3, 4)), ("ii->i", (4, 4)), ("bii->b", (2, 3, 3)), ("i,i", (5,), (5,)),
            ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)), ("...ii->...i", (2, 3, 3)),
            ("...i,...i->...", (1, 3, 4), (2, 1, 4)),
            ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 5, 4)),
            ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("ij,ij->ij", (3, 4), (3, 4)),
            ("ab,cd->acbd", (2, 3), (4, 5)), ("ijk,kl->lij", (2, 3, 4), (4, 5)),
            ("ij,jk->ik", (3, 0), (0, 5)), (" i j , j -> i ", (3, 4), (4,)), ("...->...", (2, 3)),
        ):  # fmt: skip
            arrays = tuple(samples.array(s, seed=n) for n, s in enumerate(shapes))
            yield Example(cls(equation), arrays, 1e-5, 1e-5)
        for element in ("f64", "f16", "i32"):
            arrays = tuple(samples.array(s, element, -5, 5) for s in ((3, 4), (4, 5)))
            yield Example(cls("ij,jk->ki"), arrays, **samples.tolerance(element))


def _spread(text: str, dots: int) -> Labels:
    """A label for each axis: "a...b" with two axes for the dots is a, .1, .0, b."""
    before, found, behind = text.partition("...")
    inner = (f".{n}" for n in reversed(range(dots))) if found else ()
    return (*before, *inner, *behind)


def _transposed(x: Value, labels: Labels, order: Labels) -> Value:
    if labels == order:
        return x
    return apply("transpose", x, perm=tuple(labels.index(label) for label in order))


def _distinct(x: Value, labels: Labels, sizes: dict[str, int]) -> tuple[Value, Labels]:
    """No label twice: of those the diagonal is taken. Axes that only repeat are dropped."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = _diagonal(x, first, second)
            labels = labels[:second] + labels[second + 1 :]
    repeated = [n for n, label in enumerate(labels) if tensor_type(x).dims[n] != sizes[label]]
    if repeated:
        x = apply("squeeze", x, axes=tuple(repeated))
    return x, tuple(label for n, label in enumerate(labels) if n not in repeated)


def _diagonal(x: Value, first: int, second: int) -> Value:
    """Elements equal in both axes: all others made 0, then summed over the second."""
    rank, size = tensor_type(x).rank, tensor_type(x).dims[first]
    shape = [size if a in (first, second) else 1 for a in range(rank)]
    equal = Constant("diagonal", np.eye(size, dtype=np.bool_).reshape(shape))
    zero = scalar(0, tensor_type(x).dtype)
    return apply("sum", apply("where", equal, x, zero), axes=(second,), keepdims=False)


def _summed(x: Value, labels: Labels, kept: set[str]) -> tuple[Value, Labels]:
    axes = tuple(n for n, label in enumerate(labels) if label not in kept)
    if axes:
        x = apply("sum", x, axes=axes, keepdims=False)
    return x, tuple(label for label in labels if label in kept)


def _contracted(
    left: tuple[Value, Labels], right: tuple[Value, Labels], kept: set[str]
) -> tuple[Value, Labels]:
    """The product of two inputs, summed over what both have and nobody needs any more."""
    a, a_labels = _summed(*left, kept | set(right[1]))
    b, b_labels = _summed(*right, kept | set(a_labels))
    batch = tuple(n for n in a_labels if n in b_labels and n in kept)
    inner = tuple(n for n in a_labels if n in b_labels and n not in kept)
    rows = tuple(n for n in a_labels if n not in b_labels)
    columns = tuple(n for n in b_labels if n not in a_labels)
    sizes = dict(
        zip((*a_labels, *b_labels), (*tensor_type(a).dims, *tensor_type(b).dims), strict=True)
    )
    a = _transposed(a, a_labels, (*batch, *rows, *inner))
    b = _transposed(b, b_labels, (*batch, *inner, *columns))
    lead = [sizes[n] for n in batch]
    m, k, n = (math.prod(sizes[label] for label in part) for part in (rows, inner, columns))
    a = reshaped(a, [*lead, m, k])
    b = reshaped(b, [*lead, k, n])
    y = a @ b if inner else a * b
    labels = (*batch, *rows, *columns)
    return reshaped(y, [sizes[label] for label in labels]), labels
