"""Training: data, losses, optimisers, the compiled step, checkpoints (course chapter 03_autodiff).

    data = mc.train.dataset({"x": x, "y": y}).shuffle(seed=0).batch(64, drop_last=True)
    step = mc.compile_train_step(loss, params, optimizer=mc.train.adam(1e-3))
    for batch in data:
        print(step(**batch)[0])                     # the loss; parameters are updated in place

Names are loaded on first use: data and checkpoints need no LLVM. Reading order: atomic, records,
stages, loading, data, checkpoint; limits, losses, optimizers, schedules, scaling, mixed_precision,
variables, step_options, step_graph, step; console, trainer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minidlc.support.errors import nearest

if TYPE_CHECKING:
    from minidlc.train.checkpoint import Checkpoints as Checkpoints
    from minidlc.train.checkpoint import load as load
    from minidlc.train.checkpoint import save as save
    from minidlc.train.data import dataset as dataset
    from minidlc.train.data import windows as windows
    from minidlc.train.losses import binary_cross_entropy as binary_cross_entropy
    from minidlc.train.losses import cross_entropy as cross_entropy
    from minidlc.train.losses import hinge as hinge
    from minidlc.train.losses import huber as huber
    from minidlc.train.losses import kl_divergence as kl_divergence
    from minidlc.train.losses import mae as mae
    from minidlc.train.losses import mse as mse
    from minidlc.train.mixed_precision import autocast as autocast
    from minidlc.train.optimizers import Optimizer as Optimizer
    from minidlc.train.optimizers import adam as adam
    from minidlc.train.optimizers import adamw as adamw
    from minidlc.train.optimizers import momentum as momentum
    from minidlc.train.optimizers import rmsprop as rmsprop
    from minidlc.train.optimizers import sgd as sgd
    from minidlc.train.records import Records as Records
    from minidlc.train.records import RecordWriter as RecordWriter
    from minidlc.train.scaling import DynamicScale as DynamicScale
    from minidlc.train.schedules import constant as constant
    from minidlc.train.schedules import cosine as cosine
    from minidlc.train.schedules import decay as decay
    from minidlc.train.schedules import warmup as warmup
    from minidlc.train.step import TrainStep as TrainStep
    from minidlc.train.step import compile_train_step as compile_train_step
    from minidlc.train.trainer import Trainer as Trainer

_HOME = {
    "Checkpoints": "checkpoint",
    "DynamicScale": "scaling",
    "Optimizer": "optimizers",
    "RecordWriter": "records",
    "Records": "records",
    "TrainStep": "step",
    "Trainer": "trainer",
    "adam": "optimizers",
    "adamw": "optimizers",
    "autocast": "mixed_precision",
    "binary_cross_entropy": "losses",
    "compile_train_step": "step",
    "constant": "schedules",
    "cosine": "schedules",
    "cross_entropy": "losses",
    "dataset": "data",
    "decay": "schedules",
    "hinge": "losses",
    "huber": "losses",
    "kl_divergence": "losses",
    "load": "checkpoint",
    "mae": "losses",
    "momentum": "optimizers",
    "mse": "losses",
    "rmsprop": "optimizers",
    "save": "checkpoint",
    "sgd": "optimizers",
    "warmup": "schedules",
    "windows": "data",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        hint = nearest(name, _HOME)
        raise AttributeError(f"mc.train has no {name!r}; {hint}", name=name)
    value = getattr(importlib.import_module(f"minidlc.train.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)
