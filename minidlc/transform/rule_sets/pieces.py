"""Rules of pieces: slices of slices, parts put together again, borders.

    slice(slice(x)) -> slice(x)             concat(x[:3], x[3:]) -> x
    slice(concat(a, b)) -> slice(a)         conv(pad(x), w) -> conv(x, w, pads=…)

All are exact. ONNX's Split is imported as slices, so `split of concat` is a slice of it. Treated in
course chapter 02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from minidlc.graph.graph import Node, Value, tensor_type
from minidlc.ops import functional
from minidlc.ops.slicing import INT64, Cut, Slice
from minidlc.transform.rule_sets.conditions import Verdict
from minidlc.transform.rules.rules import Rule, rule_set

concat = functional("concat")
conv = functional("conv")
pad = functional("pad")
take = functional("slice")


@rule_set("pieces")
def piece_rules() -> tuple[Rule, ...]:
    """Exact rules of slices, concatenations and borders."""
    return (
        Rule("slice-whole", sliced, lambda x: x, when=takes_all),
        Rule("slice-of-slice", sliced_twice, sliced_once, when=all_known),
        Rule("slice-of-concat", sliced_parts, sliced_part, when=one_part),
        Rule("concat-of-one", lambda x, a: concat(x, axis=a), lambda x: x),
        Rule("concat-of-slices", joined, joined_again, when=neighbours),
        Rule("concat-of-concat", joined, joined_flat, when=holds_a_concat),
        Rule("pad-nothing", padded, lambda x: x, when=pads_nothing),
        Rule("pad-of-zero", lambda x, p: pad(x, 0, pads=p), lambda x, p: pad(x, pads=p)),
        Rule("pad-of-false", lambda x, p: pad(x, False, pads=p), lambda x, p: pad(x, pads=p)),
        Rule("pad-of-pad", padded_twice, padded_once, when=only_grow),
        Rule("pad-into-conv", padded_conv, wider_conv, when=spatial_only),
    )


def sliced(x: Any, s: Any, e: Any, a: Any, t: Any) -> Any:
    """Pattern: a slice."""
    return take(x, starts=s, ends=e, axes=a, steps=t)


def cuts(node: Value) -> dict[int, Cut | None]:
    """What a slice takes of each of its axes; None: all of a symbolic one."""
    assert isinstance(node, Node)
    assert isinstance(node.op, Slice)
    source = node.inputs[0]
    assert source is not None
    return node.op.cuts(tensor_type(source).shape)


def takes_all(x: Value, root: Node) -> Verdict:
    """Every axis is taken whole, in its order."""
    shape = tensor_type(x).shape
    whole = (c is None or (c.step == 1 and c.size == shape[a]) for a, c in cuts(root).items())
    return all(whole) or "it takes a part"


def to_slice(x: Value, wanted: dict[int, Cut]) -> Value:
    """The slice that takes these cuts."""
    starts = [c.start for c in wanted.values()]
    ends = [c.start + c.step * c.size for c in wanted.values()]
    ends = [INT64[0] if end < 0 else end for end in ends]  # downward to the first element
    steps = [c.step for c in wanted.values()]
    return take(x, starts=starts, ends=ends, axes=list(wanted), steps=steps)


def sliced_twice(x: Any, s: Any, e: Any, a: Any, t: Any, u: Any, f: Any, b: Any, v: Any) -> Any:
    """Pattern: slice of slice."""
    inner = take(x, starts=s, ends=e, axes=a, steps=t)
    return take(inner, starts=u, ends=f, axes=b, steps=v)


def all_known(root: Node) -> Verdict:
    """Both slices cut axes of known size, and something is left."""
    inner = root.inputs[0]
    assert inner is not None
    found = [*cuts(inner).values(), *cuts(root).values()]
    if any(c is None for c in found):
        return "an axis is symbolic"
    return all(c is not None and c.size for c in found) or "nothing is left"


def sliced_once(x: Value, root: Node) -> Value:
    """Replacement: element i of the second cut is element start + step * i of the first."""
    inner = root.inputs[0]
    assert inner is not None
    wanted = {a: c for a, c in cuts(inner).items() if c is not None}
    for axis, cut in cuts(root).items():
        first = wanted.get(axis, Cut(0, 1, 0))
        assert cut is not None
        start = first.start + first.step * cut.start
        wanted[axis] = Cut(start, first.step * cut.step, cut.size)
    return to_slice(x, wanted)


def sliced_parts(s: Any, e: Any, a: Any, t: Any, axis: Any, *xs: Any) -> Any:
    """Pattern: slice of concat."""
    return take(concat(*xs, axis=axis), starts=s, ends=e, axes=a, steps=t)


def _part(root: Node, axis: int, xs: tuple[Value, ...]) -> tuple[Value, dict[int, Cut]] | str:
    """The only input that the slice reads, and what it takes of it; or why there is none."""
    axis = axis % tensor_type(xs[0]).rank
    sizes = [tensor_type(x).shape[axis] for x in xs]
    found = cuts(root)
    cut = found.get(axis)
    if not all(isinstance(n, int) for n in sizes) or any(c is None for c in found.values()):
        return "an axis is symbolic"
    if cut is None or not cut.size:
        return "it does not cut the axis of the concat"
    last = cut.start + cut.step * (cut.size - 1)
    ends = list(accumulate(int(str(n)) for n in sizes))
    for x, end, size in zip(xs, ends, sizes, strict=True):
        begin = end - int(str(size))
        if begin <= min(cut.start, last) and max(cut.start, last) < end:
            moved = Cut(cut.start - begin, cut.step, cut.size)
            return x, {a: moved if a == axis else c for a, c in found.items() if c is not None}
    return "it reads several parts"


def one_part(root: Node, axis: int, xs: tuple[Value, ...]) -> Verdict:
    """The slice lies in one of the parts."""
    found = _part(root, axis, xs)
    return found if isinstance(found, str) else True


def sliced_part(root: Node, axis: int, xs: tuple[Value, ...]) -> Value:
    """Replacement: a slice of that part."""
    found = _part(root, axis, xs)
    assert not isinstance(found, str)
    return to_slice(*found)


def joined(a: Any, *xs: Any) -> Any:
    """Pattern: a concat of any number of inputs."""
    return concat(*xs, axis=a)


def neighbours(a: int, xs: tuple[Value, ...]) -> Verdict:
    """Every input is a slice of one value along the axis, each beginning where the last ended."""
    slices = [x for x in xs if isinstance(x, Node) and isinstance(x.op, Slice)]
    if len(slices) < len(xs) or len(xs) < 2:
        return "its inputs are no slices"
    if len({x.inputs[0] for x in slices}) > 1:
        return "its inputs are slices of different values"
    axis = a % tensor_type(xs[0]).rank
    found = [cuts(x) for x in slices]
    rest = [{b: c for b, c in f.items() if b != axis} for f in found]
    along = [f.get(axis) for f in found]
    if any(r != rest[0] for r in rest) or any(None in r.values() for r in rest):
        return "its inputs differ on other axes"
    pairs = pairwise(along)
    follow = all(
        c and d and c.size and d.size and c.step == d.step and d.start == c.start + c.step * c.size
        for c, d in pairs
    )
    return follow or "its inputs are no neighbours"


def joined_again(a: int, xs: tuple[Value, ...]) -> Value:
    """Replacement: one slice of what the inputs are slices of."""
    first = xs[0]
    assert isinstance(first, Node)
    source = first.inputs[0]
    assert source is not None
    axis = a % tensor_type(first).rank
    wanted = {b: c for b, c in cuts(first).items() if c is not None}
    size = sum(c.size for x in xs if (c := cuts(x)[axis]) is not None)
    wanted[axis] = Cut(wanted[axis].start, wanted[axis].step, size)
    return to_slice(source, wanted)


def _is_concat(x: Value, axis: int) -> bool:
    if not isinstance(x, Node) or x.op.name != "concat":
        return False
    rank = tensor_type(x).rank
    return x.op.attributes()["axis"] % rank == axis % rank


def holds_a_concat(a: int, xs: tuple[Value, ...]) -> Verdict:
    """An input is a concat along the same axis."""
    return any(_is_concat(x, a) for x in xs) or "none of its inputs is such a concat"


def joined_flat(a: int, xs: tuple[Value, ...]) -> Value:
    """Replacement: the inputs of inner concats in their place."""
    flat: list[Any] = []
    for x in xs:
        flat += x.inputs if isinstance(x, Node) and _is_concat(x, a) else [x]
    return concat(*flat, axis=a)


def padded(x: Any, p: Any, m: Any, *v: Any) -> Any:
    """Pattern: a pad, with a value or without."""
    return pad(x, *v, pads=p, mode=m)


def pads_nothing(p: tuple[int, ...]) -> Verdict:
    """No side is padded."""
    return not any(p) or f"it pads by {p}"


def padded_twice(x: Any, p: Any, q: Any, *v: Any) -> Any:
    """Pattern: pad of pad with the same value."""
    return pad(pad(x, *v, pads=p), *v, pads=q)


def only_grow(p: tuple[int, ...], q: tuple[int, ...]) -> Verdict:
    """Neither cuts anything off."""
    return min((*p, *q), default=0) >= 0 or "a negative pad cuts elements off"


def padded_once(x: Value, p: tuple[int, ...], q: tuple[int, ...], v: tuple[Value, ...]) -> Value:
    """Replacement: both borders at once."""
    return pad(x, *v, pads=[a + b for a, b in zip(p, q, strict=True)])


def padded_conv(x: Any, p: Any, q: Any, s: Any, d: Any, g: Any, *w: Any) -> Any:
    """Pattern: a convolution of a value with a border of zeros."""
    return conv(pad(x, pads=p), *w, pads=q, strides=s, dilations=d, group=g)


def spatial_only(p: tuple[int, ...]) -> Verdict:
    """The border is around images, and cuts nothing off."""
    rank = len(p) // 2
    channels = [*p[:2], *p[rank : rank + 2]]
    return (min(p) >= 0 and not any(channels)) or "it pads batch or channels, or cuts elements off"


def wider_conv(root: Node, x: Value, p: tuple[int, ...], w: tuple[Value, ...]) -> Value:
    """Replacement: the convolution pads."""
    rank = len(p) // 2
    border = (*p[2:rank], *p[rank + 2 :])
    own = root.op.attributes()
    before = own["pads"] or (0,) * len(border)
    pads = tuple(a + b for a, b in zip(border, before, strict=True))
    return conv(x, *w, **{**own, "pads": pads})
