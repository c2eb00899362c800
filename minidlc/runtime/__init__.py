"""What runs compiled models: memory plan, linked objects, the thread pool. Knows no IR.

Reading order: plan, module, donated, native, pool, pool_text; memory, symbols.
Treated in course chapter 05_backend_opt.
"""
