"""Errors, source locations, names and extension points: what every layer may import."""
