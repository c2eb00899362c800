"""How the functions of a9_attacked are called: with what crosses, as it is."""

from __future__ import annotations

GLUE: dict[str, object] = {}
