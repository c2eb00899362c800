"""minidlc: a compact, complete deep-learning compiler, written to be read.

    import minidlc as mc
    exe = mc.compile("model.onnx", threads=2)
    outs = exe(x)
    print(exe.kernels[0].loops)

Names are loaded on first use, so that reading graphs does not load LLVM. Ops are functions of the
same module: `mc.relu(x)`, `mc.softmax(x, axis=1)`. Read driver.py first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minidlc.support.errors import CompileError as CompileError

if TYPE_CHECKING:
    from minidlc import debug as debug
    from minidlc import npu as npu
    from minidlc import target as target
    from minidlc import te as te
    from minidlc import train as train
    from minidlc import viz as viz
    from minidlc.autodiff import custom_gradient as custom_gradient
    from minidlc.autodiff import grad as grad
    from minidlc.autodiff import hvp as hvp
    from minidlc.autodiff import jvp as jvp
    from minidlc.autodiff import value_and_grad as value_and_grad
    from minidlc.driver import compile as compile
    from minidlc.executable import Executable as Executable
    from minidlc.expr.types import DType as DType
    from minidlc.expr.types import TensorType as TensorType
    from minidlc.frontend.onnx import load_onnx as load_onnx
    from minidlc.frontend.onnx import to_onnx as to_onnx
    from minidlc.frontend.script import script as script
    from minidlc.frontend.trace import trace as trace
    from minidlc.graph import Constant as Constant
    from minidlc.graph import Graph as Graph
    from minidlc.graph import Input as Input
    from minidlc.graph import interpret as interpret
    from minidlc.graph import parse as parse
    from minidlc.graph import verify as verify
    from minidlc.graph.eager import eager as eager
    from minidlc.graph.eager import tensor as tensor
    from minidlc.jitted import jit as jit
    from minidlc.overrides import use as use
    from minidlc.sessions import session as session
    from minidlc.train.step import compile_train_step as compile_train_step
    from minidlc.transform import Pipeline as Pipeline
    from minidlc.transform import remat as remat
    from minidlc.tuned import tune as tune

__version__ = "0.1.0"

_HOME = {
    "compile": "minidlc.driver",
    "compile_train_step": "minidlc.train.step",
    "custom_gradient": "minidlc.autodiff.custom",
    "grad": "minidlc.autodiff",
    "hvp": "minidlc.autodiff",
    "jvp": "minidlc.autodiff",
    "value_and_grad": "minidlc.autodiff",
    "Executable": "minidlc.executable",
    "load_onnx": "minidlc.frontend.onnx",
    "to_onnx": "minidlc.frontend.onnx",
    "trace": "minidlc.frontend.trace",
    "script": "minidlc.frontend.script",
    "jit": "minidlc.jitted",
    "eager": "minidlc.graph.eager",
    "tensor": "minidlc.graph.eager",
    "Graph": "minidlc.graph",
    "Input": "minidlc.graph",
    "Constant": "minidlc.graph",
    "parse": "minidlc.graph",
    "interpret": "minidlc.graph",
    "verify": "minidlc.graph",
    "Pipeline": "minidlc.transform",
    "remat": "minidlc.transform",
    "session": "minidlc.sessions",
    "tune": "minidlc.tuned",
    "CompileError": "minidlc.support.errors",
    "use": "minidlc.overrides",
    "DType": "minidlc.expr.types",
    "TensorType": "minidlc.expr.types",
}
_DTYPES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_HOME.update(dict.fromkeys((*_DTYPES, "bool_"), "minidlc.expr.types"))
_MODULES = ("debug", "npu", "target", "te", "train", "viz")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if name in _MODULES:
        return importlib.import_module(f"minidlc.{name}")
    ops = importlib.import_module("minidlc.ops")  # parsing and interpreting need the registry
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        value = ops.functional(name)  # AttributeError if there is none: hasattr() relies on it
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    ops = importlib.import_module("minidlc.graph").registered_ops()
    return sorted([*_HOME, *_MODULES, *ops, "__version__"])
