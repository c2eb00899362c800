"""Autodiff as a graph transformation: gradients are just more graph.

    g = value_and_grad(mc.parse(text), ["w"])       # loss, dw
    mc.compile(g)(x, w)                             # every pass and schedule works on it

`chain` is the chain rule over nodes, `control_flow` that of branches and loops, `reverse` has grad
and value_and_grad, `forward` jvp and hvp (`dependence` tells it what is linear), `custom`
custom_gradient. `numeric`, `formula` and `tape` are the other ways to a derivative, to
compare with. Treated in course chapter 03_autodiff.
"""

from minidlc.autodiff.chain import backward, local_gradient
from minidlc.autodiff.control_flow import if_gradient, loop_gradient
from minidlc.autodiff.custom import custom_gradient
from minidlc.autodiff.forward import hvp, jvp, local_tangent
from minidlc.autodiff.reverse import grad, value_and_grad

__all__ = [
    "backward",
    "custom_gradient",
    "grad",
    "hvp",
    "if_gradient",
    "jvp",
    "local_gradient",
    "local_tangent",
    "loop_gradient",
    "value_and_grad",
]
