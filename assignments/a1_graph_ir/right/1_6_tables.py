"""Guards as a tuple of pairs; sizes grouped by guards in a class that knows how to widen itself."""

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One graph of a function, what it relies on, and why it was traced."""

    guards: Any
    sizes: Any
    graph: mc.Graph
    reason: str


CACHE = {}
PYTHON = (bool, int, float, str, type(None), tuple)


class Sizes(tuple):
    """Sizes in a row: numbers, and symbols as texts."""

    def accept(self, numbers):
        for n, place in enumerate(self):
            if isinstance(place, str):
                if numbers[n] != numbers[self.index(place)]:
                    return False
            elif place != numbers[n]:
                return False
        return True

    def widened(self, numbers):
        changed = []
        for pair in zip(self, numbers):
            if pair[0] != pair[1] and pair not in changed:
                changed.append(pair)
        return Sizes(
            f"s{changed.index(pair)}" if pair in changed else pair[0] for pair in zip(self, numbers)
        )


def guards_of(fn, types):
    pairs = []
    for name, t in types.items():
        if isinstance(t, mc.TensorType):
            pairs.append((name + " dtype", str(t.dtype)))
            pairs.append((name + " rank", str(len(t.shape))))
        else:
            pairs.append((name + " value", repr(t)))
    outside = {}
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            outside[name] = fn.__globals__[name]
    for n, name in enumerate(fn.__code__.co_freevars):
        outside[name] = fn.__closure__[n].cell_contents
    for name in sorted(outside):
        if isinstance(outside[name], PYTHON):
            pairs.append((name + " value", repr(outside[name])))
    return tuple(pairs)


def typed(types, sizes):
    sizes, result = list(sizes), {}
    for name, t in types.items():
        if isinstance(t, mc.TensorType):
            t, sizes = t.dtype[tuple(sizes[: t.rank])], sizes[t.rank :]
        result[name] = t
    return result


def trace_guarded(fn, types, cache=CACHE):
    """The graph of `fn` for `types`, kept by guards."""
    guards = guards_of(fn, types)
    names, numbers = [], []
    for name, t in types.items():
        for n, size in enumerate(getattr(t, "shape", ())):
            names.append(f"{name} axis {n}")
            numbers.append(size)
    old = None
    for number, entry in enumerate(cache.get(fn, ())):
        if entry.guards == guards:
            if entry.sizes.accept(numbers):
                return entry.graph
            old = number
    if old is not None:
        return widen(fn, types, cache, guards, names, numbers, old)
    reason = "first call"
    if cache.get(fn):
        last = dict(cache[fn][-1].guards)
        reason = "; ".join(f"{k}: {last.get(k)} → {v}" for k, v in guards if last.get(k) != v)
    graph = mc.trace(fn, **types)
    cache.setdefault(fn, []).append(Entry(guards, Sizes(numbers), graph, reason))
    return graph


def widen(fn, types, cache, guards, names, numbers, number):
    old = cache[fn][number]
    places = zip(names, old.sizes, numbers)
    reason = "; ".join(f"{name}: {a} → {b}" for name, a, b in places if a != b)
    sizes = old.sizes.widened(numbers)
    try:
        graph = mc.trace(fn, **typed(types, sizes))
    except Exception:
        graph = mc.trace(fn, **types)
        cache[fn].append(Entry(guards, Sizes(numbers), graph, reason))
    else:
        del cache[fn][number]
        cache[fn].append(Entry(guards, sizes, graph, reason))
    return graph
