"""Wheels come from anywhere as long as the hash matches. Real pip, real (tiny) wheels, no network."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.images.lock import EngineLock, LockedFile
from onecat.images.metadata_wheel import write_metadata_wheel
from onecat.images.wheels import Downloader, Meter, WheelStore, chunks, fetch, file_sha256, wheel_folders

NAMES = ("alpha", "beta", "gamma")


@pytest.fixture
def supply(tmp_path: Path) -> Path:
    """A folder with three tiny wheels."""
    folder = tmp_path / "supply"
    folder.mkdir()
    for name in NAMES:
        write_metadata_wheel(folder, name, "1.0", "a tiny wheel")
    return folder


@pytest.fixture
def lock(supply: Path) -> EngineLock:
    """A lock of the three wheels; gamma is pinned."""
    rows = []
    for name in NAMES:
        path = supply / f"{name}-1.0-py3-none-any.whl"
        rows.append(LockedFile(name, "1.0", path.name, file_sha256(path), path.stat().st_size, ("3.11",)))
    return EngineLock("tiny", "1.0", "x86_64", "2.31", (), (), "", ("3.11",), ("gamma",), (), tuple(rows))


@pytest.fixture
def store(tmp_path: Path) -> WheelStore:
    return WheelStore(tmp_path / "store", (), tmp_path / "data" / "recorded-hashes.json")


@pytest.fixture
def downloader(tmp_path: Path) -> Downloader:
    return Downloader(Path(sys.executable), "3.11", tmp_path / "pip.log")


@pytest.fixture
def pip_finds(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | None], None]:
    """Configures pip as a user could: no index, and one folder of files or none."""

    def configure(folder: Path | None) -> None:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder or ""))

    return configure


def without_hash(lock: EngineLock, project: str) -> EngineLock:
    rows = (replace(row, sha256=None, size=None) if row.project == project else row for row in lock.files)
    return replace(lock, files=tuple(rows))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_files_come_from_where_the_users_pip_finds_them(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    said: list[str] = []
    rows = fetch(lock, store, downloader, said.append)
    assert names(store.directory) == [f"{name}-1.0-py3-none-any.whl" for name in NAMES]
    assert all(store.holds(row) for row in rows)
    assert "0 of 3 are here; downloading 3" in said[0] and "(100 %)" in said[-1]


def test_files_come_from_onecat_wheels_without_pip(lock: EngineLock, store: WheelStore, supply: Path) -> None:
    nowhere = Downloader(Path("/nonexistent/python"), "3.11", Path("/nonexistent/log"))
    fetch(lock, replace(store, folders=(supply,)), nowhere, lambda line: None)
    assert len(names(store.directory)) == 3


def test_verified_files_stay_and_damaged_ones_are_fetched_again(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    fetch(lock, store, downloader, lambda line: None)
    damaged = store.path(lock.files[0])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    kept = store.path(lock.files[1]).stat().st_mtime_ns
    said: list[str] = []
    fetch(lock, store, downloader, said.append)
    assert "2 of 3 are here; downloading 1" in said[0]
    assert store.holds(lock.files[0])
    assert store.path(lock.files[1]).stat().st_mtime_ns == kept


def test_a_file_that_nobody_has_is_named_with_the_setting_to_change(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    (supply / "beta-1.0-py3-none-any.whl").unlink()
    with pytest.raises(OnecatError, match=r"nobody supplies beta-1\.0-py3-none-any\.whl") as raised:
        fetch(lock, store, downloader, lambda line: None)
    assert raised.value.code is ExitCode.USAGE
    assert "index-url" in raised.value.next_steps[0] and "ONECAT_WHEELS" in raised.value.next_steps[1]
    assert not [name for name in names(store.directory) if "partial" in name]


def test_a_missing_file_of_a_pinned_project_points_to_its_own_index(
    lock: EngineLock, store: WheelStore, downloader: Downloader, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(None)
    with pytest.raises(OnecatError, match=r"nobody supplies gamma") as raised:
        fetch(lock, store, downloader, lambda line: None)
    assert "Start Locally" in raised.value.next_steps[0]


def test_a_file_with_another_hash_is_refused_and_both_hashes_are_told(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    write_metadata_wheel(supply, "beta", "1.0", "somebody changed it")
    changed = supply / "beta-1.0-py3-none-any.whl"
    said: list[str] = []
    with pytest.raises(OnecatError, match=r"beta-1\.0.* was offered with another hash") as raised:
        fetch(lock, replace(store, folders=(supply,)), downloader, said.append)
    assert raised.value.expected == f"sha256 {lock.files[1].sha256}"
    assert file_sha256(changed) in raised.value.details[0]
    assert any("not used" in line and str(changed) in line for line in said)
    assert not store.path(lock.files[1]).exists()


def test_an_unknown_hash_is_recorded_at_first_use_and_said_aloud(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    said: list[str] = []
    rows = fetch(without_hash(lock, "gamma"), store, downloader, said.append)
    seen = file_sha256(supply / "gamma-1.0-py3-none-any.whl")
    assert store.recorded_hashes() == {"gamma-1.0-py3-none-any.whl": seen}
    assert next(row for row in rows if row.project == "gamma").sha256 == seen
    assert any("trusted at this first use" in line and seen in line for line in said)


def test_a_recorded_hash_is_demanded_later(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    unknown = without_hash(lock, "gamma")
    fetch(unknown, store, downloader, lambda line: None)
    store.path(lock.files[2]).unlink()
    write_metadata_wheel(supply, "gamma", "1.0", "somebody changed it")
    with pytest.raises(OnecatError, match=r"gamma-1\.0.* was offered with another hash"):
        fetch(unknown, store, downloader, lambda line: None)


def test_what_several_record_at_once_is_all_kept(store: WheelStore) -> None:
    hashes = {f"file-{number}.whl": f"{number:064d}" for number in range(40)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda row: store.record(dict([row])), hashes.items()))
    assert store.recorded_hashes() == hashes
    assert store.record({"file-1.whl": hashes["file-1.whl"]}) == {}


def test_a_damaged_record_is_not_taken_for_an_empty_one(store: WheelStore) -> None:
    store.recorded.parent.mkdir()
    store.recorded.write_text("{")
    with pytest.raises(OnecatError, match="record of hashes"):
        store.recorded_hashes()


def test_an_index_that_does_not_answer_is_unreachable(
    lock: EngineLock, store: WheelStore, downloader: Downloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "1")
    with pytest.raises(OnecatError, match="no package index could be reached") as raised:
        fetch(lock, store, downloader, lambda line: None)
    assert raised.value.code is ExitCode.UNREACHABLE


def test_left_overs_of_killed_runs_are_removed_and_those_of_live_ones_kept(
    lock: EngineLock, store: WheelStore, downloader: Downloader, supply: Path, pip_finds: Callable[[Path | None], None]
) -> None:
    pip_finds(supply)
    dead, alive = store.directory / ".onecat-partial-999999999-x", store.directory / ".onecat-partial-1-x"
    dead.mkdir(parents=True)
    alive.mkdir()
    fetch(lock, store, downloader, lambda line: None)
    assert not dead.exists() and alive.exists()


def test_a_group_of_files_is_small_enough_to_lose(lock: EngineLock) -> None:
    rows = [replace(lock.files[0], project=f"p{number}", size=40) for number in range(5)]
    groups = chunks([lock.files[2], *rows], lock, limit=100)
    assert [[row.project for row in group] for group in groups] == [["gamma"], ["p0", "p1"], ["p2", "p3"], ["p4"]]


def test_wheel_folders_must_exist(tmp_path: Path) -> None:
    assert wheel_folders({"ONECAT_WHEELS": f"{tmp_path}:"}) == (tmp_path,)
    with pytest.raises(OnecatError, match="ONECAT_WHEELS does not exist"):
        wheel_folders({"ONECAT_WHEELS": str(tmp_path / "absent")})


def test_how_long_a_download_takes_is_guessed_when_a_percent_of_it_is_here(
    lock: EngineLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(lock.files[0], size=1_000_000_000)]
    said: list[str] = []
    clock = iter([0.0, 30.0, 60.0, 90.0, 120.0])
    monkeypatch.setattr("onecat.images.wheels.time.monotonic", lambda: next(clock))
    meter = Meter(lock, rows, said.append)
    for bytes_here in (100, 100_000_000, 500_000_000, 900_000_000):
        meter.show(bytes_here)
    assert said[0] == "wheels: 0.0 MB of 1.0 GB (0 %)"
    assert re.fullmatch(r"wheels: 100 MB of 1\.0 GB \(10 %\), about 9 min left", said[1])
    assert re.fullmatch(r"wheels: 500 MB of 1\.0 GB \(50 %\), about 9\d s left", said[2])
    assert re.fullmatch(r"wheels: 900 MB of 1\.0 GB \(90 %\), about 1\d s left", said[3])
