"""Cost models: how fast a point will be, before it is compiled.

    from minidlc.tuning.model import FEATURES, loop_features
    loop_features(loops, target, threads)           # f64[len(FEATURES)], from the loops alone

Treated in course chapter 06_autotune.
"""

from minidlc.tuning.model.features import FEATURES, loop_features

__all__ = ["FEATURES", "loop_features"]
