"""course/build.py as a module: the course is no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import minidlc

COURSE = Path(minidlc.__file__).parents[1] / "course"


def load() -> ModuleType:
    sys.path.insert(0, str(COURSE))  # as when it runs as a script
    try:
        spec = importlib.util.spec_from_file_location("course_build", COURSE / "build.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(COURSE))
    return module


build = load()
