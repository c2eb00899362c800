"""Cost models: how fast a point will be, before it is compiled.

    loop_features(loops, target, threads)           # f64[len(FEATURES)], from the loops alone
    print(explain(loops, target))                   # where the cycles go, term by term
    explore(problem, search, model=best_model())    # boosted trees, or ridge without xgboost

A cost model is a function (known, asked) -> scores, tuning/problem.py; ours are `analytic`, `ridge`
and `boosted`. Treated in course chapter 06_autotune.
"""

from importlib.util import find_spec

from minidlc.tuning.model.features import FEATURES, MEANING, loop_features
from minidlc.tuning.model.formula import Explanation, analytic, explain
from minidlc.tuning.model.importance import feature_importance, knob_importance
from minidlc.tuning.model.linear import ridge
from minidlc.tuning.model.trees import boosted
from minidlc.tuning.problem import CostModel


def best_model() -> CostModel:
    """`boosted` where xgboost is installed, else `ridge`."""
    return ridge if find_spec("xgboost") is None else boosted


__all__ = [
    "FEATURES",
    "MEANING",
    "Explanation",
    "analytic",
    "best_model",
    "boosted",
    "explain",
    "feature_importance",
    "knob_importance",
    "loop_features",
    "ridge",
]
