"""Calls of the Linux kernel that Python's library lacks, through ctypes.

    prctl(PR_SET_NO_NEW_PRIVS, 1)                   # OSError if refused
    unshare(CLONE_NEWNS | CLONE_NEWPID)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID, "size=64m")

Nothing here decides anything. On other systems every call raises OSError; `available()` says so
beforehand. Used by the fork server. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_GET_SECCOMP, PR_SET_SECCOMP = 21, 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2


def available() -> bool:
    """True where these calls exist."""
    return sys.platform == "linux"


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_uint32] | None) -> int:
    """A function of the C library that says -1 and errno; OSError with its name."""
    if not available():
        raise OSError(errno.ENOSYS, f"{name}: only on Linux")
    try:
        function = getattr(_library(), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"{name}: not in this C library") from None
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(function(*wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, *arguments: int) -> int:
    """prctl(2)."""
    return call("prctl", option, *arguments, *[0] * (4 - len(arguments)))


def unshare(flags: int) -> None:
    """unshare(2); os.unshare exists only from Python 3.12 on."""
    call("unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    """setns(2)."""
    call("setns", descriptor, kind)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    texts = [text.encode() or None for text in (source, target, kind)]
    call("mount", *texts, flags, data.encode() or None)


def bind(source: str, target: str) -> None:
    """Show `source` at `target`, read-only."""
    mount(source, target, flags=MS_BIND)
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)  # may not be taken away
    mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | kept)


def unmount(target: str) -> None:
    """umount2(2), also of what is in use."""
    call("umount2", target.encode(), MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2)."""
    call("pivot_root", new.encode(), old.encode())


def drop_bounding_set() -> None:
    """No program that is started from here on can get a capability."""
    with suppress(OSError):  # until the last that this kernel knows
        for capability in range(64):
            prctl(PR_CAPBSET_DROP, capability)


def drop_capabilities() -> None:
    """No capability from now on."""
    with suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
