"""Frontends: what makes graph IR of an ONNX model (onnx/) or a Python function (trace.py)."""
