"""From loops to machine code: LLVM text, objects, one native entry per model.

Reading order: llvm (the whole), statements, stores, expressions, memory, lanes, positions, values;
arithmetic, math, reals, polynomials, trigonometry, halves; workspace, outline; compile, crew,
worker, cache, model_cache, entry, asm.
Treated in course chapter 05_backend_opt.
"""
