"""What `compile_train_step` is given, checked: the loss, parameters, and the numbers of a plan.

    loss, arrays = parameters(loss, {"w": w})       # the loss again, and copies of the arrays
    plan = checked_plan(adam(1e-3), 4, None, None, frozen=(), seed=0)

Reads arguments, writes what step_graph.py takes, or raises TrainError and GradientError. Treated in
course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Never

import numpy as np

from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph.graph import Graph
from minidlc.graph.promote import constant_named
from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import CompileError, GradientError, TrainError, nearest
from minidlc.support.locations import caller
from minidlc.target import Target, host
from minidlc.train.limits import checked
from minidlc.train.optimizers import Adam, Optimizer
from minidlc.train.scaling import DynamicScale
from minidlc.train.step_graph import Plan
from minidlc.transform import Pipeline, Remat
from minidlc.transform.fusion.fuse import Fuse

WHO = "compile_train_step"
SEEDS = 1 << 31  # a key of Philox has 64 bits: the seed above, the number of the call below


def parameters(
    loss: Graph, params: Mapping[str, Array] | Sequence[str]
) -> tuple[Graph, dict[str, Array]]:
    """The loss with its parameters as inputs, and arrays of our own to start with.

    Raises GradientError (MDLC1250) for a loss that is no single number, TrainError: MDLC1251 a name
    that no input has, 1252 an array that does not fit.
    """
    _check_loss(loss)
    expect(WHO, "params", params, Mapping, list, tuple, hint='{"w": array}')
    if not isinstance(params, Mapping):
        names = expect_each(WHO, "params", params, str)
        promoted = loss.promote(names)
        return promoted, {name: constant_named(loss, name).array.copy() for name in names}
    types = {i.name: i.type for i in loss.inputs}
    arrays: dict[str, Array] = {}
    for name, array in params.items():
        if name not in types:
            text, hint = f"{loss.name} has no input {name!r}", nearest(name, types, most=20)
            raise TrainError(f"{WHO}: {text}", loc=caller(), hint=hint, code="MDLC1251")
        arrays[name] = fitting(f"{WHO}: parameter {name!r}", types[name], array, "MDLC1252")
    return loss, arrays


def _check_loss(loss: Graph) -> None:
    type = loss.outputs[0].type if loss.outputs else None
    if isinstance(type, TensorType) and type.is_static and type.size == 1 and type.dtype.is_float:
        return
    text = f"{WHO}: the first output of {loss.name} is {type}: a loss is one real number"
    hint = "reduce it, as mc.train.mse(y, target) does"
    loc = loss.outputs[0].loc if loss.outputs else None
    raise GradientError(text, loc=loc, hint=hint, code="MDLC1250")


def fitting(what: str, type: TensorType, thing: object, code: str) -> Array:
    """A copy of an array; TrainError with this code unless it has this type."""
    array = found = None
    try:
        array = np.array(thing, order="C")
        found = type_of(array)
    except (ValueError, TypeError, CompileError):
        pass  # lists of different lengths, texts
    if array is None or found != type:
        got = f"a {thing.__class__.__name__}" if found is None else found
        hint = "an array of this shape; x.astype('float32') converts elements"
        raise TrainError(f"{what} is {got}, expected {type}", loc=caller(), hint=hint, code=code)
    return array


def type_of(array: Array) -> TensorType:
    """Element type and shape of an array."""
    return TensorType(dtype(array.dtype), array.shape)


def frozen_names(arrays: Mapping[str, Array], frozen: Sequence[str]) -> tuple[str, ...]:
    """The parameters that are not trained; TrainError (MDLC1251) if they are none, or all."""
    names = expect_each(WHO, "frozen", frozen, str)
    for name in names:
        if name not in arrays:
            text, hint = f"frozen: {name!r} is no parameter", nearest(name, arrays, most=20)
            raise TrainError(f"{WHO}: {text}", loc=caller(), hint=hint, code="MDLC1251")
    if set(arrays) <= set(names):
        hint = "name inputs in params, and do not freeze all of them"
        text = f"{WHO}: there is nothing to train"
        raise TrainError(text, loc=caller(), hint=hint, code="MDLC1251")
    return names


def checked_plan(
    optimizer: object,
    accumulate: int,
    clip_norm: float | None,
    loss_scale: DynamicScale | float | None,
    frozen: tuple[str, ...],
    seed: int,
) -> Plan:
    """The options as a plan; TrainError: MDLC1253 no optimiser, 1254 a number out of range."""
    optimizer = Adam() if optimizer is None else optimizer
    if isinstance(optimizer, type) or not isinstance(optimizer, Optimizer):
        text = f"{WHO}: optimizer is {optimizer!r:.60}, which has no slots and update"
        hint = "mc.train.sgd(0.1), or an object with learning_rate, slots and update"
        raise TrainError(text, loc=caller(), hint=hint, code="MDLC1253")
    _check_signatures(optimizer)
    expect(WHO, "accumulate", accumulate, int)
    if accumulate < 1:
        _refuse("accumulate", accumulate, "at least 1: every call updates")
    expect(WHO, "seed", seed, int)
    if not 0 <= seed < SEEDS:
        _refuse("seed", seed, f"0 to {SEEDS - 1}")
    if clip_norm is not None:
        clip_norm = _positive("clip_norm", clip_norm)
    scale = 1.0 if loss_scale is None else loss_scale
    if not isinstance(scale, DynamicScale):
        scale = _positive("loss_scale", scale)
    return Plan(optimizer, accumulate, clip_norm, scale, frozen, seed)


def _check_signatures(optimizer: Optimizer) -> None:
    """TrainError (MDLC1253) for `slots` or `update` that cannot be called as a step calls them."""
    for name in ("slots", "update"):
        wanted = [p for p in signature(getattr(Optimizer, name)).parameters if p != "self"]
        try:
            signature(getattr(optimizer, name)).bind(*wanted)
        except ValueError:  # some functions of C say nothing about themselves
            continue
        except TypeError as e:
            text = f"{WHO}: {type(optimizer).__name__}.{name} cannot be called: {e}"
            hint = f"def {name}(self, {', '.join(wanted)})"
            raise TrainError(text, loc=caller(), hint=hint, code="MDLC1253") from None


def check_names(options: Iterable[str], *functions: Callable[..., Any]) -> None:
    """TrainError (MDLC1259) for an option that none of the functions has."""
    named = [p for f in functions for p in signature(f).parameters.values()]
    known = [p.name for p in named if p.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            text, hint = f"{WHO}: there is no option {name!r}", nearest(name, known)
            raise TrainError(text, loc=caller(), hint=hint, code="MDLC1259")


def with_passes(options: Mapping[str, Any], remat: int | None) -> dict[str, Any]:
    """The options of `mc.compile`, with passes for a step unless the caller chose some.

    They are the default passes with the fusion style `stitch`: an update has several results, such
    as a parameter and its running means, and one kernel for all of them reads each array once.
    `remat` bytes may be alive between kernels: the pass of that name comes last. Raises TrainError
    (MDLC1258) for that beside passes of the caller's.
    """
    expect(WHO, "remat", remat, int, type(None), hint="bytes: 8 << 20 is 8 MiB")
    if "pipeline" in options:
        if remat is None:
            return dict(options)
        text = f"{WHO}: remat is a pass, and pipeline= names all of them"
        hint = "pipeline.insert_after('fuse', minidlc.transform.Remat(budget))"
        raise TrainError(text, loc=caller(), hint=hint, code="MDLC1258")
    target, level = options.get("target") or host(), options.get("opt_level", 3)
    expect("compile", "target", target, Target, hint="minidlc.target.host()")
    passes = Pipeline.default(level, replace(target, precision=options.get("precision", "default")))
    if Fuse.name in passes.names:
        passes = passes.replace(Fuse.name, Fuse(style="stitch"))
    if remat is not None:
        passes = Pipeline((*passes.passes, Remat(budget=remat)))
    return {**options, "pipeline": passes}


def _positive(name: str, number: object) -> float:
    return checked(WHO, name, number, "a positive number", lambda n: 0 < n < math.inf)


def _refuse(name: str, got: object, wanted: str) -> Never:
    text = f"{WHO}: {name} is {got}, expected {wanted}"
    raise TrainError(text, loc=caller(), code="MDLC1254")
