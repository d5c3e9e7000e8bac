"""Makes the parts of /proc, /sys and /etc that the probe reads, for a host that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
XEON_FLAGS = "fpu sse sse2 ssse3 sse4_1 sse4_2 avx f16c fma bmi1 bmi2 avx2 avx512f avx512dq avx512bw avx512vl"
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'


KERNEL_LOG = """\
[    0.000000] Linux version 5.15.0-122-generic (buildd@host) (gcc 11.4.0) #132-Ubuntu SMP
[    9.182312] nvidia: loading out-of-tree module taints kernel.
[    9.412004] nvidia 0000:3b:00.0: enabling device (0140 -> 0142)
"""
ASPM = ("disabled", "L0s", "L1", "L0s L1")
ACS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def config_space(aspm: str = "disabled", acs: tuple[str, ...] | None = None, size: int = 4096) -> bytes:
    """The configuration space of a PCI Express function: header, the express capability, access control services.

    acs: those that are on, None for a function without that capability. size: 64 is what others than root see.
    """
    data = bytearray(4096)
    data[0:4] = b"\xde\x10\xb6\x1d"
    data[0x34] = 0x60
    data[0x60:0x62] = b"\x01\x78"
    data[0x78:0x7A] = b"\x10\x00"
    data[0x78 + 0x10] = ASPM.index(aspm)
    # Advanced Error Reporting comes first, as on most ports.
    data[0x100:0x104] = (0x0001 | 2 << 16 | 0x148 << 20).to_bytes(4, "little")
    if acs is not None:
        data[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        data[0x14E:0x150] = sum(1 << ACS.index(name) for name in acs).to_bytes(2, "little")
    return bytes(data[:size])


@dataclass(frozen=True)
class PciPort:
    """A bridge above a device. width_max: None where sysfs says nothing of its link. acs: as config_space."""

    address: str
    width_max: int | None = 16
    width: int | None = None
    speed: str | None = None
    speed_max: str | None = None
    acs: tuple[str, ...] | None = ()
    aspm: str = "disabled"


@dataclass(frozen=True)
class PciGpu:
    """An NVIDIA device. path: the ports above it, the root port first; else it has a port of its own.

    errors: totals of correctable, nonfatal and fatal ones. config: size of the configuration space that may be read,
    0 for none. responds: whether anything answers there.
    """

    address: str
    device_id: str = "1db6"
    width: int = 16
    width_max: int = 16
    slot_width_max: int | None = 16
    speed: str = "2.5 GT/s PCIe"
    speed_max: str = "8.0 GT/s PCIe"
    driver: str | None = "nvidia"
    path: tuple[PciPort, ...] | None = None
    pci_class: str = "0x030200"
    numa_node: int | None = None
    iommu_group: int | None = None
    aspm: str = "disabled"
    errors: tuple[int, int, int] = (0, 0, 0)
    config: int = 4096
    responds: bool = True


@dataclass(frozen=True)
class HostTree:
    """What the host is like; the defaults are a healthy two-socket server with two V100.

    driver: version of the loaded kernel module, None for none. listening: TCP ports of 127.0.0.1 that are in use.
    device_files: of a host with a driver, below /dev. processes: numbers and names. other_files: paths and texts.
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
    device_files: tuple[str, ...] = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    dev_char_links: bool = True
    aspm_policy: str = "default"
    iommu_groups: int = 0
    processes: tuple[tuple[int, str], ...] = ()
    kernel_log: str | None = KERNEL_LOG
    other_files: tuple[tuple[str, str], ...] = ()

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
        policies = ("default", "performance", "powersave", "powersupersave")
        files["sys/module/pcie_aspm/parameters/policy"] = " ".join(
            f"[{each}]" if each == self.aspm_policy else each for each in policies
        )
        files |= {f"sys/kernel/iommu_groups/{group}/type": "DMA\n" for group in range(self.iommu_groups)}
        files |= {f"proc/{number}/comm": f"{name}\n" for number, name in self.processes}
        files |= {f"dev/{name}": "" for name in self.device_files if self.driver}
        if self.kernel_log is not None:
            files["var/log/dmesg"] = self.kernel_log
        files |= dict(self.other_files)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "usr/sbin/nginx").chmod(0o755)
        (root / "sys/kernel/iommu_groups").mkdir(parents=True, exist_ok=True)
        (root / "dev/char").mkdir()
        for name in self.device_files if self.driver and self.dev_char_links else ():
            minor = "255" if name == "nvidiactl" else name.removeprefix("nvidia")
            if minor.isdigit():
                (root / "dev/char" / f"195:{minor}").symlink_to(f"../{name}")
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
        directory = root / f"sys/devices/pci0000:{number:02x}"
        for port in gpu.path or (PciPort(f"0000:{number:02x}:00.0", gpu.slot_width_max),):
            directory /= port.address
            texts = {
                "current_link_width": port.width,
                "max_link_width": port.width_max,
                "current_link_speed": port.speed,
                "max_link_speed": port.speed_max,
            }
            self._write_function(directory, texts, config_space(port.aspm, port.acs, gpu.config))
        device = directory / gpu.address
        node = number if gpu.numa_node is None else gpu.numa_node
        texts = {
            "vendor": "0x10de",
            "device": f"0x{gpu.device_id}",
            "class": gpu.pci_class,
            "current_link_width": gpu.width,
            "max_link_width": gpu.width_max,
            "current_link_speed": gpu.speed,
            "max_link_speed": gpu.speed_max,
            "numa_node": node,
            "link/l0s_aspm": int("L0s" in gpu.aspm),
            "link/l1_aspm": int("L1" in gpu.aspm),
        }
        for name, total, sort in zip(
            ("correctable", "nonfatal", "fatal"), gpu.errors, ("COR", "NONFATAL", "FATAL"), strict=True
        ):
            texts[f"aer_dev_{name}"] = f"RxErr {total}\nBadTLP 0\nTOTAL_ERR_{sort} {total}"
        config = config_space(gpu.aspm, None, gpu.config)
        self._write_function(device, texts, config if gpu.responds else b"\xff" * gpu.config)
        if gpu.driver:
            driver = root / f"sys/bus/pci/drivers/{gpu.driver}"
            driver.mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(driver)
        if gpu.iommu_group is not None:
            (device / "iommu_group").symlink_to(root / f"sys/kernel/iommu_groups/{gpu.iommu_group}")
        (root / "sys/bus/pci/devices" / gpu.address).symlink_to(device)

    @staticmethod
    def _write_function(directory: Path, texts: dict[str, object], config: bytes) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if text is not None:
                (directory / name).parent.mkdir(exist_ok=True)
                (directory / name).write_text(f"{text}\n")
        if config:
            (directory / "config").write_bytes(config)
