"""Functions that mc.script refuses, one or more for each rule of its catalogue."""

from __future__ import annotations

import numpy as np


class Model:
    """An object that a function must not change where a tensor decides."""

    def __init__(self, w):
        self.w = w


def r_try(x):
    try:
        return x
    except ValueError:
        return -x


def r_with(x):
    with np.errstate():
        return x


def r_yield(x):
    yield x


async def r_async(x):
    return x


def r_def(x):
    def inner(y):
        return y

    return inner(x)


def r_lambda(x):
    f = lambda y: y + 1.0  # noqa: E731
    return f(x)


def r_generator(x):
    rows = (x for _ in range(2))
    return list(rows)


def r_global(x):
    global SCALE
    SCALE = 3.0
    return x


def r_del(x):
    y = x
    del y
    return x


def r_match(x):
    match x.ndim:
        case 1:
            return x
        case _:
            return -x


def r_walrus(x):
    return (y := x + 1.0) * y


def r_loop_else(x):
    while x.sum() < 3.0:
        x = x + 1.0
    else:
        x = -x
    return x


def r_condition(x):
    if x > 0.0:
        x = -x
    return x


def r_logical(x):
    return -x if x.sum() > 0.0 and x else x


def r_break(x):
    while x.sum() < 3.0:
        x = x + 1.0
        if x.max() > 2.0:
            break
    return x


def r_break_python(x):
    for _ in range(3):
        if x.max() > 2.0:
            break
        x = x + 1.0
    return x


def r_continue(x):
    while x.sum() < 3.0:
        x = x + 1.0
        continue
    return x


def r_return(x):
    for _ in range(3):
        if x.max() > 2.0:
            return x
        x = x + 1.0
    return x


def r_return_loop(x):
    while x.sum() < 3.0:
        return x
    return -x


def r_one_return(x):
    if x.sum() > 0.0:
        return x


def r_raise(x):
    if x.sum() > 0.0:
        raise ValueError("positive")
    return x


LOG = []


def r_side_effect(x):
    if x.sum() > 0.0:
        LOG.append(x)
    return x


def logs(x):
    LOG.append(x)
    return x


def r_side_effect_called(x):
    return logs(x) if x.sum() > 0.0 else x


def r_side_effect_print(x):
    while x.sum() < 3.0:
        print(x)
        x = x + 1.0
    return x


def r_side_effect_attribute(x, model=Model(None)):  # noqa: B008
    if x.sum() > 0.0:
        model.w = x
    return x


def r_branch_type(x):
    if x.sum() > 0.0:  # noqa: SIM108
        y = x
    else:
        y = x.sum()
    return y


def r_branch_type_return(x):
    if x.sum() > 0.0:
        return x
    return x.astype("f64")


def r_branch_structure(x):
    ys = [x]
    if x.sum() > 0.0:
        ys.append(x)
    return ys


def r_branch_value(x):
    if x.sum() > 0.0:  # noqa: SIM108
        mode = "up"
    else:
        mode = "down"
    return x * len(mode)


def remembers(d, x):
    d["x"] = x
    return x


MEMORY = {}


def r_global_dict(x):
    return remembers(MEMORY, x) if x.sum() > 0.0 else x


class Remembers:
    def __init__(self):
        self.memory = {}


def r_dict_of_an_object(x, model=Remembers()):  # noqa: B008
    if x.sum() > 0.0:
        x = remembers(model.memory, x)
    return x


def r_alias(x):
    xs = [x]
    if x.sum() > 0.0:  # noqa: SIM108
        ys = xs
    else:
        ys = [-x]
    ys[0] = ys[0] + 1.0
    return xs, ys


def r_alias_in_a_loop(x, n):
    a, b = [x], [x + 1.0]
    c = a
    for _ in range(n):
        a, b = b, a
        a[0] = a[0] + 1.0
    return a, b, c


