"""Disks and shared memory."""

from __future__ import annotations

from onecat.doctor import Settings
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, GIB, HEALTHY, NOTHING_KNOWN, V100, with_filesystem

NATIVE = Settings(runtime="native")

CASES: list[Case] = [
    case("disk.space", "pass", "500 GiB free", HEALTHY),
    case("disk.space", "warn", "20 GiB free", with_filesystem("docker", available=20 * GIB)),
    case("disk.space", "fail", "0.5 GiB free", with_filesystem("docker", available=GIB // 2)),
    case("disk.space", "pass", "500 GiB", with_filesystem("docker", available=0), CPU, NATIVE),
    case("disk.space", "skip", "not known", NOTHING_KNOWN),
    case("disk.inodes", "pass", "Inodes free", HEALTHY),
    case("disk.inodes", "warn", "Only 100 files", with_filesystem("docker", inodes_available=100)),
    case("disk.inodes", "skip", "not known", with_filesystem("docker", inodes_available=None)),
    case("shm.size", "pass", "96 GiB free", HEALTHY, CPU),
    case("shm.size", "fail", "/dev/shm has 64 MiB", with_filesystem("shm", total=64 << 20, available=64 << 20), CPU),
    case("shm.size", "fail", "/dev/shm has 16 MiB free", with_filesystem("shm", available=16 << 20), CPU),
    case("shm.size", "skip", "not found", NOTHING_KNOWN, CPU),
    case("shm.size", "skip", "in a container", HEALTHY, V100),
]
