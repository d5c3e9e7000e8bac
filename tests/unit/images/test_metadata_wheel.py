"""The companion wheel: nothing but a name and a version, the same bytes each time, and pip takes it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

from onecat.images.metadata_wheel import metadata_wheel, write_metadata_wheel


def test_the_same_input_gives_the_same_bytes() -> None:
    assert metadata_wheel("vllm", "0.27.1+cpu", "x") == metadata_wheel("vllm", "0.27.1+cpu", "x")
    assert metadata_wheel("vllm", "0.27.1+cpu", "x") != metadata_wheel("vllm", "0.27.2+cpu", "x")


def test_it_holds_metadata_only(tmp_path: Path) -> None:
    path, _ = write_metadata_wheel(tmp_path, "vllm", "0.27.1+cpu", "x")
    assert path.name == "vllm-0.27.1+cpu-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition("/")[0] for name in archive.namelist()} == {"vllm-0.27.1+cpu.dist-info"}
        assert archive.testzip() is None


def test_pip_installs_it_and_python_finds_the_version(tmp_path: Path) -> None:
    path, sha256 = write_metadata_wheel(tmp_path, "vllm", "0.27.1+cpu", "x")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"vllm @ file://{path} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--target", str(tmp_path / "site"), "-r", str(requirements)], check=True)
    (found,) = importlib.metadata.distributions(path=[str(tmp_path / "site")])
    assert (found.metadata["Name"], found.version) == ("vllm", "0.27.1+cpu")
