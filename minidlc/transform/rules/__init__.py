"""Rules as data, and what applies them to a graph until none fits; the rules are in rule_sets.

Reading order: rules, rewriter, forms, canonicalize. Treated in course chapter 02_frontend_opt.
"""
