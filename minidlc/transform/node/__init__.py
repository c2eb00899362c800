"""Node level: ops that do nothing, and ops on nothing.

Reading order: eliminate_noops, eliminate_zero_size. Treated in course chapter 02_frontend_opt.
"""
