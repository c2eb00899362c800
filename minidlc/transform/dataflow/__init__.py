"""Data-flow level: what holds of values wherever they go.

Reading order: cse, dce, fact, transfers, transfers_rows, analysis, check, reorder. Treated in
course chapter 02_frontend_opt.
"""
