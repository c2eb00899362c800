"""Questions to a compiler that answers wrongly: which pass, which rewrite, which kernel, how small.

    print(mc.debug.bisect("model.onnx", {"x": x}))  # the pass, its n-th rewrite, a small graph
    print(mc.debug.reduce(g, is_bad))               # the smallest graph that is still bad
    print(mc.debug.explain(exe, "Conv_3"))          # everything that happened to one op

Reading order: answers, trial, smaller, reduction, bisection, kernels, explanation. Treated in
course chapter 02_frontend_opt.
"""

from minidlc.debug.bisection import Bisection, bisect
from minidlc.debug.explanation import Explanation, explain
from minidlc.debug.reduction import Reduced, reduce

__all__ = ["Bisection", "Explanation", "Reduced", "bisect", "explain", "reduce"]
