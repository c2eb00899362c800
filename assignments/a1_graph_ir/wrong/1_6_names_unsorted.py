"""Takes names from outside in the order of the code, not sorted."""

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One graph of a function, what it relies on, and why it was traced."""

    guards: Any
    sizes: Any
    graph: mc.Graph
    reason: str


CACHE = {}


def trace_guarded(fn, types, cache=CACHE):
    """The graph of `fn` for `types` (parameter -> tensor type or Python value), kept by guards.

    Signature of the extension point `trace`. `cache`: function -> list of Entry.
    """
    kept = cache.get(fn, [])
    guards, sizes = guards_of(fn, types), sizes_of(types)
    alike = [e for e in kept if e.guards == guards]
    for entry in alike:
        if fits(entry.sizes, sizes.values()):
            return entry.graph
    graph, opened, reason = None, list(sizes.values()), "first call"
    if alike:
        old = alike[-1]
        opened = open_sizes(old.sizes, sizes.values())
        places = zip(sizes.items(), old.sizes)
        reason = "; ".join(f"{what}: {a} → {b}" for (what, b), a in places if a != b)
        try:
            graph = mc.trace(fn, **with_sizes(types, opened))
            kept = [e for e in kept if e is not old]
        except Exception:  # fn needs the numbers
            opened = list(sizes.values())
    elif kept:
        before = kept[-1].guards
        reason = "; ".join(
            f"{k}: {before.get(k)} → {v}" for k, v in guards.items() if before.get(k) != v
        )
    if graph is None:
        graph = mc.trace(fn, **types)
    cache[fn] = [*kept, Entry(guards, opened, graph, reason)]
    return graph


def guards_of(fn, types):
    """What a graph relies on, sizes apart: name of the guard -> text."""
    found = {}
    for name, given in types.items():
        if isinstance(given, mc.TensorType):
            found |= {f"{name} dtype": str(given.dtype), f"{name} rank": str(given.rank)}
        else:
            found[f"{name} value"] = repr(given)
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or ())
    outside = {n: fn.__globals__[n] for n in fn.__code__.co_names if n in fn.__globals__}
    outside |= {name: cell.cell_contents for name, cell in cells}
    plain = (bool, int, float, str, tuple, type(None))
    read = [n for n, value in outside.items() if isinstance(value, plain)]
    return found | {f"{name} value": repr(outside[name]) for name in read}


def fits(wanted, sizes):
    """True if numbers are equal, and every symbol stands for one size."""
    bound = {}
    pairs = zip(wanted, sizes)
    return all(bound.setdefault(w, n) == n if isinstance(w, str) else w == n for w, n in pairs)


def open_sizes(old, new):
    """Sizes that stay, and a symbol for each other pair of old and new."""
    symbols = {}
    return [
        a if a == b else symbols.setdefault((a, b), f"s{len(symbols)}") for a, b in zip(old, new)
    ]


def sizes_of(types):
    """'x axis 0' -> size, for all tensors in a row."""
    tensors = [(name, t) for name, t in types.items() if isinstance(t, mc.TensorType)]
    return {f"{name} axis {n}": size for name, t in tensors for n, size in enumerate(t.shape)}


def with_sizes(types, sizes):
    """The same types with other sizes, taken in a row."""
    rest = iter(sizes)
    return {
        name: t.dtype[tuple(next(rest) for _ in t.shape)] if isinstance(t, mc.TensorType) else t
        for name, t in types.items()
    }
