"""`mc.use`: a stage of the compiler, replaced by a function of one's own.

    with mc.use(toposort=order_nodes):              # a point of docs/extension_points.md
        graph = mc.load_onnx("model.onnx")          # made in the order of `order_nodes`
    with mc.use(**{"pass.cse": mine}): …            # a member of a family

Reads the table of points in support/extension.py. Points are declared by the modules that call
them. The rest of the compiler, and with it LLVM, is loaded only for a name that what is loaded does
not know. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from minidlc.support import extension


def use(**overrides: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace stages by name inside the block.

    Raises OptionError for an unknown name (MDLC1002) or a value that cannot be called (MDLC1003).
    """
    if not all(map(extension.is_known, overrides)):
        # they declare points, or load what does
        for module in ("minidlc.autodiff", "minidlc.driver", "minidlc.tuning.problem"):
            importlib.import_module(module)
    return extension.use(**overrides)
