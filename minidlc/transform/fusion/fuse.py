"""Operator fusion: ops that run as one kernel become one `fused` node.

    y = matmul(x, w); z = add(y, b); h = relu(z)
 -> h = fused(x, w, b, body=matmul_add_relu, anchor="matmul")

The styles of the field, by name: `fuse{style="tvm"}` puts a node and the one through which every
path from it leads into one group (fusion_groups.py); `fuse{style="xla"}` puts a producer into each
of its consumers where that is worth what it repeats (fuse_xla.py); `fuse{style="stitch"}` joins the
groups of `tvm` to kernels with several results and several reductions (fuse_stitch.py). Every
neighbouring pair is reported, fused or not, with the reason and its worth. Treated in course
chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minidlc.graph.graph import Graph
from minidlc.support.errors import PassError, nearest
from minidlc.transform.fusion.fuse_stitch import stitch_plan
from minidlc.transform.fusion.fuse_xla import xla_plan
from minidlc.transform.fusion.fusion_groups import find_groups
from minidlc.transform.fusion.fusion_plan import FusionPlan, with_kernels
from minidlc.transform.log import report
from minidlc.transform.pass_ import Pass, register_pass


def tvm_plan(graph: Graph, max_ops: int) -> FusionPlan:
    """Groups by post-dominance: nothing is computed twice."""
    return find_groups(graph, max_ops).plan()


STYLES: Mapping[str, Callable[[Graph, int], FusionPlan]] = {
    "tvm": tvm_plan,
    "xla": xla_plan,
    "stitch": stitch_plan,
}


@register_pass
@dataclass(frozen=True)
class Fuse(Pass):
    """Groups of at most `max_ops` ops: one anchor (conv, matmul, reduction) at most in each.

    PassError (MDLC0550) for an unknown style.
    """

    name = "fuse"
    level = 2
    requires = ("decomposed",)
    max_ops: int = 32
    style: str = "tvm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.style not in STYLES:
            notes = (f"styles: {', '.join(STYLES)}",)
            text, hint = f"fuse: no style {self.style!r}", nearest(self.style, STYLES)
            raise PassError(text, notes=notes, hint=hint, code="MDLC0550")

    def run(self, graph: Graph) -> Graph:
        """The graph with groups of two ops or more as `fused` nodes."""
        plan = STYLES[self.style](graph, self.max_ops)
        for pair in plan.pairs:
            report(lambda pair=pair: pair)
        return with_kernels(graph, plan.kernels)
