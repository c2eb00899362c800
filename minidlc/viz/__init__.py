"""Pictures of every IR: graphs, passes, loop nests, memory (course chapter 01_graph_ir onwards).

    mc.viz.graph(g)                                 # Picture: shows itself in Jupyter, has .save()
    mc.viz.passes(exe.passes)                       # Page: before and after each pass
    mc.viz.loops(sch)                               # a Schedule or a LoopFunction
    mc.viz.memory(exe.memory_plan)
    mc.viz.difference(expected, yours)              # two graphs, the first difference marked
    mc.viz.roofline(exe.profile(x))                 # kernels under this machine's roofs

Importing this package also makes a notebook show a Graph or a Schedule as its picture.
Reading order: drawing, theme, svg, raster, picture; boxes, rows, paint, dot, collapse, graph,
difference; nest, loops; memory; roofline; passes, page.
"""

from minidlc.viz.difference import difference
from minidlc.viz.graph import graph
from minidlc.viz.loops import loops
from minidlc.viz.memory import memory
from minidlc.viz.notebook import register
from minidlc.viz.passes import Page, passes
from minidlc.viz.picture import Picture
from minidlc.viz.roofline import roofline

__all__ = [
    "Page",
    "Picture",
    "difference",
    "graph",
    "loops",
    "memory",
    "passes",
    "register",
    "roofline",
]

register()
