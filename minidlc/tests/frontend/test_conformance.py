"""A sample of ONNX's own backend tests: right, or refused as not supported.

All of them: python -m minidlc.benchmarks.conformance
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from minidlc.benchmarks.conformance import core_cases, is_core, run
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.llvm
SHARE = 20  # one test of so many


def test_a_sample_of_the_core_list():
    words = {}
    for case in core_cases(lambda name: zlib.crc32(name.encode()) % SHARE == 0):
        verdict = run(case)
        words.setdefault(verdict.word, []).append((case.name, verdict.reason))
    assert len(words["pass"]) >= 70
    assert words.keys() <= {"pass", "unsupported"}, words


@pytest.mark.slow
def test_the_core_list():
    counts = [run(case).word for case in core_cases()]
    assert set(counts) <= {"pass", "unsupported"}
    assert counts.count("pass") >= 0.95 * len(counts)


def test_a_wrong_answer_is_called_wrong():
    case = next(core_cases(lambda name: name == "test_abs"))
    ((inputs, expected),) = case.sets
    wrong = type(case)(case.name, case.model, [(inputs, [expected[0] + 1])], 1e-3, 1e-7)
    assert run(case).word == "pass"
    assert run(wrong).word == "wrong"
    assert run(type(case)("cut", case.model[:20], case.sets, 1e-3, 1e-7)).word == "error"


def test_ops_of_other_domains_are_no_part_of_the_core_list():
    x = {"x": np.zeros((2, 3), np.float32)}
    assert is_core(model([node("Relu", "x", "y")], x))
    assert not is_core(model([node("Scaler", "x", "y", domain="ai.onnx.ml")], x))
    assert not is_core(model([node("RandomNormalLike", "x", "y")], x))
