"""Scalar and index expressions, element types, and the table of scalar functions.

Reading order: affine (positions), evaluate, index (what ranges prove), types, functions, nodes,
text.
Treated in course chapter 04_lowering.
"""
