"""Each thing a type rule refuses, with its message, code and hint."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minidlc.ops
from minidlc.expr.types import TensorType, bool_, f32, f64, i32, i64
from minidlc.graph import Input, TupleType, apply, getitem, op
from minidlc.support.errors import OptionError, TypeRuleError

X = f32[4, 8]
NORMALISED = (X, f32[8], f32[8], f32[8], f32[8])

# op, input types, attributes, code, message, hint
REFUSED = [
    ("matmul", (X, f32[7, 3]), {}, "MDLC0203", "matmul: inner dimensions differ: 8 != 7", None),
    ("matmul", (X, f32[3, 8]), {}, "MDLC0203", "inner dimensions differ: 8 != 3", "transpose(b)"),
    ("matmul", (X, f32[()]), {}, "MDLC0204", "b is a scalar", "use mul"),
    ("matmul", (f32[2, 4, 8], f32[3, 8, 3]), {}, "MDLC0203", "do not broadcast", None),
    ("matmul", (X, f64[8, 3]), {}, "MDLC0202", "element types differ: f32 and f64", "cast"),
    ("matmul", (bool_[4, 8], bool_[8, 3]), {}, "MDLC0202", "got bool", None),
    ("add", (X,), {}, "MDLC0201", "add: takes 2 inputs, got 1", None),
    ("add", (X, None), {}, "MDLC0201", "add: input 1 is required, got None", None),
    ("add", (X, f32[3]), {}, "MDLC0203", "axis -1: 8 and 3", "dims must be equal"),
    ("add", (f32["N", 8], f32[4, 1]), {}, "MDLC0205", "axis -2: N and 4", "shapes="),
    ("add", (bool_[2], bool_[2]), {}, "MDLC0202", "takes float or int or uint elements", None),
    ("exp", (i32[2],), {}, "MDLC0202", "exp: takes float elements, got i32", "cast"),
    ("where", (X, X, X), {}, "MDLC0202", "takes bool elements", None),
    ("mod", (bool_[2], bool_[2]), {}, "MDLC0202", "takes float or int or uint elements", None),
    ("leaky_relu", (X,), {"alpha": math.nan}, "MDLC0210", "alpha must be a finite number", None),
    ("clip", (X,), {"max": math.inf}, "MDLC0210", "max must be a finite number, got inf", None),
    ("gelu", (X,), {"approximate": "cubic"}, "MDLC0209", "'none' or 'tanh', got 'cubic'", None),
    ("softmax", (X,), {"axis": 2}, "MDLC0209", "softmax: axis 2 is outside [-2, 1]", "rank 2"),
    ("softmax", (f32[()],), {}, "MDLC0209", "a scalar, which has no axes", None),
    ("sum", (X,), {"axes": (0, -2)}, "MDLC0209", "named twice", None),
    ("flatten", (f32[2, 3, 4],), {"axis": 5}, "MDLC0209", "axis 5 is outside [-3, 3]", None),
    ("flatten", (f32[2, 3, 4],), {"axis": -4}, "MDLC0209", "axis -4 is outside [-3, 3]", None),
    ("reshape", (X,), {"shape": (5, -1)}, "MDLC0203", "32 elements do not fill (5, -1)", "-1"),
    ("reshape", (X,), {"shape": (3, 3)}, "MDLC0203", "32 elements do not fill (3, 3)", None),
    ("reshape", (X,), {"shape": (-1, -1)}, "MDLC0209", "one may be -1", None),
    ("reshape", (f32["N", "M"],), {"shape": (-1,)}, "MDLC0205", "cannot be compared", "shapes="),
    ("squeeze", (X,), {"axes": (0,)}, "MDLC0203", "axis 0 of f32[4, 8] has size 4, not 1", None),
    ("transpose", (X,), {"perm": (0, 0)}, "MDLC0209", "(0, 0) is no order of 2 axes", None),
    ("expand", (X,), {"shape": (-1, 8)}, "MDLC0209", "negative dim", None),
    ("concat", (X, f32[3, 7]), {"axis": 0}, "MDLC0203", "axis 1 differs: 8 and 7", None),
    ("concat", (), {"axis": 0}, "MDLC0201", "at least one input", None),
    ("slice", (X,), {"starts": (0,), "ends": ()}, "MDLC0209", "1 starts, but ends has 0", None),
    ("slice", (f32["N"],), {"starts": (1,), "ends": (9,)}, "MDLC0205", "size N", "shapes="),
    ("tile", (X,), {"repeats": (2,)}, "MDLC0209", "repeats must have 2 entries", None),
    ("tile", (X,), {"repeats": (2, -1)}, "MDLC0209", "repeats must be at least 0", None),
    ("trilu", (f32[3],), {}, "MDLC0204", "takes matrices", None),
    ("depth_to_space", (f32[1, 6, 2, 2],), {"blocksize": 2}, "MDLC0203", "6 is no multiple", None),
    ("depth_to_space", (f32[1, 4, 2, 2],), {"blocksize": 2, "mode": "X"}, "MDLC0209", "'X'", None),
    ("space_to_depth", (f32[1, 1, 3, 2],), {"blocksize": 2}, "MDLC0203", "height 3", None),
    ("space_to_depth", (f32[1, 1, 3, 2],), {"blocksize": 0}, "MDLC0209", "at least 1", None),
    ("pad", (X,), {"pads": (1, 1)}, "MDLC0209", "pads must have 4 entries", "all begins"),
    ("pad", (f32[3],), {"pads": (-2, -2)}, "MDLC0203", "size 3 cannot lose 4", None),
    ("pad", (f32[0],), {"pads": (1, 0), "mode": "edge"}, "MDLC0203", "no element to edge", None),
    ("pad", (f32[3],), {"pads": (1, 0), "mode": "mirror"}, "MDLC0209", "'mirror' is none", None),
    ("pad", (f32[3], f64[()]), {"pads": (1, 0)}, "MDLC0202", "element types differ", None),
    ("concat", (X, f32[8]), {"axis": 0}, "MDLC0204", "every input must have rank 2", None),
    ("gemm", (X, f32[3, 8]), {}, "MDLC0203", "inner dimensions differ: 8 != 3", "transB=True"),
    ("gemm", (X, f32[8, 3], f32[5]), {}, "MDLC0203", "do not broadcast", None),
    ("gemm", (X, f32[8, 3], f32[1, 4, 3]), {}, "MDLC0203", "c: f32[1, 4, 3]", None),
    ("gemm", (f32[8], f32[8, 3]), {}, "MDLC0204", "a must have rank 2", None),
    ("gemm", (X, f32[8, 3]), {"alpha": math.inf}, "MDLC0210", "alpha must be a finite", None),
    ("gemm", (i32[4, 8], i32[8, 3]), {"alpha": 0.5}, "MDLC0202", "scale floats only", None),
    ("conv", (f32[1, 6, 5, 5], f32[4, 3, 3, 3]), {}, "MDLC0203", "x has 6 channels", "group=2"),
    ("conv", (f32[1, 3, 5, 5], f32[4, 3, 3]), {}, "MDLC0204", "w must have rank 4", None),
    ("conv", (f32[1, 3], f32[4, 3]), {}, "MDLC0204", "x must have rank 3 or 4 or 5", None),
    ("conv", (f32[1, 3, 2, 2], f32[4, 3, 3, 3]), {}, "MDLC0203", "3 does not fit in 2", None),
    ("conv", (f32[1, 4, 5, 5], f32[4, 2, 3, 3]), {"group": 3}, "MDLC0209", "does not divide", None),
    ("conv", (f32[1, 1, 5, 5], f32[1, 1, 3, 3]), {"pads": (1, 2)}, "MDLC0209", "4 entries", None),
    ("conv", (f32[1, 1, 5, 5], f32[1, 1, 3, 3]), {"strides": (0, 1)}, "MDLC0209", "least 1", None),
    ("max_pool", (X,), {"kernel_shape": (2, 2)}, "MDLC0204", "x must have rank 3 or 4", None),
    ("max_pool", (f32[1, 1, 5, 5],), {"kernel_shape": (2,)}, "MDLC0209", "spatial axis", None),
    ("max_pool", (f32[1, 1, 5],), {"kernel_shape": (2,), "pads": (2, 0)}, "MDLC0209", "of 2", None),
    ("max_pool_with_indices", (f32[1, 1, 5],), {"kernel_shape": (2,), "storage_order": 2},
     "MDLC0209", "storage_order must be 0 or 1, got 2", None),
    ("max_unpool", (f32[1, 1, 2], i64[1, 1, 3]), {"kernel_shape": (2,)}, "MDLC0203",
     "one position for each element", None),
    ("max_unpool", (f32[1, 1, 2], i32[1, 1, 2]), {"kernel_shape": (2,)}, "MDLC0202",
     "indices must be i64, got i32", None),
    ("max_unpool", (f32[1, 1, 2], i64[1, 1, 2]), {"kernel_shape": (2,), "output_shape": (1, 1, 2)},
     "MDLC0209", "does not hold f32[1, 1, 3]", None),
    ("lp_pool", (f32[1, 1, 5],), {"kernel_shape": (2,), "p": 0}, "MDLC0209", "at least 1", None),
    ("conv_transpose", (f32[1, 3, 5], f32[2, 3, 3]), {}, "MDLC0203", "w wants 2", "[c, o / group"),
    ("conv_transpose", (f32[1, 3, 5], f32[3, 3, 3]), {"group": 2}, "MDLC0209", "not divide", None),
    ("conv_transpose", (f32[1, 1, 1], f32[1, 1, 3]), {"pads": (2, 2)}, "MDLC0203",
     "its size would be -1", None),
    ("conv_transpose", (f32[1, 1, 1], f32[1, 1, 3], f32[2]), {}, "MDLC0203", "b must be", None),
    ("paint", (f32[1, 1],), {"rounds": ()}, "MDLC0204", "rank", None),
    ("paint", (f32[1, 1, 2, 3],), {"rounds": (1, 2)}, "MDLC0209", "rounds", None),
    ("arg_max", (f32[3, 0],), {"axis": 1}, "MDLC0203", "has no element to choose", None),
    ("arg_min", (X,), {"axis": 2}, "MDLC0209", "axis 2 is outside [-2, 1]", None),
    ("topk", (f32[3],), {"k": 0, "axis": 0}, "MDLC0209", "k must be at least 1, got 0", None),
    ("topk", (f32[3],), {"k": -1, "axis": 0}, "MDLC0209", "k must be at least 1, got -1", None),
    ("topk", (f32[3],), {"k": 4, "axis": 0}, "MDLC0209", "k is 4, but axis 0", None),
    ("cumsum", (f32[()],), {"axis": 0}, "MDLC0209", "a scalar, which has no axes", None),
    ("cumprod", (bool_[3],), {"axis": 0}, "MDLC0202", "got bool", None),
    ("det", (f32[3, 2],), {}, "MDLC0203", "takes square matrices", None),
    ("grid_sample", (f32[1, 1, 4, 4], f32[1, 2, 2, 3]), {}, "MDLC0203", "hold 2 coordinates", None),
    ("grid_sample", (f32[1, 1, 4, 4], f32[2, 2, 2, 2]), {}, "MDLC0203", "grid is for 2", None),
    ("grid_sample", (f32[1, 1, 4, 4], f32[1, 2, 2, 2]), {"mode": "bilinear"}, "MDLC0209",
     "mode 'bilinear' is none of", None),
    ("grid_sample", (f32[1, 1, 0], f32[1, 2, 1]), {}, "MDLC0203", "no element to read", None),
    ("global_lp_pool", (f32[1, 1, 5],), {"p": 0}, "MDLC0209", "at least 1", None),
    ("hardmax", (i32[2],), {}, "MDLC0202", "takes float elements, got i32", "cast"),
    ("resample", (f32[0],), {"axis": 0, "size": 2}, "MDLC0203", "no element to repeat", None),
    ("resize", (X,), {}, "MDLC0209", "takes scales or sizes", None),
    ("resize", (X,), {"scales": (1.0, 2.0), "sizes": (4, 8)}, "MDLC0209", "one of the two", None),
    ("resize", (X,), {"scales": (1.0, 0.0)}, "MDLC0209", "scales must be 2 numbers above 0", None),
    ("resize", (X,), {"scales": (1.0, math.inf)}, "MDLC0210", "must be a finite number", None),
    ("resize", (X,), {"sizes": (4, -8)}, "MDLC0209", "sizes must be at least 0", None),
    ("resize", (X,), {"sizes": (4,), "axes": (2,)}, "MDLC0209", "axis 2 is outside", None),
    ("resize", (X,), {"sizes": (4, 8), "mode": "area"}, "MDLC0209", "mode 'area' is none of", None),
    ("resize", (X,), {"sizes": (4, 8), "antialias": True}, "MDLC0209", "be antialiased", None),
    ("resize", (X,), {"sizes": (4, 8), "coordinate_transformation_mode": "tf_crop_and_resize"},
     "MDLC0209", "roi must have 4 entries", "all starts"),
    ("resize", (f32["N"],), {"scales": (1.5,)}, "MDLC0205", "N times 1.5 is not known", "shapes="),
    ("resize", (f32[0],), {"sizes": (2,)}, "MDLC0203", "no element to repeat", None),
    ("batch_norm", NORMALISED, {"epsilon": math.nan}, "MDLC0210", "", None),
    ("batch_norm", NORMALISED, {"epsilon": -1.0}, "MDLC0209", "", None),
    ("batch_norm", (X, f32[8], f32[7], *NORMALISED[3:]), {}, "MDLC0203", "bias must be", None),
    ("layer_norm", (X, f32[7]), {}, "MDLC0203", "axis -1: 8 and 7", None),
    ("layer_norm", (X, f32[2, 4, 8]), {}, "MDLC0203", "does not broadcast to x f32[4, 8]", None),
    ("layer_norm", (X, f32[8]), {"axis": 2}, "MDLC0209", "axis 2 is outside [-2, 1]", None),
    ("layer_norm", (X, f64[8]), {}, "MDLC0202", "element types differ", "cast"),
    ("rms_norm", (X, f32[8]), {"epsilon": -1.0}, "MDLC0209", "must not be negative", None),
    ("rms_norm", (X, f32[8]), {"epsilon": math.inf}, "MDLC0210", "must be a finite", None),
    ("instance_norm", (X, f32[8], f32[8]), {}, "MDLC0204", "rank 3 or more", None),
    ("instance_norm", (f32[1, 2, 3], f32[2], f32[3]), {}, "MDLC0203", "bias must be f32[2]", None),
    ("group_norm", NORMALISED[:3], {"num_groups": 3}, "MDLC0209", "3 does not divide 8", None),
    ("group_norm", (f32["N", "C"], f32["C"], f32["C"]), {"num_groups": 1}, "MDLC0205",
     "one symbolic dim", "shapes="),
    ("lp_normalization", (X,), {"p": 3}, "MDLC0209", "p must be 1 or 2, got 3", None),
    ("mean_variance_normalization", (X,), {}, "MDLC0209", "axis 2 is outside [-2, 1]", None),
    ("mean_variance_normalization", (X,), {"axes": ()}, "MDLC0209", "axes must name an axis", None),
    ("reduce_l2", (i32[2],), {}, "MDLC0202", "takes float elements, got i32", "cast"),
    ("reduce_l1", (X,), {"axes": (2,)}, "MDLC0209", "axis 2 is outside [-2, 1]", None),
    ("softmax", (X,), {"axis": "last"}, "MDLC0208", "'axis': expected int, got 'last'", None),
    ("softmax", (X,), {"axes": 1}, "MDLC0208", "unexpected keyword argument 'axes'", "'axis'?"),
    ("gemm", (X, X), {"trans_b": 1}, "MDLC0208", "argument 'trans_b'", "did you mean 'transB'?"),
    ("relu", (X,), {"slope": 0.1}, "MDLC0208", "unexpected keyword argument 'slope'", None),
    ("max_pool", (X,), {}, "MDLC0208", "missing 1 required positional argument", None),
    ("cast", (X,), {"to": "f33"}, "MDLC0202", "no element type for 'f33'", "f3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "types", "attributes", "code", "message", "hint"),
    REFUSED,
    ids=[f"{row[0]}-{n}" for n, row in enumerate(REFUSED)],
)
def test_refused(
    name: str,
    types: tuple[TensorType | None, ...],
    attributes: dict[str, object],
    code: str,
    message: str,
    hint: str | None,
) -> None:
    values = [None if t is None else Input(f"x{n}", t) for n, t in enumerate(types)]
    with pytest.raises(TypeRuleError) as caught:
        apply(name, *values, **attributes)
    assert caught.value.code == code
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")
    assert caught.value.loc is not None


def test_the_message_shows_the_inputs_and_the_place() -> None:
    with pytest.raises(TypeRuleError) as caught:
        apply("matmul", Input("x", X), Input("w", f32[7, 3]))
    text = str(caught.value)
    assert text.startswith("error[MDLC0203]: matmul: inner dimensions differ: 8 != 7\n")
    assert "= input 0: x: f32[4, 8]" in text
    assert "= input 1: w: f32[7, 3]" in text
    assert "test_type_rules.py:" in text


def test_symbolic_dims_go_through_every_family() -> None:
    x = Input("x", f32["N", 1, 28, 28])
    y = apply("conv", x, Input("w", f32[8, 1, 5, 5]), pads=(2, 2, 2, 2))
    y = apply("max_pool", apply("relu", y), kernel_shape=(2, 2), strides=(2, 2))
    assert str(y.type) == 'f32["N", 8, 14, 14]'
    flat = apply("flatten", y)
    assert str(flat.type) == 'f32["N", 1568]'
    z = apply("softmax", flat @ Input("v", f32[1568, 10]) + Input("b", f32[10]))
    assert str(z.type) == 'f32["N", 10]'
    assert str(apply("reshape", z, shape=(-1, 5)).type) == 'f32["2*N", 5]'
    assert str(apply("concat", z, z, axis=0).type) == 'f32["2*N", 10]'
    assert str(apply("mean", z, axes=(1,), keepdims=False).type) == 'f32["N"]'


def test_a_tuple_is_refused_where_a_tensor_is_needed() -> None:
    from minidlc.graph import Fused, Graph

    x = Input("x", X)
    both = Graph.of("both", [x], [apply("exp", x), apply("neg", x)])
    pair = apply("fused", Input("y", X), body=both)
    assert isinstance(pair.type, TupleType)
    assert isinstance(pair.op, Fused)
    with pytest.raises(TypeRuleError, match=r"input 0 is the tuple") as caught:
        apply("relu", pair)
    assert "getitem" in str(caught.value)
    assert getitem(pair, 1).type == X
    with pytest.raises(TypeRuleError, match="index 2 of 2 results"):
        getitem(pair, 2)


def test_functional_calls_ops_by_name() -> None:
    y = minidlc.ops.functional("softmax")(Input("x", X), axis=1)
    assert str(y.type) == "f32[4, 8]"
    assert minidlc.ops.functional("relu").__doc__ is not None
    with pytest.raises(AttributeError, match="did you mean 'softmax'"):
        minidlc.ops.functional("sofmax")


def test_a_number_takes_the_type_of_the_tensor() -> None:
    y = apply("mul", Input("x", f64[3]), 2.5)
    assert str(y.type) == "f64[3]"
    assert apply("add", Input("x", f32[3]), np.ones(3, np.float32)).type == f32[3]


def test_attributes_may_be_lists_and_numpy_integers() -> None:
    x = Input("x", f32[1, 1, 4, 4])
    y = apply("max_pool", x, kernel_shape=[2, 2], strides=[2, 2])
    assert y.op.attributes()["kernel_shape"] == (2, 2)
    assert apply("softmax", x, axis=np.int64(1)).op.attributes() == {"axis": 1}
    assert str(apply("cast", x, to="float64").type) == "f64[1, 1, 4, 4]"


def test_ops_that_were_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "_registry", {})
    with pytest.raises(OptionError, match="unknown op 'relu'") as caught:
        apply("relu", Input("x", X))
    assert "import minidlc.ops" in str(caught.value.hint)
