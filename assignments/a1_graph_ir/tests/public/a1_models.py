"""Small ONNX models as bytes, for the tests of task 1.7 (given to students)."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model(dims, nodes, opset=18, constants=None, inputs=()):
    """The bytes of a model x -> y; `nodes` are (op_type, inputs, outputs, attributes).

    `constants` {name: integers} are initializers, `inputs` {name: dims} more inputs, of integers.
    """
    more = [helper.make_tensor_value_info(k, TensorProto.INT64, d) for k, d in dict(inputs).items()]
    graph = helper.make_graph(
        [helper.make_node(op, i, o, **attributes) for op, i, o, attributes in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims), *more],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