def empties(xs, x):
    if x.sum() > 0.0:
        xs.append(x)
        xs = None
    else:
        xs = None
    return x


def r_lost(x):
    xs = []
    empties(xs, x)
    return x, len(xs)


def r_one_branch(x):
    if x.sum() > 0.0:
        y = x
    return y


def r_loop_type(x):
    s = 0.0
    while x.sum() < 3.0:
        s = s + x
    return s


def r_loop_structure(x, n):
    ys = [x]
    for _ in range(n):
        ys.append(x)
    return ys


def r_loop_local(x, n):
    for _ in range(n):
        y = x + 1.0
    return y


def r_for_tensor(x):
    s = 0.0
    for row in x:
        s = s + row
    return s


def r_for_target(x, n):
    t = [0]
    for t[0] in range(n):
        x = x + 1.0
    return x


def r_range(x, n):
    for _ in range(0, 9, n):
        x = x + 1.0
    return x


def r_range_float(x):
    for _ in range(x.sum()):
        x = x + 1.0
    return x


KEPT = []


def r_foreign(x):
    KEPT.append(x + 1.0)
    if x.sum() > 0.0:
        x = KEPT[-1]
    return x


def r_unrolled(x):
    while True:
        x = x + 1.0
    return x


def recursive(x):
    return recursive(x - 1.0) if x.sum() > 0.0 else x


def r_recursion(x):
    return recursive(x)


# rule (and which case of it) -> function, words of the line that is refused
REFUSED = {
    "try": (r_try, "try:"),
    "with": (r_with, "with np"),
    "yield": (r_yield, "yield"),
    "async": (r_async, "async def"),
    "def": (r_def, "def inner"),
    "lambda": (r_lambda, "lambda"),
    "generator": (r_generator, "rows ="),
    "global": (r_global, "global"),
    "del": (r_del, "del y"),
    "match": (r_match, "match"),
    "walrus": (r_walrus, ":="),
    "loop-else": (r_loop_else, "x = -x"),
    "condition": (r_condition, "if x > 0.0"),
    "logical": (r_logical, "and x"),
    "break": (r_break, "break"),
    "break of Python's loop": (r_break_python, "break"),
    "break: continue": (r_continue, "continue"),
    "return": (r_return, "return x"),
    "return in a loop": (r_return_loop, "return x"),
    "one-return": (r_one_return, "if x.sum()"),
    "raise": (r_raise, "raise"),
    "side-effect": (r_side_effect, "LOG.append"),
    "side-effect in a function": (r_side_effect_called, "LOG.append"),
    "side-effect: print": (r_side_effect_print, "print"),
    "side-effect: attribute": (r_side_effect_attribute, "model.w ="),
    "branch-type": (r_branch_type, "if x.sum()"),
    "branch-type of results": (r_branch_type_return, "if x.sum()"),
    "branch-structure": (r_branch_structure, "if x.sum()"),
    "branch-value": (r_branch_value, "if x.sum()"),
    "side-effect on a global": (r_global_dict, "return remembers"),
    "side-effect on an object": (r_dict_of_an_object, "if x.sum()"),
    "alias": (r_alias, "if x.sum()"),
    "alias in a loop": (r_alias_in_a_loop, "for _"),
    "side-effect that is lost": (r_lost, "if x.sum()"),
    "one-branch": (r_one_branch, "return y"),
    "loop-type": (r_loop_type, "while"),
    "loop-structure": (r_loop_structure, "for _"),
    "loop-local": (r_loop_local, "return y"),
    "for-tensor": (r_for_tensor, "for row"),
    "for-target": (r_for_target, "for t[0]"),
    "range": (r_range, "for _"),
    "range of a float": (r_range_float, "for _"),
    "foreign": (r_foreign, "if x.sum()"),
    "unrolled": (r_unrolled, ""),
    "recursion": (r_recursion, "return recursive(x - 1.0)"),
}
