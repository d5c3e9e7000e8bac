"""The system, memory, limits and clock of a host, and what its kernel log tells of programs."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Clock, Cpu, Filesystem, Limit, Nvidia
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, GIB, HEALTHY, NOTHING_KNOWN, V100, with_filesystem
from tests.unit.doctor.host_examples import KNOWN, NATIVE, environment, event, known, memory, system

OPCODE = "traps: python3[812] trap invalid opcode ip:7f2a sp:7ffd error:0 in libtorch_cpu.so"
KILL = "Out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:91002136kB, anon-rss:61873920kB"
BLOCKED = "INFO: task nvidia-smi:2213 blocked for more than 120 seconds."
MODEL = Filesystem("model", "/srv/models", 900 * GIB, 500 * GIB, None, "nfs4")
INFINIBAND = (("NCCL_IB_HCA", "mlx5_0"),)


CASES: list[Case] = [
    case("os.architecture", "fail", "is built for x86_64, this host is aarch64", system(architecture="aarch64"), CPU),
    case("os.kernel", "pass", "Linux 5.15.0", KNOWN),
    case("os.kernel", "fail", "Linux 2.6.32-754.el6 is too old", system(kernel="2.6.32-754.el6")),
    case("os.kernel", "skip", "is not known", NOTHING_KNOWN),
    case("os.kernel", "skip", "runs natively", system(kernel="2.6.32"), CPU, NATIVE),
    case("os.release", "skip", "knows no end of life of ubuntu 22.04", KNOWN),
    case("os.release", "info", "no free updates since 2025-05", system(version_id="20.04")),
    case(
        "os.release", "pass", "until 2025-05", replace(system(version_id="20.04"), collected_at="2025-05-31T08:00:00Z")
    ),
    case(
        "os.release", "skip", "when these facts were collected", replace(system(version_id="20.04"), collected_at=None)
    ),
    case("os.release", "skip", "is not known", NOTHING_KNOWN),
    case("os.virtualization", "pass", "on the machine itself", KNOWN),
    case("os.virtualization", "info", "a virtual machine (kvm)", system(virtualization="kvm")),
    case(
        "os.virtualization",
        "info",
        "no GPU is passed through to it",
        replace(system(virtualization="vmware"), nvidia=replace(KNOWN.nvidia, gpus=(), pairs=(), pci_devices=())),  # type: ignore[type-var]
    ),
    case("os.virtualization", "info", "that a container sees", system(container=True)),
    case("os.virtualization", "skip", "is not known", HEALTHY),
    case("cpu.instruction-sets", "pass", "without avx512f", KNOWN, CPU),
    case("cpu.instruction-sets", "pass", "has avx2", known(cpu=Cpu(flags=("avx2", "avx512f"))), CPU),
    case("cpu.instruction-sets", "skip", "this host is aarch64", system(architecture="aarch64"), CPU),
    case("cpu.illegal-instructions", "pass", "no illegal instruction", KNOWN),
    case("cpu.illegal-instructions", "warn", "python3 met", event("illegal-instruction", OPCODE, process="python3")),
    case("cpu.illegal-instructions", "info", "gzip met", event("illegal-instruction", "...", process="gzip")),
    case("cpu.illegal-instructions", "skip", "--sudo", HEALTHY),
    case("memory.available", "pass", "180 GiB", KNOWN),
    case("memory.available", "warn", "Only 0.5 GiB", memory(available=GIB // 2)),
    case("memory.available", "pass", "0.5 GiB", memory(total=4 * GIB, available=GIB // 2)),
    case("memory.available", "skip", "not known", NOTHING_KNOWN),
    case("memory.swap", "pass", "Memory is not short", KNOWN),
    case("memory.swap", "pass", "no swap space", HEALTHY),
    case("memory.swap", "pass", "not short", memory(swap_free=GIB)),
    case("memory.swap", "warn", "7 GiB lie in swap", memory(swap_free=GIB, available=10 * GIB)),
    case("memory.swap", "skip", "how much swap is in use", memory(swap_free=None)),
    case("memory.kills", "pass", "no program killed", KNOWN),
    case(
        "memory.kills", "warn", "killed VLLM::EngineCor", event("out-of-memory-kill", KILL, process="VLLM::EngineCor")
    ),
    case("memory.kills", "info", "killed gcc", event("out-of-memory-kill", "...", process="gcc")),
    case("memory.kills", "skip", "kernel log", HEALTHY),
    case("disk.model", "pass", "lies on xfs", KNOWN),
    case("disk.model", "info", "lies on nfs4", known(filesystems=(MODEL,))),
    case("disk.model", "skip", "no directory of a model", HEALTHY),
    case("shm.size", "pass", "96 GiB", HEALTHY, None),
    case("shm.size", "warn", "has 64 MiB", with_filesystem("shm", total=64 << 20, available=45 << 20), None),
    case("shm.size", "warn", "has 64 MiB", with_filesystem("shm", total=64 << 20, available=45 << 20), V100),
    case("shm.size", "info", "has 64 MiB", replace(with_filesystem("shm", total=64 << 20), nvidia=Nvidia()), None),
    case("limits.open-files", "pass", "raised to 1048576", KNOWN, CPU),
    case("limits.open-files", "pass", "unlimited", known(limits=(Limit("nofile", 1024, None),)), CPU),
    case("limits.open-files", "warn", "At most 4096", known(limits=(Limit("nofile", 1024, 4096),)), CPU),
    case("limits.open-files", "skip", "not known", HEALTHY, CPU),
    case("limits.open-files", "skip", "in a container", known(limits=(Limit("nofile", 1024, 4096),)), V100),
    case("limits.locked-memory", "info", "At most 8192 KiB", known(environment=INFINIBAND), CPU),
    case(
        "limits.locked-memory",
        "pass",
        "Any amount of memory",
        known(environment=INFINIBAND, limits=(Limit("memlock", None, None),)),
        CPU,
    ),
    case("limits.locked-memory", "skip", "only where NCCL", KNOWN, CPU),
    case("limits.locked-memory", "skip", "only where NCCL", environment(NCCL_IB_DISABLE="1", NCCL_IB_HCA="mlx5"), CPU),
    case("clock.offset", "pass", "The clocks agree", KNOWN),
    case("clock.offset", "warn", "73 s behind", known(clock=Clock(offset_seconds=-73.2))),
    case("clock.offset", "skip", "not compared", HEALTHY),
    case("clock.synchronized", "pass", "is synchronized", KNOWN),
    case("clock.synchronized", "info", "No time server", known(clock=Clock(synchronized=False))),
    case("clock.synchronized", "skip", "not known", HEALTHY),
    case("os.hung-tasks", "pass", "no hanging program", KNOWN),
    case("os.hung-tasks", "warn", "nvidia-smi has hung", event("hung-task", BLOCKED, process="nvidia-smi", count=3)),
    case("os.hung-tasks", "info", "jbd2 has hung", event("hung-task", "...", process="jbd2")),
    case("os.hung-tasks", "skip", "kernel log", HEALTHY),
]
