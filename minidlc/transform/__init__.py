"""Graph passes: pure functions from graph to graph (course chapter 02_frontend_opt).

Reading order: pass_, pipeline, dce, cse, fold_constants, rules, rewriter, canonicalize,
decompose, fold_conv_bn, layout, layout_ops, layout_forms, fusion_groups, fuse.
"""

from minidlc.transform.canonicalize import Canonicalize, canonical_rules
from minidlc.transform.cse import Cse
from minidlc.transform.dce import Dce
from minidlc.transform.decompose import Decompose
from minidlc.transform.fold_constants import FoldConstants
from minidlc.transform.fold_conv_bn import FoldConvBn
from minidlc.transform.fuse import Fuse
from minidlc.transform.fusion_groups import Groups, find_groups
from minidlc.transform.layout import Layout
from minidlc.transform.log import Pair, Refusal, Rewrite, collecting, limited, permitted
from minidlc.transform.pass_ import (
    Pass,
    graph_pass,
    pass_class,
    register_pass,
    registered_passes,
    unregister_pass,
)
from minidlc.transform.pipeline import Pipeline, Record, parse_pipeline
from minidlc.transform.rewriter import rewrite
from minidlc.transform.rules import Rule, rule_set, rules_of

__all__ = [
    "Canonicalize",
    "Cse",
    "Dce",
    "Decompose",
    "FoldConstants",
    "FoldConvBn",
    "Fuse",
    "Groups",
    "Layout",
    "Pair",
    "Pass",
    "Pipeline",
    "Record",
    "Refusal",
    "Rewrite",
    "Rule",
    "canonical_rules",
    "collecting",
    "find_groups",
    "graph_pass",
    "limited",
    "parse_pipeline",
    "pass_class",
    "permitted",
    "register_pass",
    "registered_passes",
    "rewrite",
    "rule_set",
    "rules_of",
    "unregister_pass",
]
