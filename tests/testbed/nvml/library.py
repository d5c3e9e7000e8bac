"""Builds the NVML library without a GPU and the host descriptions it answers from."""

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
Host = dict[str, Any]


def load_host(name: str) -> Host:
    """A healthy host from hosts/: v100x2 or h200."""
    host: Host = json.loads((HERE / "hosts" / f"{name}.json").read_text())
    return host


def changed(name: str, change: Callable[[Host], Any]) -> Host:
    """A healthy host with something done to it."""
    host = copy.deepcopy(load_host(name))
    change(host)
    return host


def compile_library(directory: Path) -> Path:
    """Compile fake_nvml.c into a directory; returns the shared object."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is missing: `make test` installs it as root, or type: apt-get install gcc"
    library = directory / "fake_nvml.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    command += ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(HERE / "fake_nvml.c")]
    subprocess.run(command, check=True)
    return library


@dataclass(frozen=True)
class FakeNvml:
    """An installed library: programs that run with `environment` find it and see the described host."""

    directory: Path
    description: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.directory), "FAKE_NVML_JSON": str(self.description)}


def install(library: Path, directory: Path, host: Host) -> FakeNvml:
    """Lay the library out as a driver package does, named after the driver version, and write the description."""
    directory.mkdir(parents=True, exist_ok=True)
    versioned = directory / f"libnvidia-ml.so.{host['driver_version']}"
    shutil.copy(library, versioned)
    (directory / "libnvidia-ml.so.1").symlink_to(versioned.name)
    description = directory / "host.json"
    description.write_text(json.dumps(host))
    return FakeNvml(directory, description)
