"""Kernels of blocked images for tests: built from ops, run here or read as assembly."""

from __future__ import annotations

import numpy as np

import minidlc as mc
from minidlc.codegen.asm import Counts, count, inner_loops, instructions
from minidlc.codegen.compile import compile_kernel
from minidlc.graph import apply
from minidlc.lower.kernels import LoweredKernel, lower_node
from minidlc.target import Target

AVX2 = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c", 256, 16)
AVX512 = Target(
    "x86_64-unknown-linux-gnu", "sapphirerapids", "+avx512f,+avx512vl,+avx512bw,+fma", 512, 32
)
ARM = Target("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fullfp16", 128, 32)
MACHINES = {"avx2": AVX2, "avx512": AVX512, "arm": ARM}


def image(channels, height, width, block, batch=1, name="x"):
    """An input of `channels` in blocks."""
    return mc.Input(name, mc.f32[batch, channels // block, height, width, block])


def conv(x, outputs, kernel, stride=1, pad=None, bias=True):
    """A convolution of an image in blocks, or of a plain one; its inputs and its result."""
    block = 8 if len(x.type.shape) == 4 else x.type.shape[-1]
    pad = kernel // 2 if pad is None else pad
    inner = x.type.shape[4:]
    w = mc.Input("w", mc.f32[(outputs // block, x.type.shape[1], kernel, kernel, *inner, block)])
    b = mc.Input("b", mc.f32[outputs // block, block]) if bias else None
    attributes = {"strides": (stride, stride), "pads": (pad,) * 4}
    y = apply("conv2d_nchwc", x, w, b, **attributes)
    return [v for v in (x, w, b) if v is not None], y


def depthwise(x, kernel, stride=1, pad=None):
    """A depthwise convolution of an image in blocks."""
    pad = kernel // 2 if pad is None else pad
    blocks, block = x.type.shape[1], x.type.shape[-1]
    w = mc.Input("w", mc.f32[blocks, kernel, kernel, block])
    b = mc.Input("b", mc.f32[blocks, block])
    y = apply("depthwise_nchwc", x, w, b, strides=(stride, stride), pads=(pad,) * 4)
    return [x, w, b], y


def agrees(inputs, y, target=None, threads=1, kernels=1):
    """Check the compiled graph against the interpreter; returns the executable."""
    graph = mc.Graph.of("g", inputs, [y])
    exe = mc.compile(graph, threads=threads, target=target)
    assert len(exe.kernels) == kernels
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.dims).astype(np.float32) for v in inputs]
    want = mc.interpret(graph, arrays)[0]
    np.testing.assert_allclose(exe(*arrays)[0], want, rtol=1e-4, atol=1e-4)
    return exe


def adds_up_in_order(inputs, y):
    """Check that strict code gives the bits of the plain loops; returns the executable."""
    graph = mc.Graph.of("g", inputs, [y])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.dims).astype(np.float32) for v in inputs]
    exe = mc.compile(graph, precision="strict", threads=2)
    (plain,) = mc.compile(graph, precision="strict", opt_level=0, threads=1)(*arrays)
    np.testing.assert_array_equal(exe(*arrays)[0], plain)
    return exe


def lowered(y, target) -> LoweredKernel:
    """The node of `y` alone, scheduled for a machine that need not be this one."""
    return lower_node(y, "kernel", target, fast=True)


def busiest(kernel: LoweredKernel, target: Target) -> tuple[Counts, list[str]]:
    """The inner loop with the most multiply-adds, counted, and its instructions."""
    loops = inner_loops(compile_kernel(kernel.loops, target, cache=False).asm)
    loop = max(loops, key=lambda text: count(text).fma)
    return count(loop), instructions(loop)
