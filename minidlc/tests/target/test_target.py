from __future__ import annotations

from pathlib import Path

import pytest

from minidlc import target
from minidlc.support.errors import OptionError
from minidlc.target.host import cache_size, narrow, vector_unit


def test_lanes_follow_the_width_of_elements() -> None:
    t = target.Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,-avx512f,+fma", 256)
    assert [t.lanes(bits) for bits in (8, 32, 64, 512)] == [32, 8, 4, 1]
    assert t.has("avx2")
    assert not t.has("avx512f")
    assert t.is_x86
    assert str(t) == "skylake, 8 f32 lanes, 16 vector registers"


@pytest.mark.parametrize(
    ("triple", "features", "expected"),
    [
        ("x86_64-pc-linux-gnu", {"sse2"}, (128, 16)),
        ("x86_64-pc-linux-gnu", {"sse2", "avx2"}, (256, 16)),
        ("x86_64-pc-linux-gnu", {"avx2", "avx512f", "avx512vl"}, (512, 32)),
        ("arm64-apple-darwin", {"neon"}, (128, 32)),
    ],
)
def test_vector_unit_of_each_family(
    triple: str, features: set[str], expected: tuple[int, int]
) -> None:
    assert vector_unit(triple, features) == expected


def test_narrower_is_allowed_and_keeps_the_rest() -> None:
    machine = target.Target("x86_64-linux", "cpu", "+avx512f", 512, 32, 48 << 10, 2 << 20)
    for width in (4, 8, 16):
        got = narrow(machine, width)
        assert got.lanes(32) == width
        assert (got.cpu, got.registers, got.l1, got.l2) == ("cpu", 32, 48 << 10, 2 << 20)
    assert narrow(machine, None) is machine


@pytest.mark.parametrize("width", [16, 5, 0, 64])
def test_wider_or_odd_width_is_refused(width: int) -> None:
    machine = target.Target("x86_64-linux", "old-cpu", "+avx2", 256)
    with pytest.raises(OptionError) as error:
        narrow(machine, width)
    assert error.value.code == "MDLC1010"
    assert f"vector width {width} does not fit old-cpu" in str(error.value)
    assert "its vectors hold 8 f32 lanes" in str(error.value)
    assert "hint: one of 4, 8" in str(error.value)


def test_cache_sizes_without_sys(tmp_path: Path) -> None:
    assert cache_size(1, 1234, tmp_path / "absent") == 1234
    entry = tmp_path / "index0"
    entry.mkdir()
    (entry / "type").write_text("Data\n")
    (entry / "level").write_text("1\n")
    (entry / "size").write_text("48K\n")
    assert cache_size(1, 1, tmp_path) == 48 << 10
    assert cache_size(2, 7, tmp_path) == 7
    (entry / "size").write_text("rubbish")
    assert cache_size(1, 9, tmp_path) == 9


@pytest.mark.llvm
def test_host_is_this_machine() -> None:
    machine = target.host()
    assert machine.lanes(32) in (4, 8, 16)
    assert machine.cpu
    assert target.host(4).lanes(32) == 4
