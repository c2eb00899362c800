"""The machine we run on, as LLVM and the operating system describe it.

Reads the CPU's name and features from LLVM and cache sizes from /sys where that exists.

    host()                                          # emeraldrapids, 16 f32 lanes, …
    host(vector_width=4)                            # its instructions, on 128-bit vectors

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from minidlc.support.errors import OptionError
from minidlc.target.target import Target

WIDTHS = (4, 8, 16)  # f32 lanes of SSE or NEON, AVX2, AVX-512
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def host(vector_width: int | None = None) -> Target:
    """Return this machine as a target, its vectors cut to `vector_width` f32 lanes (4, 8 or 16).

    Raises OptionError (MDLC1010) for a width that is none of these or wider than the machine's.
    """
    return narrow(_detect(), vector_width)


def narrow(machine: Target, vector_width: int | None) -> Target:
    """Return `machine` with vectors of `vector_width` f32 lanes; errors as for `host`."""
    if vector_width is None:
        return machine
    widest = machine.lanes(32)
    if vector_width not in WIDTHS or vector_width > widest:
        fitting = [w for w in WIDTHS if w <= widest]
        raise OptionError(
            f"vector width {vector_width} does not fit {machine.cpu}",
            notes=(f"its vectors hold {widest} f32 lanes",),
            hint=f"one of {', '.join(map(str, fitting))}",
            code="MDLC1010",
        )
    return Target(
        machine.triple,
        machine.cpu,
        machine.features,
        32 * vector_width,
        machine.registers,
        machine.l1,
        machine.l2,
    )


@cache
def _detect() -> Target:
    llvm: Any = import_module("llvmlite.binding")  # large: only who asks for the host pays for it
    triple: str = llvm.get_process_triple()
    found: dict[str, bool] = dict(llvm.get_host_cpu_features())
    features = ",".join(("+" if on else "-") + name for name, on in sorted(found.items()))
    bits, registers = vector_unit(triple, {name for name, on in found.items() if on})
    return Target(
        triple,
        str(llvm.get_host_cpu_name()),
        features,
        bits,
        registers,
        cache_size(1, 32 << 10),
        cache_size(2, 512 << 10),
    )


def vector_unit(triple: str, features: set[str]) -> tuple[int, int]:
    """Width in bits and number of vector registers of a machine with these features."""
    if triple.startswith(("aarch64", "arm64")):
        return 128, 32
    if "avx512f" in features and "avx512vl" in features:
        return 512, 32
    return (256, 16) if "avx2" in features else (128, 16)


def cache_size(level: int, default: int, root: Path = _CACHES) -> int:
    """Bytes of the data cache of a level on the first core; `default` where nobody says."""
    try:
        for entry in sorted(root.glob("index*")):
            kind = (entry / "type").read_text().strip()
            if kind != "Instruction" and int((entry / "level").read_text()) == level:
                text = (entry / "size").read_text().strip()
                units = {"K": 1 << 10, "M": 1 << 20}
                return int(text.rstrip("KM")) * units.get(text[-1], 1)
    except (OSError, ValueError):
        pass
    return default
