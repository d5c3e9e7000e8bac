"""Free space below the paths that matter."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late

re = Late("re")


def filesystems(machine, emit):
    mounts = read_mounts(machine)
    temporary = os.environ.get("TMPDIR") or "/tmp"
    places = [("root", "/"), ("shm", "/dev/shm"), ("tmp", temporary if machine.is_running else "/tmp")]
    for purpose, path in places + list(machine.paths):
        emit(doing="reading the free space of " + path)
        entry = filesystem(machine, purpose, path, mounts)
        if entry is not None:
            emit(filesystems=[entry])


def read_mounts(machine):
    """Mount points and kinds of file system, longest mount point first."""
    mounts = []
    for line in (machine.read_or_none("/proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        if "-" in fields[6:]:
            point = fields[4]
            if "\\" in point:
                point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal.group(1), 8)), point)
            mounts.append((point, fields[fields.index("-", 6) + 1]))
    return sorted(mounts, key=lambda mount: -len(mount[0]))


def filesystem(machine, purpose, path, mounts):
    """Space below a path, or below its nearest existing parent; None for /dev/shm on a machine without it."""
    existing = path
    while not machine.exists(existing) and existing not in ("/", ""):
        if purpose == "shm":
            return None
        existing = os.path.dirname(existing)
    status = os.statvfs(machine.path(existing))
    real = os.path.realpath(existing) if machine.is_running else existing
    kinds = [kind for point, kind in mounts if real == point or real.startswith(point.rstrip("/") + "/")]
    return {
        "purpose": purpose,
        "path": path,
        "total": status.f_blocks * status.f_frsize,
        "available": status.f_bavail * status.f_frsize,
        "inodes_available": status.f_favail if status.f_files else None,
        "kind": kinds[0] if kinds else None,
    }


SOURCES = {"filesystems": filesystems}
