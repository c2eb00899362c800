"""Objects that a `with` block closes.

class Servers(Closing):
    def close(self): ...
with Servers() as servers: ...                  # closed at its end, whatever happens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Entering gives the object itself, leaving closes it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
