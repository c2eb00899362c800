"""What the compiler knows about a machine: vectors, registers, caches.

Reads nothing; schedules choose tiles by it, code generation chooses instructions by it.

    t = Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,+fma", vector_bits=256, registers=16)
    t.lanes(32)                                     # 8 floats in a vector
    t.has("fma")                                    # True

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

PRECISIONS = {
    "strict": "every operation is rounded, sums are added up in the order of the plain loops",
    "default": "a product and a sum may be one rounding; sums may run in another order, "
    "constant factors may go into weights",
    "fast": "as default; and rules that hold for finite numbers only, such as x * 0 = 0",
}


@dataclass(frozen=True)
class Target:
    """A machine: `cpu` and `features` as LLVM names them, sizes in bytes.

    `vector_bits` may be less than the machine's widest vector; `registers` counts vector registers.
    `precision` says what its code may do to sums and products of floats (see `PRECISIONS`).
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int = 128
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 512 << 10
    precision: str = "default"

    def lanes(self, dtype_bits: int) -> int:
        """Number of elements of `dtype_bits` bits in one vector, at least 1."""
        return max(1, self.vector_bits // dtype_bits)

    @cached_property
    def _features(self) -> frozenset[str]:
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    def has(self, feature: str) -> bool:
        """True if LLVM's feature of that name is on: `has("avx512f")`."""
        return feature in self._features

    @property
    def is_x86(self) -> bool:
        """True for x86-64."""
        return self.triple.startswith(("x86_64", "amd64"))

    @property
    def is_arm(self) -> bool:
        """True for 64-bit ARM."""
        return self.triple.startswith(("aarch64", "arm64"))

    def __str__(self) -> str:
        return f"{self.cpu}, {self.lanes(32)} f32 lanes, {self.registers} vector registers"
