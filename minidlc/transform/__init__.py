"""Graph passes: pure functions from graph to graph (course chapter 02_frontend_opt).

Reading order: pass_, log, pipeline, dump, failure, rebuild, expand, decompose; then the folders:
node, block and dataflow are the three levels of the literature (rules and rule_sets serve them),
fusion, layout and partition decide where things run, egraph asks about all rewrites at once.
"""

from minidlc.transform.block.fold_constants import FoldConstants
from minidlc.transform.block.fold_conv_bn import FoldConvBn
from minidlc.transform.block.hoist import Hoist
from minidlc.transform.block.hoist_invariants import HoistInvariants
from minidlc.transform.block.sink import Sink
from minidlc.transform.dataflow.analysis import analyse, fact_of
from minidlc.transform.dataflow.cse import Cse
from minidlc.transform.dataflow.dce import Dce
from minidlc.transform.dataflow.fact import Fact
from minidlc.transform.dataflow.rematerialise import Remat, Rematerialised, remat, rematerialise
from minidlc.transform.dataflow.reorder import Reorder
from minidlc.transform.decompose import Decompose
from minidlc.transform.draw_key import with_key
from minidlc.transform.egraph.saturate import Saturate
from minidlc.transform.fusion.fuse import Fuse
from minidlc.transform.fusion.fusion_groups import Groups, find_groups
from minidlc.transform.fusion.graph_kernel import GraphKernel
from minidlc.transform.fusion.merge_products import MergeProducts
from minidlc.transform.layout.layout import Layout
from minidlc.transform.log import Pair, Refusal, Rewrite, collecting, limited, permitted
from minidlc.transform.node.eliminate_noops import EliminateNoops
from minidlc.transform.node.eliminate_zero_size import EliminateZeroSize
from minidlc.transform.partition.backend import BackEnd, Chain, Form, Takes, register_backend
from minidlc.transform.partition.legalise import Legalise
from minidlc.transform.partition.partition import Partition
from minidlc.transform.pass_ import (
    Pass,
    graph_pass,
    pass_class,
    register_pass,
    registered_passes,
    unregister_pass,
)
from minidlc.transform.pipeline import Pipeline, Record, parse_pipeline
from minidlc.transform.rules.canonicalize import Canonicalize, Recognise, canonical_rules
from minidlc.transform.rules.rewriter import rewrite
from minidlc.transform.rules.rules import Rule, rule_set, rules_of

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
    "Remat",
    "Rematerialised",
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
    "remat",
    "rematerialise",
    "rewrite",
    "rule_set",
    "rules_of",
    "unregister_pass",
    "with_key",
]
