"""Frontends: what turns a model of another system into graph IR (onnx/)."""
