"""onecat's directories follow ONECAT_HOME and ONECAT_CACHE as they are when a command asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.paths import Home, home


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ONECAT_HOME", "ONECAT_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_without_settings_the_users_data_and_cache_directories_are_used(tmp_path: Path) -> None:
    assert home() == Home(tmp_path / ".local/share/onecat", tmp_path / ".cache/onecat")


def test_onecat_home_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONECAT_HOME", "/big/onecat")
    assert home() == Home(Path("/big/onecat"), Path("/big/onecat/cache"))


@pytest.mark.parametrize("moved", [True, False])
def test_onecat_cache_moves_only_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moved: bool) -> None:
    if moved:
        monkeypatch.setenv("ONECAT_HOME", "/big/onecat")
    monkeypatch.setenv("ONECAT_CACHE", "/ci/cache")
    data = Path("/big/onecat") if moved else tmp_path / ".local/share/onecat"
    assert home() == Home(data, Path("/ci/cache"))


def test_relative_and_tilde_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONECAT_HOME", "here")
    monkeypatch.setenv("ONECAT_CACHE", "~/there")
    assert home() == Home(tmp_path / "here", tmp_path / "there")


def test_asking_makes_no_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path / "new"))
    asked = home()
    assert {asked.runtimes.parent, asked.deployments.parent, asked.quickstart.parent} == {tmp_path / "new"}
    assert asked.wheels.parent == asked.cache
    assert not (tmp_path / "new").exists()
