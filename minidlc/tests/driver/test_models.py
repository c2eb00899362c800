"""The four models are right: with all passes, none, each alone, at every width and thread count."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.tests.driver.conftest import NAMES, PACKAGED, case
from minidlc.transform import Pipeline

OPTIONAL = tuple(dict.fromkeys(p.name for p in Pipeline.default().passes if not p.mandatory))


@pytest.mark.parametrize("name", NAMES)
def test_interpreted(name):
    c = case(name)
    c.check(mc.interpret(mc.load_onnx(c.model), c.feeds))


@pytest.mark.llvm
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [4, 8, 16])
def test_compiled_at_every_width_and_thread_count(name, width, threads):
    c = case(name)
    target = mc.target.host()
    if width * 32 > target.vector_bits:
        pytest.skip(f"this machine's vectors hold {target.lanes(32)} floats")
    exe = mc.compile(c.model, target=mc.target.host(vector_width=width), threads=threads)
    c.check(exe(c.feeds))
    c.check(exe(c.feeds))  # the arena is dirty now


@pytest.mark.llvm
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kept", [(), *((p,) for p in OPTIONAL)], ids=lambda k: k[0] if k else "none"
)
def test_compiled_with_no_optional_pass_and_with_each_alone(name, kept):
    c = case(name)
    exe = mc.compile(c.model, pipeline=Pipeline.default().only(*kept), threads=1)
    c.check(exe(c.feeds))


@pytest.mark.llvm
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_compiled_at_lower_optimisation_levels(name, level):
    c = case(name)
    c.check(mc.compile(c.model, opt_level=level, threads=1)(c.feeds))


@pytest.mark.llvm
def test_forty_digits():
    with np.load(PACKAGED / "mnist_digits_40.npz") as digits:
        images, wanted = digits["x"], digits["y"].tolist()
    exe = mc.compile(PACKAGED / "mnist_cntk.onnx", threads=1)
    assert [int(np.argmax(exe(image)[0])) for image in images] == wanted


@pytest.mark.llvm
def test_lenet_needs_at_most_eight_kernels():
    exe = mc.compile(case("lenet").model, threads=1)
    assert len(exe.kernels) <= 8, exe.report()
    assert exe.report().host_ops == ()
