"""Loop IR: what kernels look like between a schedule and machine code.

Read in this order: nodes.py, text.py, interpret.py, verify.py (what loops are), regions.py,
dependence.py (what they touch), simplify.py, partition.py (making them better).
Treated in course chapter 04_lowering.
"""
