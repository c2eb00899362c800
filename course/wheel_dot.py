"""The same pictures on every machine: `dot` becomes the wheel graphviz-pure.

    use_wheel_dot(folder)                           # an empty folder of one's own

A Graphviz of the system places boxes a few points elsewhere, and a notebook would differ from the
stored one. Writes a link into the folder and puts the folder in front of the PATH, which the
kernels of notebooks inherit.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


def use_wheel_dot(folder: Path) -> None:
    """Let the name `dot` mean graphviz-pure; nothing happens where links are not allowed."""
    wheel = shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))
    if wheel is None:
        return
    try:
        (folder / f"dot{Path(wheel).suffix}").symlink_to(wheel)
    except OSError:
        return  # Windows, without the right to make links
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
