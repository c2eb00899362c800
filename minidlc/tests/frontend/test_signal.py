"""Ops that the importer makes of others: DFT, STFT, Col2Im, DeformConv, RoiAlign."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from minidlc.frontend.onnx import load_onnx
from minidlc.support.errors import CompileError
from minidlc.tests.frontend.helpers import F, model, node, run

RNG = np.random.default_rng(3)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def uniform(*shape: int, low: float = -2, high: float = 2) -> Any:
    return RNG.uniform(low, high, shape).astype(F)


def close(got: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    assert got.shape == wanted.shape
    assert got.dtype == F
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def refused(built: onnx.ModelProto, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_onnx(built)
    assert caught.value.code == "MDLC0116"
    assert text in str(caught.value)
    assert "not supported" in str(caught.value)


def by_reference(built: onnx.NodeProto, inputs: dict[str, Any], opset: int) -> Any:
    proto = model([built], inputs, opset=opset)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return ReferenceEvaluator(proto).run(None, inputs)[0]


def pairs(z: Any) -> Any:
    """Complex numbers as (real, imaginary) along a last axis."""
    return np.stack([z.real, z.imag], -1)


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("length", [None, 5, 8, 12])
def test_dft_is_that_of_numpy(axis: int, length: int | None) -> None:
    x = uniform(3, 8, 2, 2).astype(np.float64)
    real, z = x[..., 0], x[..., 0] + 1j * x[..., 1]
    weights = {"a": np.int64(axis)} | ({} if length is None else {"n": np.int64(length)})
    name = "_" if length is None else "n"
    place = axis if axis >= 0 else axis + 1  # of an array without the last axis

    def dft(array: Any, **attributes: int) -> Any:
        return run(node("DFT", f"x {name} a", "y", **attributes), {"x": array.astype(F)}, weights)

    close(dft(x), pairs(np.fft.fft(z, length, place)))
    close(dft(real[..., None]), pairs(np.fft.fft(real, length, place)))
    close(dft(real[..., None], onesided=1), pairs(np.fft.rfft(real, length, place)))
    if real.shape[axis if axis >= 0 else axis + 1] > 1:
        back = np.fft.irfft(z, length, place)[..., None]
        close(dft(x, inverse=1, onesided=1), back)


def test_an_inverse_to_complex_elements_is_refused() -> None:
    inputs = {"x": uniform(1, 4, 2)}
    refused(model([node("DFT", "x", "y", inverse=1)], inputs), "complex elements")


def test_the_default_axis_of_dft_moved() -> None:
    x = uniform(2, 4, 3, 1)
    close(run(node("DFT", "x", "y"), {"x": x}, opset=19), pairs(np.fft.fft(x[..., 0], axis=1)))
    close(run(node("DFT", "x", "y"), {"x": x}, opset=20), pairs(np.fft.fft(x[..., 0], axis=2)))
    attribute = node("DFT", "x", "y", axis=-2)
    close(run(attribute, {"x": x}, opset=17), pairs(np.fft.fft(x[..., 0], axis=2)))


def test_what_transforms_refuse() -> None:
    x = uniform(2, 4, 2)
    last = {"a": np.int64(2)}
    refused(model([node("DFT", "x _ a", "y")], {"x": x}, weights=last), "a transform of axis 2")
    refused(model([node("DFT", "x", "y", onesided=1)], {"x": x}), "onesided of complex elements")
    zero = {"n": np.int64(0)}
    refused(model([node("DFT", "x n", "y")], {"x": x}, weights=zero), "of length 0")
    refused(model([node("DFT", "x", "y")], {"x": uniform(2, 4, 3)}), "the last axis holds 1 or 2")
    frames = {"s": np.int64(1), "n": np.int64(5)}
    built = model([node("STFT", "x s _ n", "y")], {"x": x}, weights=frames)
    refused(built, "frames of 5 every 1 of 4 elements")


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_transforms_each_frame(onesided: int) -> None:
    x, window = uniform(2, 20, 1), uniform(6)
    frames = np.stack([x[:, s : s + 6, 0] * window for s in range(0, 15, 4)], 1)
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    weights = {"s": np.int64(4), "w": window, "n": np.int64(6)}
    for inputs in ("x s w", "x s w n"):
        got = run(node("STFT", inputs, "y", onesided=onesided), {"x": x}, weights)
        close(got, pairs(wanted))


@pytest.mark.parametrize(
    ("image", "block", "blocks", "attributes"),
    [
        ((5, 5), (1, 5), (5, 1), {}), ((6, 6), (2, 2), (5, 1), {"dilations": [1, 5]}),
        ((5, 5), (3, 3), (2, 2), {"strides": [2, 2]}), ((6, 5), (3, 2), (3, 2), {
            "strides": [2, 3], "pads": [1, 0, 1, 1]}),
        ((3, 4, 5), (1, 1, 5), (3, 4, 1), {}), ((7,), (3,), (3,), {"strides": [2]}),
    ],
)  # fmt: skip
def test_col2im_adds_up_blocks(
    image: tuple[int, ...], block: tuple[int, ...], blocks: tuple[int, ...], attributes: Any
) -> None:
    x = uniform(2, 3 * int(np.prod(block)), int(np.prod(blocks)))
    weights = {"i": ints(*image), "b": ints(*block)}
    built = node("Col2Im", "x i b", "y", **attributes)
    got = run(built, {"x": x}, weights)
    if len(image) > 1:  # the reference has no 1-D
        close(got, by_reference(built, {"x": x, **weights}, 20))
        return
    wanted = np.zeros((2, 3, 7), F)
    for k in range(3):
        wanted[:, :, k : k + 5 : 2] += x.reshape(2, 3, 3, 3)[:, :, k]
    close(got, wanted)


def test_col2im_adds_integers_and_keeps_an_infinity_where_it_is() -> None:
    weights = {"i": ints(3), "b": ints(2)}
    built = node("Col2Im", "x i b", "y")
    x = np.array([[[1, 2], [30, 40]]], np.int32)
    np.testing.assert_array_equal(run(built, {"x": x}, weights), [[[1, 32, 40]]])
    x = F([[[1, 2], [30, np.inf]]])
    np.testing.assert_array_equal(run(built, {"x": x}, weights), F([[[1, 32, np.inf]]]))


def test_col2im_refuses_what_does_not_fit() -> None:
    weights = {"i": ints(5, 5), "b": ints(2, 2)}
    built = model([node("Col2Im", "x i b", "y")], {"x": uniform(1, 4, 15)}, weights=weights)
    refused(built, "does not hold (4, 4) blocks of (2, 2) elements")


@pytest.mark.long
@pytest.mark.parametrize(
    "attributes",
    [
        {}, {"pads": [1, 0, 1, 2]}, {"strides": [2, 1]}, {"dilations": [1, 2]}, {"group": 2},
        {"offset_group": 2}, {"group": 2, "offset_group": 4, "pads": [1, 1, 1, 1]},
    ],
    ids=str,
)  # fmt: skip
def test_deform_conv_moves_its_taps(attributes: dict[str, Any]) -> None:
    x, w = uniform(2, 4, 5, 6), uniform(4, 4 // attributes.get("group", 1), 2, 3)
    plain = {k: v for k, v in attributes.items() if k != "offset_group"}
    conv = by_reference(node("Conv", "x w", "y", **plain), {"x": x, "w": w}, 22)
    parts, out = attributes.get("offset_group", 1), conv.shape[2:]
    still = np.zeros((2, parts * 6 * 2, *out), F)
    weights = {"w": w, "o": still}
    close(run(node("DeformConv", "x w o", "y", **attributes), {"x": x}, weights, 22), conv)
    given = {
        "x": x, "w": w, "o": uniform(*still.shape), "b": uniform(4),
        "m": uniform(2, parts * 6, *out, low=0, high=1),
    }  # fmt: skip
    built = node("DeformConv", "x w o b m", "y", **attributes)
    close(run(built, given, opset=22), by_reference(built, given, 22), 1e-4)


def test_what_deform_conv_refuses() -> None:
    x, w = uniform(1, 2, 4, 4), uniform(1, 2, 2, 2)
    for wrong, text in ((uniform(1, 8, 4, 4), "expected the shape (1, 8, 3, 3)"),):
        built = model([node("DeformConv", "x w o", "y")], {"x": x}, "y", {"w": w, "o": wrong}, 22)
        refused(built, text)
    built = node("DeformConv", "x w o", "y", offset_group=3)
    refused(model([built], {"x": x}, "y", {"w": w, "o": x}, 22), "3 groups of offsets")


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_roi_align_is_the_mean_of_points(mode: str) -> None:
    rois = np.array([[0, 0, 3, 4], [-3, 1, 9, 12], [4.2, 1.1, 4.4, 1.3], [2, 5, 6, 7]], F)
    given = {"x": uniform(3, 2, 6, 7), "r": rois, "b": ints(2, 0, 1, 0)}
    built = node("RoiAlign", "x r b", "y", output_height=3, output_width=2, sampling_ratio=2,
                 spatial_scale=0.8, coordinate_transformation_mode=mode)  # fmt: skip
    close(run(built, given, opset=16), by_reference(built, given, 16), 1e-4)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [({"mode": "max", "sampling_ratio": 2}, "mode 'max'"), ({}, "sampling_ratio 0")],
)
def test_roi_align_that_is_not_supported(attributes: dict[str, Any], text: str) -> None:
    given = {"x": uniform(1, 1, 4, 4), "r": uniform(1, 4), "b": ints(0)}
    refused(model([node("RoiAlign", "x r b", "y", **attributes)], given), text)


@pytest.mark.parametrize(
    ("x", "regions", "images"),
    [
        ((1, 4, 4), (2, 4), 2), ((1, 1, 4, 4), (2, 2, 4), 2), ((1, 1, 4, 4), (2, 5), 2),
        ((1, 1, 4, 4), (2, 4), 1),
    ],
)  # fmt: skip
def test_roi_align_of_shapes_that_do_not_fit(x: Any, regions: Any, images: int) -> None:
    given = {"x": uniform(*x), "r": uniform(*regions), "b": ints(*[0] * images)}
    with pytest.raises(CompileError, match=r"axes|regions"):
        load_onnx(model([node("RoiAlign", "x r b", "y", sampling_ratio=2)], given))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("RoiAlign", {"sampling_ratio": 1 << 40}),
        ("RoiAlign", {"sampling_ratio": 1, "output_height": 1 << 40}),
        ("RoiAlign", {"sampling_ratio": 1, "output_width": 0}),
        ("Col2Im", {"pads": [0, 1 << 40], "strides": [1 << 41]}),
    ],
)
def test_sizes_without_measure_are_refused(op: str, attributes: dict[str, Any]) -> None:
    given = {"x": uniform(1, 1, 4, 4), "r": uniform(1, 4), "b": ints(0)}
    if op == "Col2Im":
        given = {"x": uniform(1, 2, 1), "r": ints(3), "b": ints(2)}
    weights = {name: given.pop(name) for name in ("r", "b")}
    with pytest.raises(CompileError, match=r"parts of|does not hold"):
        load_onnx(model([node(op, "x r b", "y", **attributes)], given, weights=weights))


@pytest.mark.parametrize(("bands", "size"), [(1 << 40, 16), (8, 1 << 50)])
def test_mel_weights_without_measure_are_refused(bands: int, size: int) -> None:
    weights = {"n": np.int64(bands), "s": np.int64(size), "r": np.int64(16000)}
    weights |= {"l": F(0), "h": F(4000)}
    refused(model([node("MelWeightMatrix", "n s r l h", "y")], {}, weights=weights), "bands of")


def test_deform_conv_and_stft_of_shapes_that_do_not_fit() -> None:
    given = {"x": uniform(4), "w": uniform(1), "o": uniform(1, 2, 3, 3)}
    with pytest.raises(CompileError, match="input 'x' must have 4 axes"):
        load_onnx(model([node("DeformConv", "x w o", "y")], given))
    weights = {"s": np.int64(4), "n": np.int64(6), "w": uniform(1)}
    with pytest.raises(CompileError, match=r"a window f32\[1\] for frames of 6"):
        load_onnx(model([node("STFT", "x s w n", "y")], {"x": uniform(2, 20, 1)}, weights=weights))


def test_non_max_suppression_is_not_supported() -> None:
    given = {"x": uniform(1, 4, 4), "s": uniform(1, 1, 4)}
    refused(model([node("NonMaxSuppression", "x s", "y")], given), "NonMaxSuppression")
