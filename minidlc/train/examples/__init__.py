"""Whole training runs, small enough to read: `python -m minidlc.train.examples.characters`."""
