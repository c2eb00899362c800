"""What runs compiled models: memory plan, loaded objects, the thread pool. Knows no IR.

Treated in course chapter 05_codegen.
"""
