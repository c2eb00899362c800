"""The room of a fork server and its workers: namespaces, and a root folder that holds little.

    enter(overlay)                                  # in the fork server; returns in a child
    pid = fork_into_new_table()                     # a child that is process 1 of its own table
    furnish(limits)                                 # in it: own /proc, empty temporary folder

Root folder: Python's library, the system's shared libraries, the overlay and what it links to,
read-only; four devices. No project, no home folder, no program. Works as root, and as an ordinary
user where user namespaces are allowed. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import os
import sysconfig
from contextlib import suppress
from pathlib import Path

from grader.sandbox import kernel
from grader.sandbox.limits import Limits

INSIDE = 60600  # user id as seen in the room, where we are not root
MOUNT_POINT = "root"  # an empty folder of the overlay
SCRATCH = "scratch"  # the temporary folder, in the room
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_DEVICES = ("null", "zero", "random", "urandom")
_PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV
_QUIET = _PLAIN | kernel.MS_NOEXEC
_HIDDEN = ("site-packages", "dist-packages", "test")  # in Python's library


def enter(overlay: Path) -> bool:
    """Move into a fresh room. Raises OSError where the kernel does not allow it.

    The caller goes on in a child, process 1 of a new table; the process it was waits and ends
    with it. True if it is a user namespace as well: then there is one user id in it, without rights
    outside.
    """
    kinds = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET
    kinds |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    mapped = os.geteuid() != 0 or not _unshared(kinds)
    if mapped:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(kinds | kernel.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{INSIDE} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{INSIDE} {group} 1")
    links = _links(overlay)
    _go_on_in_child()
    _build_root(overlay, links)
    return mapped


def _unshared(kinds: int) -> bool:
    try:
        kernel.unshare(kinds)
    except PermissionError:  # root of a container that may not
        return False
    return True


def _go_on_in_child() -> None:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)


def _build_root(overlay: Path, links: list[Path]) -> None:
    new = str(overlay / MOUNT_POINT)
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", new, "tmpfs", _PLAIN, "mode=755,size=1m")
    _show(_system(), new)
    covers = _cover(new)
    _show([overlay, *links], new)
    for cover in covers:
        _seal(cover)
    _devices(new)
    for name in ("proc", "old", SCRATCH):
        os.makedirs(f"{new}/{name}", exist_ok=True)
    if not os.path.lexists(new + "/tmp"):
        os.symlink(SCRATCH, new + "/tmp")
    with suppress(OSError):  # where a container hides parts of /proc there will be none
        kernel.mount("proc", new + "/proc", "proc", _QUIET)
    kernel.pivot_root(new, new + "/old")
    os.chdir("/")
    kernel.unmount("/old")
    _seal("/")


def readable(overlay: Path) -> list[Path]:
    """What a worker reads: Python, the system's libraries, the overlay and where it links to."""
    devices = [Path("/dev", name) for name in _DEVICES]
    return [*_system(), overlay, *_links(overlay), *devices]


def _system() -> list[Path]:
    return [*map(Path, _SYSTEM), *_library()]


def _library() -> list[Path]:
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]


def _links(overlay: Path) -> list[Path]:
    """Where the links of the overlay lead: they are shown at their own place."""
    found: list[Path] = []
    for folder, folders, files in os.walk(overlay):
        entries = [Path(folder, name) for name in (*folders, *files)]
        found += [entry.resolve() for entry in entries if entry.is_symlink()]
    return sorted(found)


def _show(paths: list[Path], new: str) -> None:
    """Each path, if it exists, read-only below `new`; parents come before what is in them."""
    shown: list[Path] = []
    for path in paths:
        if not path.exists() or any(path.is_relative_to(other) for other in shown):
            continue
        target = new + str(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if path.is_symlink():  # /lib -> usr/lib
            os.symlink(os.readlink(path), target)
            continue
        if path.is_dir():
            os.makedirs(target, exist_ok=True)
        else:
            Path(target).touch()
        kernel.bind(str(path), target)
        shown.append(path)


def _cover(new: str) -> list[str]:
    """Empty folders over installed packages: the overlay says which a worker may import."""
    parents = {*_library(), *Path("/usr/lib").glob("python3*")}
    parents |= {*Path("/usr/local/lib").glob("python3*")}
    covers = [new + str(parent / name) for parent in sorted(parents) for name in _HIDDEN]
    covers = [cover for cover in covers if os.path.isdir(cover) and not os.path.islink(cover)]
    for cover in covers:
        kernel.mount("tmpfs", cover, "tmpfs", _PLAIN, "mode=755,size=1m")
    return covers


def _seal(target: str) -> None:
    """Nothing can be written there any more."""
    flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY
    kernel.mount("", target, flags=flags | _PLAIN)


def _devices(new: str) -> None:
    os.makedirs(new + "/dev", exist_ok=True)
    for name in _DEVICES:
        Path(new, "dev", name).touch()
        kernel.mount(f"/dev/{name}", f"{new}/dev/{name}", flags=kernel.MS_BIND)


def fork_into_new_table() -> int:
    """Fork; the child is process 1 of a new table, and its end ends all in it."""
    own = os.pidfd_open(os.getpid())
    try:
        kernel.unshare(kernel.CLONE_NEWPID)
        child = os.fork()
        if child:
            kernel.setns(own, kernel.CLONE_NEWPID)  # later children: in a table of their own again
        return child
    finally:
        os.close(own)


def furnish(limits: Limits) -> None:
    """In the child: own mounts, own /proc, an empty temporary folder."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    size = f"mode=1777,size={limits.temporary},nr_inodes=4096"
    kernel.mount("tmpfs", f"/{SCRATCH}", "tmpfs", _PLAIN, size)
    with suppress(OSError):
        kernel.mount("proc", "/proc", "proc", _QUIET)
