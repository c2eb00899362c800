"""Block level: a few ops that belong together are folded, or moved past one another.

Reading order: fold_constants, fold_conv_bn, weigh, sink, sink_kinds, hoist, hoist_branches,
hoist_invariants. Treated in course chapter 02_frontend_opt.
"""
