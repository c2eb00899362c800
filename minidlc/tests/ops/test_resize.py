"""Resizing against other engines, for the settings in which they are oracles; its tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from minidlc.frontend.onnx import to_onnx
from minidlc.graph import Example, evaluate
from minidlc.ops.resampling import TRANSFORMATIONS, evenly, linear_table, source_positions
from minidlc.ops.resize import CROP, MODES, POLICIES, Resize
from minidlc.tests.ops import checks

F = np.float32
X = np.random.default_rng(7).uniform(-2, 2, (1, 2, 5, 7)).astype(F)
CASES = [
    Resize(scales, sizes, mode, (2, 3), how, roi=(0.2, -0.1, 0.9, 1.2) if how == CROP else ())
    for mode, how, (scales, sizes) in product(
        MODES,
        [t for t in TRANSFORMATIONS if t != "tf_half_pixel_for_nn"],
        [((2.0, 3.0), ()), ((0.6, 0.5), ()), ((1.3, 0.8), ()), ((), (5, 3)), ((), (9, 16))],
    )
]
ANTIALIASED = [
    Resize((), sizes, mode, (2, 3), "half_pixel", antialias=True, cubic_coeff_a=a)
    for mode, sizes, a in product(("linear", "cubic"), [(2, 3), (4, 12), (1, 6)], (-0.5, -0.75))
]
INSIDE = [replace(op, exclude_outside=True) for op in CASES if op.mode == "cubic" and op.roi == ()]
ASPECT = [
    Resize((), (4, 9), mode, (2, 3), keep_aspect_ratio_policy=p)
    for mode, p in product(MODES, POLICIES)
]
ALL = [*CASES, *ANTIALIASED, *INSIDE, *ASPECT]


def exported(op: Resize) -> Any:
    return to_onnx(checks.graph_of(Example(op, (X,))))


def slips(op: Resize) -> bool:
    """True where the reference takes the wrong neighbours: a position is whole but for rounding."""
    for axis, (out, scale) in op.stretched(X.shape).items():
        x = source_positions(op.coordinate_transformation_mode, X.shape[axis], int(out), scale)
        if np.any((x != np.rint(x)) & (np.abs(x - np.rint(x)) < 1e-6)):
            return True
    return False


@pytest.mark.parametrize("op", [op for op in ALL if op.roi or not slips(op)], ids=str)
def test_the_reference_of_onnx_agrees(op: Resize) -> None:
    got = ReferenceEvaluator(exported(op)).run(None, {"x0": X})[0]
    np.testing.assert_allclose(evaluate(op, [X]), got, rtol=1e-5, atol=1e-5)


def test_onnxruntime_agrees_where_it_takes_the_size_of_a_scale_as_onnx_does() -> None:
    """Not for scales that leave a fraction, for nearest positions that are ties in f32, for regions
    of an axis whose size stays."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for op in (*CASES, *ANTIALIASED, *ASPECT):
        fractions = [(n * s) % 1 for n, s in zip((5, 7), op.scales, strict=False)]
        if op.mode == "nearest" or op.roi or any(fractions):
            continue
        session = ort.InferenceSession(exported(op).SerializeToString(), options)
        got = session.run(None, {"x0": X})[0]
        np.testing.assert_allclose(evaluate(op, [X]), got, rtol=1e-4, atol=1e-4, err_msg=str(op))


def test_integers_are_rounded_and_saturated() -> None:
    x = np.array([0, 255, 0, 255], np.uint8)
    cubic = evaluate(Resize((2.0,), (), "cubic"), [x])
    wide = evaluate(Resize((2.0,), (), "cubic"), [x.astype(F)])
    np.testing.assert_array_equal(cubic, np.clip(np.rint(wide), 0, 255).astype(np.uint8))
    assert wide.min() < 0
    assert wide.max() > 255


def test_a_half_is_a_half_whatever_the_weights() -> None:
    """The exact sums of thirds and quarters, rounded to even where they end in 1 / 2."""
    x = np.random.default_rng(3).integers(0, 60000, (9, 8)).astype(np.uint16)
    got = evaluate(Resize((2.0, 3.0), (), "linear"), [x])
    halves = 0
    for (i, j), value in np.ndenumerate(got):
        exact = Fraction(0)
        places = [Fraction(2 * i + 1, 4) - Fraction(1, 2), Fraction(2 * j + 1, 6) - Fraction(1, 2)]
        for corner in np.ndindex(2, 2):
            at = [floor(p) + c for p, c in zip(places, corner, strict=True)]
            weights = [1 - abs(p - a) for p, a in zip(places, at, strict=True)]
            inside = tuple(min(max(a, 0), n - 1) for a, n in zip(at, x.shape, strict=True))
            exact += weights[0] * weights[1] * int(x[inside])
        halves += exact.denominator == 2
        assert value == round(exact)
    assert halves > 20


def test_positions_by_hand() -> None:
    def two_as_four(transformation: str) -> list[float]:
        return source_positions(transformation, 2, 4, 2.0).tolist()

    assert two_as_four("half_pixel") == [-0.25, 0.25, 0.75, 1.25]
    assert two_as_four("asymmetric") == [0, 0.5, 1, 1.5]
    assert two_as_four("tf_half_pixel_for_nn") == [0.25, 0.75, 1.25, 1.75]
    np.testing.assert_allclose(source_positions("align_corners", 3, 5, 5 / 3), [0, 0.5, 1, 1.5, 2])
    crop = source_positions("tf_crop_and_resize", 5, 3, 0.6, (0.25, 0.75))
    np.testing.assert_allclose(crop, [1, 2, 3])
    assert source_positions("pytorch_half_pixel", 9, 1, 1 / 9).tolist() == [0]


def test_a_table_of_whole_positions_has_one_tap() -> None:
    table = linear_table(np.arange(4.0), 4, 1.0, antialias=False, exclude_outside=False)
    assert table.picks()
    np.testing.assert_array_equal(table.first, np.arange(4))


@pytest.mark.parametrize(
    ("first", "slope", "found"),
    [
        ([0, 0, 1, 1, 2], 0.5, (1, 0, 2)), ([3, 2, 1], -1.0, (-1, 3, 1)),
        ([0, 1, 2, 2, 3, 4, 4], 5 / 7, (5, 4, 7)), ([], 0.0, (0, 0, 1)), ([4], 0.0, (0, 4, 1)),
        ([0, 0, 0], 0.0, (0, 0, 1)), ([0, 5, 1], 0.5, None), ([0, 1, 1, 3, 3], 0.75, None),
    ],
)  # fmt: skip
def test_evenly_spaced_positions_are_recognised(
    first: list[int], slope: float, found: tuple[int, int, int] | None
) -> None:
    got = evenly(np.array(first, np.int64), slope)
    assert got == found
    if got is not None:
        step, shift, divisor = got
        assert [(i * step + shift) // divisor for i in range(len(first))] == first


def test_the_usual_sizes_need_no_table() -> None:
    """Positions are index arithmetic: a resize of an image is no lookup."""
    for op in (
        Resize((2.0, 2.0), axes=(2, 3)), Resize((0.5, 4.0), (), "linear", (2, 3)),
        Resize((), (224, 300), "linear", (2, 3)), Resize((), (13, 17), "cubic", (2, 3)),
    ):  # fmt: skip
        for table, _ in op.tables((1, 3, 40, 60)).values():
            assert table.evenly() is not None
