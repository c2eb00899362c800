"""Equality saturation: all forms of a graph that rules can reach, at once, and then the cheapest.

Reading order: graph, search, extraction, algebra, saturate. Treated in course chapter
02_frontend_opt.
"""

from minidlc.transform.egraph.algebra import algebra_rules
from minidlc.transform.egraph.extraction import COSTS, Choice, choose, extract, graph_cost
from minidlc.transform.egraph.graph import EClass, EGraph, ENode
from minidlc.transform.egraph.saturate import Saturate, grow
from minidlc.transform.egraph.search import matches, reverse

__all__ = [
    "COSTS",
    "Choice",
    "EClass",
    "EGraph",
    "ENode",
    "Saturate",
    "algebra_rules",
    "choose",
    "extract",
    "graph_cost",
    "grow",
    "matches",
    "reverse",
]
