"""Every profile's Dockerfile passes hadolint, with the configuration that `onecat build --check` uses as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onecat.config import list_profiles, load_profile
from onecat.images import BuildOptions, render_context
from onecat.resources import resource_directory

HADOLINT = Path(sys.executable).with_name("hadolint")
CONFIGURATION = resource_directory("templates") / "image" / "hadolint.yaml"


def lint(dockerfile: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [str(HADOLINT), "--no-color", "--config", str(CONFIGURATION), "-"]
    return subprocess.run(command, input=dockerfile, capture_output=True, check=False)


@pytest.mark.parametrize("given", [False, True], ids=["compiled", "with a wheel"])
def test_every_dockerfile_is_clean(given: bool, tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-0.27.1+onecat.sm70-cp38-abi3-linux_x86_64.whl"
    wheel.write_bytes(b"")
    said = {}
    for name in list_profiles():
        context = render_context(load_profile(name), options=BuildOptions(wheel=wheel if given else None))
        dockerfile = next(file.content for file in context.files if file.name == "Dockerfile")
        said[name] = lint(dockerfile).stdout.decode()
    assert said and not any(said.values()), said


def test_hadolint_is_asked_for_real() -> None:
    refused = lint(b"FROM debian\nRUN cd /tmp\n")
    assert refused.returncode == 1 and b"DL3006" in refused.stdout and b"DL3003" in refused.stdout


def test_no_dockerfile_needs_more_than_the_classic_builder() -> None:
    for path in (resource_directory("templates") / "image").rglob("*.j2"):
        text = path.read_text()
        assert "# syntax=" not in text and "--mount" not in text, path
