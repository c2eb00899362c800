"""Gradients and Hessian-vector products are those of JAX, where JAX is installed (it need not be).

The differences of test_gradients.py say whether a gradient is right; this says that conventions are
what readers know from elsewhere, and that compositions are right as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import TensorType, f64
from minidlc.graph import interpret

pytestmark = pytest.mark.ch03

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
jax.config.update("jax_enable_x64", True)

TARGET = np.array([2, 0, 1, 1])


def attention(softmax: Any, q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ k.T * 0.5) @ v


def ours_norm(x: Any, scale: Any, bias: Any) -> Any:
    return mc.layer_norm(x, scale, bias, epsilon=1e-5)


def theirs_norm(x: Any, scale: Any, bias: Any) -> Any:
    distance = x - x.mean(-1, keepdims=True)
    variance = (distance * distance).mean(-1, keepdims=True)
    return distance / jnp.sqrt(variance + 1e-5) * scale + bias


def theirs_cross_entropy(x: Any) -> Any:
    return -jnp.mean(jax.nn.log_softmax(x, axis=1)[jnp.arange(4), TARGET])


def ours_conv(x: Any, w: Any) -> Any:
    return mc.conv(x, w, strides=(2, 1), pads=(1, 0, 1, 0))


def theirs_conv(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (2, 1), ((1, 1), (0, 0)))


def ours_pool(x: Any) -> Any:
    return mc.max_pool(x, kernel_shape=(2, 2), strides=(2, 2))


def theirs_pool(x: Any) -> Any:
    size = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, size, size, "VALID")


# name, a function of our values, the same in JAX, shapes of the inputs
FUNCTIONS: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    ("affine, tanh", lambda x, w, b: mc.tanh(x @ w + b), lambda x, w, b: jnp.tanh(x @ w + b),
     ((4, 3), (3, 5), (5,))),
    ("batched matmul", lambda a, b: a @ b, lambda a, b: a @ b, ((2, 1, 3, 4), (5, 4, 2))),
    ("vectors", lambda a, b: a @ b, lambda a, b: a @ b, ((4,), (3, 4, 2))),
    ("division", lambda a, b: a / (b * b + 1.0), lambda a, b: a / (b * b + 1.0), ((3, 1), (4,))),
    ("power", lambda a, b: (a * a + 1.0) ** b, lambda a, b: (a * a + 1.0) ** b, ((3, 2), (2,))),
    ("sigmoid", lambda x: mc.sigmoid(x), lambda x: jax.nn.sigmoid(x), ((3, 4),)),
    ("softplus", lambda x: mc.softplus(x), lambda x: jax.nn.softplus(x), ((3, 4),)),
    ("gelu", lambda x: mc.gelu(x), lambda x: jax.nn.gelu(x, approximate=False), ((3, 4),)),
    ("gelu, tanh", lambda x: mc.gelu(x, approximate="tanh"), lambda x: jax.nn.gelu(x), ((3, 4),)),
    ("relu", lambda x: mc.relu(x) * x, lambda x: jax.nn.relu(x) * x, ((3, 4),)),
    ("elu", lambda x: mc.elu(x), lambda x: jax.nn.elu(x), ((3, 4),)),
    ("softmax", lambda x: mc.softmax(x, axis=0), lambda x: jax.nn.softmax(x, axis=0), ((3, 4),)),
    ("log-softmax", lambda x: mc.log_softmax(x), lambda x: jax.nn.log_softmax(x), ((3, 4),)),
    ("log-sum-exp", lambda x: mc.reduce_log_sum_exp(x, axes=(1,), keepdims=False),
     lambda x: jax.scipy.special.logsumexp(x, axis=1), ((3, 4),)),
    ("layer norm", ours_norm, theirs_norm, ((3, 4), (4,), (4,))),
    ("cross-entropy", lambda x: mc.softmax_cross_entropy(x, TARGET)[0], theirs_cross_entropy,
     ((4, 3),)),
    ("attention", lambda q, k, v: attention(mc.softmax, q, k, v),
     lambda q, k, v: attention(jax.nn.softmax, q, k, v), ((3, 4), (5, 4), (5, 2))),
    ("prod", lambda x: mc.prod(x, axes=(1,), keepdims=False), lambda x: jnp.prod(x, axis=1),
     ((3, 4),)),
    ("cumsum", lambda x: mc.cumsum(x, axis=1) * x, lambda x: jnp.cumsum(x, 1) * x, ((3, 4),)),
    ("cumprod", lambda x: mc.cumprod(x, axis=0), lambda x: jnp.cumprod(x, 0), ((4, 3),)),
    ("max", lambda x: mc.max(x * x, axes=(0,), keepdims=False), lambda x: jnp.max(x * x, axis=0),
     ((4, 3),)),
    ("max of equals", lambda x: mc.max(x * 0.0 + 1.0, keepdims=False) * x.sum(),
     lambda x: jnp.max(x * 0.0 + 1.0) * x.sum(), ((3,),)),
    ("maximum of equals", lambda x: mc.maximum(x, x * 1.0), lambda x: jnp.maximum(x, x * 1.0),
     ((3,),)),
    ("norm", lambda x: mc.reduce_l2(x, axes=(1,), keepdims=False),
     lambda x: jnp.linalg.norm(x, axis=1), ((3, 4),)),
    ("det", lambda x: mc.det(x), lambda x: jnp.linalg.det(x), ((2, 3, 3),)),
    ("einsum", lambda a, b: mc.einsum(a, b, equation="bij,kj->bik"),
     lambda a, b: jnp.einsum("bij,kj->bik", a, b), ((2, 3, 4), (5, 4))),
    ("transpose, reshape", lambda x: mc.transpose(x, perm=(1, 0)).reshape(2, 6) ** 2.0,
     lambda x: x.T.reshape(2, 6) ** 2.0, ((4, 3),)),
    ("gather", lambda x: mc.gather(x, TARGET, axis=0) ** 2.0, lambda x: x[TARGET] ** 2.0,
     ((3, 2),)),
    ("conv", ours_conv, theirs_conv, ((2, 3, 5, 6), (4, 3, 3, 2))),
    ("max pool", ours_pool, theirs_pool, ((1, 2, 4, 6),)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "shapes"), [row[1:] for row in FUNCTIONS], ids=[row[0] for row in FUNCTIONS]
)
def test_gradients_are_those_of_jax(
    ours: Callable[..., Any], theirs: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]
) -> None:
    rng = np.random.default_rng(1)
    xs = [rng.uniform(-1, 1, shape) for shape in shapes]
    vs = [rng.uniform(-1, 1, shape) for shape in shapes]
    places = tuple(range(len(xs)))

    def loss(*values: Any) -> Any:
        return (ours(*values) ** 2.0).sum()

    def their_loss(*values: Any) -> Any:
        return (theirs(*values) ** 2.0).sum()

    graph = mc.trace(loss, *(TensorType(f64, shape) for shape in shapes))
    names = [i.name for i in graph.inputs]
    gradient = jax.grad(their_loss, places)
    for got, wanted in zip(interpret(mc.grad(graph, names), xs), gradient(*xs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
    products = interpret(mc.hvp(graph, names), [*xs, *vs])
    _, their_products = jax.jvp(gradient, tuple(xs), tuple(vs))
    for got, wanted in zip(products, their_products, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-9)
