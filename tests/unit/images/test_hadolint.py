"""Every profile's Dockerfile passes hadolint, with the configuration that `onecat build --check` uses as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onecat.config import list_profiles, load_profile
from onecat.images import BuildOptions, render_context
from onecat.images.context import DEFAULT_OPTIONS
from onecat.images.recipe import load_recipe
from onecat.resources import resource_directory

HADOLINT = Path(sys.executable).with_name("hadolint")
CONFIGURATION = resource_directory("templates") / "image" / "hadolint.yaml"


def dockerfile_of(name: str, options: BuildOptions = DEFAULT_OPTIONS) -> str:
    context = render_context(load_profile(name), options=options)
    return next(file.content for file in context.files if file.name == "Dockerfile").decode()


def lint(dockerfile: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [str(HADOLINT), "--no-color", "--config", str(CONFIGURATION), "-"]
    return subprocess.run(command, input=dockerfile, capture_output=True, check=False)


@pytest.mark.parametrize("given", [False, True], ids=["compiled", "with a wheel"])
def test_every_dockerfile_is_clean(given: bool, tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-0.27.1+onecat.sm70-cp38-abi3-linux_x86_64.whl"
    wheel.write_bytes(b"")
    said = {}
    for name in list_profiles():
        recipe = load_recipe(load_profile(name).image.recipe)
        if given and recipe.wheel_stage is None and not recipe.given_wheel:
            continue
        dockerfile = dockerfile_of(name, BuildOptions(wheel=wheel if given else None))
        said[name] = lint(dockerfile.encode()).stdout.decode()
    assert said and not any(said.values()), said


def test_hadolint_is_asked_for_real() -> None:
    refused = lint(b"FROM debian\nRUN cd /tmp\n")
    assert refused.returncode == 1 and b"DL3006" in refused.stdout and b"DL3003" in refused.stdout


def test_no_dockerfile_needs_more_than_the_classic_builder() -> None:
    for path in (resource_directory("templates") / "image").rglob("*.j2"):
        text = path.read_text()
        assert "# syntax=" not in text and "--mount" not in text, path


@pytest.mark.parametrize("name", [name for name in list_profiles() if "TORCH_INDEX_URL" in dockerfile_of(name)])
def test_every_stage_that_asks_pip_knows_where_packages_come_from(name: str) -> None:
    """The classic builder hands no ARG on to a stage that starts from another one."""
    stages = dockerfile_of(name).split("\nFROM ")[1:]
    asking = [stage for stage in stages if "with-origins.sh pip" in stage]
    assert asking
    for stage in asking:
        declared = {line.split()[1].partition("=")[0] for line in stage.splitlines() if line.startswith("ARG ")}
        assert declared >= {
            "CA_CERTIFICATE",
            "ONECAT_OFFLINE",
            "PIP_INDEX_URL",
            "PIP_EXTRA_INDEX_URL",
            "TORCH_INDEX_URL",
        }
