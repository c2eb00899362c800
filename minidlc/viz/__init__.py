"""Pictures of every IR: graphs, passes, loop nests, memory (course chapter 01_graph_ir onwards).

    mc.viz.graph(g)                                 # Picture: shows itself in Jupyter, has .save()
    mc.viz.passes(exe.passes)                       # Page: before and after each pass
    mc.viz.changes(before, after)                   # two graphs, all that changed marked
    mc.viz.loops(sch)                               # a Schedule or a LoopFunction
    mc.viz.memory(exe.memory_plan)
    mc.viz.where(exe, "Conv_3")                     # one node of the model at every level
    mc.viz.difference(expected, yours)              # two graphs, the first difference marked
    mc.viz.roofline(exe.profile(x))                 # kernels under this machine's roofs
    mc.viz.tuning(results)                          # trials, fates, the model; the space
    mc.viz.write_report(results, "report.html")     # all of it as one page

Importing this package also makes a notebook show a Graph or a Schedule as its picture.
Reading order: drawing, theme, svg, raster, picture; opening, boxes, dot, clear, rows, paint,
collapse, blocks, graph, difference; recognise, compare, union, changes; reasons, page, passes;
nest, loops; memory; roofline; levels, where; plot, tuning_progress, tuning_space, tuning_nests,
tuning_pareto, tuning_tasks, tuning, tuning_report.
"""

from minidlc.viz.changes import changes
from minidlc.viz.difference import difference
from minidlc.viz.graph import graph
from minidlc.viz.loops import loops
from minidlc.viz.memory import memory
from minidlc.viz.notebook import register
from minidlc.viz.page import Page
from minidlc.viz.passes import passes
from minidlc.viz.picture import Picture
from minidlc.viz.roofline import roofline
from minidlc.viz.tuning import tuning
from minidlc.viz.tuning_report import write_report
from minidlc.viz.where import where

__all__ = [
    "Page",
    "Picture",
    "changes",
    "difference",
    "graph",
    "loops",
    "memory",
    "passes",
    "register",
    "roofline",
    "tuning",
    "where",
    "write_report",
]

register()
