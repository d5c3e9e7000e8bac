"""The image for Ascend: its base is looked at, and the server starts with CANN's variables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onecat.resources import resource_directory

RECIPE = resource_directory("templates") / "image" / "vllm-ascend"


def base(directory: Path, packages: dict[str, str], cann: bool = True, vllm: bool = True) -> Path:
    """A folder that stands for the root of a base image: what its packages say of themselves, CANN, the program."""
    for name, version in packages.items():
        info = directory / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (directory / "site").mkdir(parents=True, exist_ok=True)
    (directory / "bin").mkdir()
    if cann:
        (directory / "Ascend" / "ascend-toolkit").mkdir(parents=True)
        (directory / "Ascend" / "ascend-toolkit" / "set_env.sh").write_text("export CANN=toolkit\n")
    if vllm:
        (directory / "bin" / "vllm").write_text("#!/bin/sh\n")
        (directory / "bin" / "vllm").chmod(0o755)
    return directory


GOOD = {"vllm-ascend": "0.23.0", "torch-npu": "2.10.0.post4"}


@pytest.mark.parametrize(
    ("packages", "cann", "vllm", "found"),
    [
        pytest.param(GOOD, True, True, None, id="the right one"),
        pytest.param({**GOOD, "vllm-ascend": "0.23.0+g1234567"}, True, True, None, id="with a commit"),
        pytest.param({**GOOD, "vllm-ascend": "0.18.0"}, True, True, "vllm-ascend 0.18.0", id="another release"),
        pytest.param({"vllm-ascend": "0.23.0"}, True, True, "torch-npu is not installed", id="no torch-npu"),
        pytest.param(GOOD, False, True, "no CANN below", id="no CANN"),
        pytest.param(GOOD, True, False, "no program vllm in PATH", id="no vLLM"),
    ],
)
def test_the_base_image_is_looked_at_before_anything_is_made_of_it(
    tmp_path: Path, packages: dict[str, str], cann: bool, vllm: bool, found: str | None
) -> None:
    root = base(tmp_path, packages, cann, vllm)
    script = tmp_path / "check-base.py"
    script.write_text((RECIPE / "check-base.py").read_text().replace("/usr/local/Ascend", str(root / "Ascend")))
    command = [sys.executable, "-S", str(script), "vllm-ascend", "0.23.0", "2.10.0.post4"]
    environment = {"PATH": str(root / "bin"), "PYTHONPATH": str(root / "site")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if found is None else 1), done.stderr
    assert found is None or f"found: {found}" in done.stderr


def test_the_server_gets_canns_variables_the_hosts_driver_and_its_arguments(tmp_path: Path) -> None:
    root = base(tmp_path, {})
    (root / "Ascend" / "nnal" / "atb").mkdir(parents=True)
    (root / "Ascend" / "nnal" / "atb" / "set_env.sh").write_text("export ATB=$CANN-atb\n")
    server = root / "bin" / "onecat-entrypoint"
    server.write_text('#!/bin/sh\necho "$CANN $ATB $LD_LIBRARY_PATH" "$*"\n')
    server.chmod(0o755)
    script = tmp_path / "entrypoint.sh"
    text = (RECIPE / "ascend-entrypoint.sh").read_text().replace("/usr/local/Ascend", str(root / "Ascend"))
    script.write_text(text.replace("/usr/local/bin/onecat-entrypoint", str(server)))
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/opt/own"}
    done = subprocess.run(
        ["bash", str(script), "/model", "--port", "8000"], env=environment, capture_output=True, text=True, check=True
    )
    driver = root / "Ascend" / "driver" / "lib64"
    path = f"{driver}:{driver}/common:{driver}/driver:/opt/own"
    assert done.stdout == f"toolkit toolkit-atb {path} /model --port 8000\n"
