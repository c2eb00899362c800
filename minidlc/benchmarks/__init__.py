"""Benchmark models and measurements; exempt from the import layers."""
