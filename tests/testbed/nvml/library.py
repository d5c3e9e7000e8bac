"""Builds the NVIDIA driver's libraries without a GPU, and the host descriptions they answer from."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIBRARIES = {"fake_nvml": "libnvidia-ml.so", "fake_cuda": "libcuda.so"}
GPU_IS_LOST = 15
Host = dict[str, Any]


def load_host(name: str) -> Host:
    """A healthy host from hosts/: v100x2, a100x2 (NVLink), h100x8 (NVSwitch) or h200.

    "copies_of_first" of a file are further devices that differ from the first one only by what stands there.
    """
    host: Host = json.loads((HERE / "hosts" / f"{name}.json").read_text())
    for differences in host.pop("copies_of_first", []):
        host["devices"].append(copy.deepcopy(host["devices"][0]) | differences)
    return host


def changed(name: str, *changes: Callable[[Host], Any]) -> Host:
    """A healthy host with something done to it."""
    host = load_host(name)
    for change in changes:
        change(host)
    return host


def narrow(index: int, width: int = 4) -> Callable[[Host], None]:
    """The link of a GPU has fewer lanes than card and slot."""

    def change(host: Host) -> None:
        device = host["devices"][index]
        device["pcie"]["width"] = width
        device.get("under_load", {}).get("pcie", {})["width"] = width

    return change


def lost(index: int, error: int = GPU_IS_LOST) -> Callable[[Host], None]:
    """A GPU has fallen off the bus (Xid 79): every call about it fails."""
    return lambda host: host["devices"][index].update(errors={"*": error})


def hanging(index: int, function: str) -> Callable[[Host], None]:
    """A call about a GPU never returns."""
    return lambda host: host["devices"][index].update(hang=[function])


def pages_retired(index: int, pending: bool = True) -> Callable[[Host], None]:
    """Memory pages of a GPU (Volta and before) were retired after an error that ECC could not correct."""

    def change(host: Host) -> None:
        device = host["devices"][index]
        device["retired_pages"] = {"single_bit": [4096, 8192], "double_bit": [12288], "pending": pending}
        device["ecc_errors"]["uncorrected"] = {"volatile": int(pending), "aggregate": 1}

    return change


def working(  # noqa: PLR0913 - what a GPU at work shows is as much
    index: int,
    utilization: int,
    memory: int,
    *,
    power: float = 0.5,
    sent: float = 0.0,
    received: float = 0.0,
    clock: int = 1380,
    reasons: int = 0,
    temperature: int = 60,
    used: float = 0.85,
) -> Callable[[Host], None]:
    """A GPU at work: its percentages, power as a share of the limit, GB/s over PCIe, MHz, and used share of memory."""

    def change(host: Host) -> None:
        device = host["devices"][index]
        device["utilization"] = [utilization, memory]
        device["power_usage_mw"] = int(power * device["power_limit_mw"])
        device["pcie"].update(generation=device["pcie"]["generation_max"])
        device["pcie"]["throughput_kbps"] = [int(sent * 1e6), int(received * 1e6)]
        device["clocks"].update(graphics=clock, sm=clock)
        device["event_reasons"] = reasons
        device["temperature"] = temperature
        device["memory"]["used"] = int(used * device["memory"]["total"])

    return change


def rows_remapped(index: int, pending: bool = False, failure: bool = False) -> Callable[[Host], None]:
    """Memory rows of a GPU (Ampere and later) were replaced, wait for a reset to be, or could not be."""
    rows = {"correctable": 0, "uncorrectable": 1, "pending": pending, "failure": failure}
    return lambda host: host["devices"][index].update(remapped_rows=rows)


def fabric(state: int, status: int = 0) -> Callable[[Host], None]:
    """The NVSwitch fabric of all GPUs is not started (1), in progress (2) or completed (3), with an NVML status."""

    def change(host: Host) -> None:
        for device in host["devices"]:
            device["fabric"] = {"state": state, "status": status}

    return change


def divided(index: int, instances: int) -> Callable[[Host], None]:
    """A GPU is in MIG mode and divided into instances."""

    def change(host: Host) -> None:
        host["devices"][index].update(mig_mode=[1, 1], mig_devices=[{} for _ in range(instances)])

    return change


def compile_library(directory: Path) -> Path:
    """Compile both libraries into a directory; returns it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is missing: `make test` installs it as root, or type: apt-get install gcc"
    for source, name in LIBRARIES.items():
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
        command += [f"-Wl,-soname,{name}.1", "-o", str(directory / name), str(HERE / f"{source}.c")]
        subprocess.run(command, check=True)
    return directory


@dataclass(frozen=True)
class FakeNvml:
    """Installed libraries: programs that run with `environment` find them and see the described host."""

    directory: Path
    description: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.directory), "FAKE_NVML_JSON": str(self.description)}

    def show(self, host: Host) -> None:
        """Let programs that run see this from now on; it has as many devices as before."""
        new = self.description.with_suffix(".new")
        new.write_text(json.dumps(host))
        new.replace(self.description)


def install(library: Path, directory: Path, host: Host) -> FakeNvml:
    """Lay the libraries out as a driver package does, named after the driver version, and write the description.

    library: the directory that compile_library returned.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES.values():
        versioned = directory / f"{name}.{host['driver_version']}"
        shutil.copy(library / name, versioned)
        (directory / f"{name}.1").symlink_to(versioned.name)
    description = directory / "host.json"
    description.write_text(json.dumps(host))
    return FakeNvml(directory, description)
