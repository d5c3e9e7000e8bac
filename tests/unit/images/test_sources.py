"""Where the source archive comes from: a folder, the store, the user's pip; and that none of its code ever runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.images.sources import fetch_release, fetch_source
from onecat.patching import Upstream
from onecat.paths import Home
from tests.unit.patching.small_series import pin, write_archive

SPY = "import pathlib, sys; pathlib.Path({marker!r}).touch(); sys.exit('code of the archive ran')\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "data", tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user's pip is configured to take packages from, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nno-index = true\nfind-links = {folder}\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return folder


def project(folder: Path, marker: Path, pyproject: str, version: str = "1.0") -> Upstream:
    """A source archive whose every piece of code leaves a mark when it runs."""
    spy = SPY.format(marker=str(marker)).encode()
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: engine\nVersion: {version}\n".encode(),
        "pyproject.toml": pyproject.encode(),
        "setup.py": spy,
        "backend/own_backend.py": spy,
        "own_backend.py": spy,
    }
    if not pyproject:
        del files["pyproject.toml"]
    return pin(write_archive(folder / f"engine-{version}.tar.gz", files, f"engine-{version}"), version)


def refusal(upstream: Upstream, home: Home, folder: Path | None = None, **options: bool) -> OnecatError:
    with pytest.raises(OnecatError) as raised:
        fetch_source(upstream, home, print, folder, **options)
    assert not list(home.sources.glob("*.tar.gz")), "nothing unverified may have the final name"
    return raised.value


@pytest.mark.parametrize(
    "pyproject",
    [
        '[build-system]\nrequires = ["setuptools", "no-such-thing"]\nbuild-backend = "setuptools.build_meta"\n',
        '[build-system]\nrequires = []\nbuild-backend = "own_backend"\nbackend-path = ["backend"]\n',
        '[build-system]\nrequires = []\nbuild-backend = "own_backend"\nbackend-path = ["."]\n',
        "",
    ],
    ids=["setuptools", "own backend", "own backend beside setup.py", "only setup.py"],
)
def test_pip_brings_the_archive_and_none_of_its_code_runs(
    home: Home, index: Path, tmp_path: Path, pyproject: str
) -> None:
    upstream = project(index, tmp_path / "ran", pyproject)
    lines: list[str] = []
    got = fetch_source(upstream, home, lines.append)
    assert got == home.sources / "engine-1.0.tar.gz"
    assert hashlib.sha256(got.read_bytes()).hexdigest() == upstream.sha256
    assert not (tmp_path / "ran").exists()
    assert [path.name for path in home.sources.iterdir() if "partial" in path.name] == []
    (index / upstream.file).unlink()
    assert fetch_source(upstream, home, lines.append) == got
    assert len(lines) == 2, "the second time it is in the store"


def test_another_content_from_the_index_is_refused_with_both_hashes(home: Home, index: Path, tmp_path: Path) -> None:
    offered = project(index, tmp_path / "ran", "")
    error = refusal(replace(offered, sha256="1" * 64), home)
    assert error.code is ExitCode.NO
    assert error.expected == f"sha256 {'1' * 64}"
    assert error.details[0] == f"sha256 {offered.sha256} was offered"
    assert "released anew or replaced" in error.details[1]
    assert not (tmp_path / "ran").exists()


def test_a_release_that_nobody_has_is_told(home: Home, index: Path) -> None:
    error = refusal(Upstream("engine", "2.0", "engine-2.0.tar.gz", "1" * 64, "MIT"), home)
    assert (error.found, error.code) == ("nobody supplies engine-2.0.tar.gz", ExitCode.USAGE)
    assert "pip.log" in str(error.where)


def test_an_index_that_does_not_answer_is_told(
    home: Home, tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = "[global]\nindex-url = http://127.0.0.1:9/simple\nretries = 1\ntimeout = 2\n"
    (tmp_path / "pip.conf").write_text(configuration, encoding="utf-8")
    error = refusal(Upstream("engine", "1.0", "engine-1.0.tar.gz", "1" * 64, "MIT"), home)
    assert error.code is ExitCode.UNREACHABLE
    assert error.found == "no package index could be reached for engine-1.0.tar.gz"


def test_a_given_file_or_folder_comes_before_everything(home: Home, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    upstream = pin(archive)
    assert fetch_source(upstream, home, print, archive) == archive
    assert fetch_source(upstream, home, print, tmp_path) == archive
    error = refusal(replace(upstream, sha256="2" * 64), home, tmp_path)
    assert (error.code, error.expected) == (ExitCode.NO, f"sha256 {'2' * 64}")
    assert refusal(upstream, home, tmp_path / "none.tar.gz").found.endswith("does not exist")


def test_a_folder_of_onecat_wheels_supplies_it_if_its_hash_is_right(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "engine-1.0.tar.gz")
    monkeypatch.setenv("ONECAT_WHEELS", str(tmp_path))
    assert fetch_source(pin(archive), home, print, offline=True) == archive
    lines: list[str] = []
    with pytest.raises(OnecatError):
        fetch_source(replace(pin(archive), sha256="3" * 64), home, lines.append, offline=True)
    assert "not used" in lines[0] and str(archive) in lines[0]


def test_offline_without_the_archive_says_what_to_bring(home: Home, tmp_path: Path) -> None:
    error = refusal(pin(write_archive(tmp_path / "engine-1.0.tar.gz")), home, offline=True)
    assert error.found == "engine-1.0.tar.gz is not on this machine, and no index may be asked"
    assert error.next_steps == ("get engine-1.0.tar.gz on another machine and name it: --source FILE",)


def test_a_damaged_copy_in_the_store_is_fetched_again(home: Home, index: Path, tmp_path: Path) -> None:
    upstream = project(index, tmp_path / "ran", "")
    home.sources.mkdir(parents=True)
    (home.sources / upstream.file).write_bytes(b"damaged")
    got = fetch_source(upstream, home, print)
    assert hashlib.sha256(got.read_bytes()).hexdigest() == upstream.sha256


def test_an_unpinned_release_is_recorded_at_first_use_and_held_to_it(home: Home, index: Path, tmp_path: Path) -> None:
    first = project(index, tmp_path / "ran", "", "2.0")
    lines: list[str] = []
    path, upstream = fetch_release("engine", "2.0", home, lines.append)
    assert upstream.sha256 == first.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert any(f"recorded as seen now: sha256 {first.sha256}" in line for line in lines)
    path.unlink()
    (index / first.file).unlink()
    project(index, tmp_path / "ran", "[build-system]\nrequires = []\n", "2.0")
    with pytest.raises(OnecatError) as raised:
        fetch_release("engine", "2.0", home, print)
    assert raised.value.expected == f"sha256 {first.sha256}"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("version", ["", "../2.0", "2.0 --index-url=https://else.example", "2.0\nother==1"])
def test_a_release_that_is_no_version_reaches_neither_pip_nor_the_disk(home: Home, version: str) -> None:
    with pytest.raises(OnecatError, match="is no version"):
        fetch_release("engine", version, home, print)
    assert not home.sources.exists()
