"""Makes the parts of /proc, /sys and /etc that the probe reads, for a host that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
XEON_FLAGS = "fpu sse sse2 ssse3 sse4_1 sse4_2 avx f16c fma bmi1 bmi2 avx2 avx512f avx512dq avx512bw avx512vl"
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'


@dataclass(frozen=True)
class PciGpu:
    """An NVIDIA device behind a port of its own."""

    address: str
    device_id: str = "1db6"
    width: int = 16
    width_max: int = 16
    slot_width_max: int | None = 16
    speed: str = "2.5 GT/s PCIe"
    speed_max: str = "8.0 GT/s PCIe"
    driver: str | None = "nvidia"


@dataclass(frozen=True)
class HostTree:
    """What the host is like; the defaults are a healthy two-socket server with two V100.

    driver: version of the loaded kernel module, None for none. listening: TCP ports of 127.0.0.1 that are in use.
    """

    gpus: tuple[PciGpu, ...] = (PciGpu("0000:3b:00.0"), PciGpu("0000:af:00.0"))
    driver: str | None = "580.95.05"
    driver_is_open: bool = False
    nouveau: bool = False
    memory: int = 192 * GIB
    cpu_flags: str = XEON_FLAGS
    cores: int = 4
    selinux: str | None = None
    listening: tuple[int, ...] = (22,)
    container: bool = False

    def write(self, root: Path) -> Path:
        """Write the tree below a directory; returns it."""
        files = {
            "etc/os-release": UBUNTU,
            "proc/sys/kernel/osrelease": "5.15.0-122-generic\n",
            "proc/1/comm": "systemd\n",
            "proc/1/cgroup": "0::/init.scope\n",
            "proc/cpuinfo": "".join(
                f"processor\t: {core}\nmodel name\t: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz\n"
                f"flags\t\t: {self.cpu_flags}\n\n"
                for core in range(self.cores)
            ),
            "proc/meminfo": f"MemTotal:       {self.memory // 1024} kB\n"
            f"MemAvailable:   {self.memory * 9 // 10 // 1024} kB\nSwapTotal:             0 kB\n",
            "proc/self/cgroup": "0::/user.slice\n",
            "proc/self/mountinfo": "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
            "proc/filesystems": "nodev\tproc\n\text4\n" + ("nodev\tselinuxfs\n" if self.selinux else ""),
            "proc/modules": "nouveau 2000000 0 - Live 0x0\n" if self.nouveau else "ext4 900000 1 - Live 0x0\n",
            "proc/net/tcp": self._listeners(),
            "dev/shm/.keep": "",
            "usr/sbin/nginx": "",
        }
        if self.driver:
            flavour = "Open Kernel Module for x86_64" if self.driver_is_open else "x86_64 Kernel Module"
            files["proc/driver/nvidia/version"] = (
                f"NVRM version: NVIDIA UNIX {flavour}  {self.driver}  Tue Sep 23 10:11:41 UTC 2025\n"
                "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)\n"
            )
            files["sys/module/nvidia/version"] = f"{self.driver}\n"
        if self.selinux:
            files["sys/fs/selinux/enforce"] = "1" if self.selinux == "enforcing" else "0"
        if self.container:
            files[".dockerenv"] = ""
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "usr/sbin/nginx").chmod(0o755)
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        for number, gpu in enumerate(self.gpus):
            self._write_gpu(root, number, gpu)
        return root

    def _listeners(self) -> str:
        rows = [
            f"   {row}: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n"
            for row, port in enumerate(self.listening)
        ]
        return "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n" + "".join(
            rows
        )

    def _write_gpu(self, root: Path, number: int, gpu: PciGpu) -> None:
        port = root / f"sys/devices/pci0000:{number:02x}/0000:{number:02x}:00.0"
        device = port / gpu.address
        device.mkdir(parents=True)
        if gpu.slot_width_max is not None:
            (port / "max_link_width").write_text(f"{gpu.slot_width_max}\n")
        for name, text in {
            "vendor": "0x10de",
            "device": f"0x{gpu.device_id}",
            "class": "0x030200",
            "current_link_width": str(gpu.width),
            "max_link_width": str(gpu.width_max),
            "current_link_speed": gpu.speed,
            "max_link_speed": gpu.speed_max,
            "numa_node": str(number),
        }.items():
            (device / name).write_text(text + "\n")
        if gpu.driver:
            driver = root / f"sys/bus/pci/drivers/{gpu.driver}"
            driver.mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(driver)
        (root / "sys/bus/pci/devices" / gpu.address).symlink_to(device)
