"""From loops to machine code: LLVM text, objects, one native entry per model.

Reading order: values, positions, memory, expressions, math, statements, llvm, compile, entry.
Treated in course chapter 05_codegen.
"""
