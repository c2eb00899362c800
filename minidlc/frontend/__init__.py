"""Frontends: what makes graph IR of an ONNX model (onnx/) or a Python function.

A function is traced (trace.py) or read from its source (script/); pytree.py and guards.py serve
both and `jit`.
"""
