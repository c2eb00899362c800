"""Graph passes: pure functions from graph to graph (course chapter 02_frontend_opt).

Reading order: pass_, log, pipeline, dump, failure, dce, cse, fold_constants, rules, rewriter,
forms, canonicalize (rule_sets),
fact, transfers, analysis,
decompose, fold_conv_bn, layout, layout_ops, layout_forms, merge_products,
eliminate_noops, eliminate_zero_size, weigh, sink, sink_kinds, hoist, hoist_branches,
hoist_invariants, egraph,
fusion_costs, fusion_plan, fusion_groups, fuse_xla, fuse_stitch, fuse, graph_kernel, reorder,
backend, legalise, partition.
"""

from minidlc.transform.analysis import analyse, fact_of
from minidlc.transform.backend import BackEnd, Chain, Form, Takes, register_backend
from minidlc.transform.canonicalize import Canonicalize, Recognise, canonical_rules
from minidlc.transform.cse import Cse
from minidlc.transform.dce import Dce
from minidlc.transform.decompose import Decompose
from minidlc.transform.draw_key import with_key
from minidlc.transform.egraph.saturate import Saturate
from minidlc.transform.eliminate_noops import EliminateNoops
from minidlc.transform.eliminate_zero_size import EliminateZeroSize
from minidlc.transform.fact import Fact
from minidlc.transform.fold_constants import FoldConstants
from minidlc.transform.fold_conv_bn import FoldConvBn
from minidlc.transform.fuse import Fuse
from minidlc.transform.fusion_groups import Groups, find_groups
from minidlc.transform.graph_kernel import GraphKernel
from minidlc.transform.hoist import Hoist
from minidlc.transform.hoist_invariants import HoistInvariants
from minidlc.transform.layout import Layout
from minidlc.transform.legalise import Legalise
from minidlc.transform.log import Pair, Refusal, Rewrite, collecting, limited, permitted
from minidlc.transform.merge_products import MergeProducts
from minidlc.transform.partition import Partition
from minidlc.transform.pass_ import (
    Pass,
    graph_pass,
    pass_class,
    register_pass,
    registered_passes,
    unregister_pass,
)
from minidlc.transform.pipeline import Pipeline, Record, parse_pipeline
from minidlc.transform.reorder import Reorder
from minidlc.transform.rewriter import rewrite
from minidlc.transform.rules import Rule, rule_set, rules_of
from minidlc.transform.sink import Sink

__all__ = [
    "BackEnd",
    "Canonicalize",
    "Chain",
    "Cse",
    "Dce",
    "Decompose",
    "EliminateNoops",
    "EliminateZeroSize",
    "Fact",
    "FoldConstants",
    "FoldConvBn",
    "Form",
    "Fuse",
    "GraphKernel",
    "Groups",
    "Hoist",
    "HoistInvariants",
    "Layout",
    "Legalise",
    "MergeProducts",
    "Pair",
    "Partition",
    "Pass",
    "Pipeline",
    "Recognise",
    "Record",
    "Refusal",
    "Reorder",
    "Rewrite",
    "Rule",
    "Saturate",
    "Sink",
    "Takes",
    "analyse",
    "canonical_rules",
    "collecting",
    "fact_of",
    "find_groups",
    "graph_pass",
    "limited",
    "parse_pipeline",
    "pass_class",
    "permitted",
    "register_backend",
    "register_pass",
    "registered_passes",
    "rewrite",
    "rule_set",
    "rules_of",
    "unregister_pass",
    "with_key",
]
