"""onecat.lock: one line for each thing, nothing that nobody saw, and every difference told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images.lock_file import (
    LockEntry,
    LockFile,
    differences,
    known_entry,
    read_lock_file,
    write_entry,
)
from onecat.images.lock_session import LockMode, LockSession, image_identity, packages_of
from onecat.images.options import BuildOptions, LockedPackage
from onecat.paths import Home

TORCH = ("packages", "3.12", "torch")
TORCH_312 = "torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl"


def entry_of(values: Mapping[tuple[str, ...], str], unlocked: Mapping[tuple[str, ...], str] | None = None) -> LockEntry:
    return LockEntry(dict(values), dict(unlocked or {}))


def python_312() -> Any:
    """The cpu profile for an image whose torch has a hash that nobody could see when the engine's lock was made."""
    profile = load_profile("cpu")
    variables = {**profile.image.variables, "python": "3.12"}
    return profile.model_copy(update={"image": profile.image.model_copy(update={"variables": variables})})


# --- what an entry holds ---------------------------------------------------------------------------------------------


def test_everything_that_ships_with_onecat_is_in_it() -> None:
    entry = known_entry(load_profile("v100x2-pcie"), {})
    groups = {key[0] for key in entry.values}
    assert {"onecat", "profile", "engine", "engine-flags", "recipe", "series", "source"} <= groups
    assert entry.values["source", "vllm-0.27.1.tar.gz"] == (
        "sha256:eec2d54d137ac1e59cb4c39226dfee1943eefc8f4788f5821d7300d6acbdb646"
    )
    assert set(entry.unlocked) == {
        ("images", "nvidia/cuda:12.6.3-devel-ubuntu24.04"),
        ("images", "nvidia/cuda:12.6.3-runtime-ubuntu24.04"),
        ("packages", "3.12"),
    }


def test_a_hash_that_nobody_saw_is_not_written_and_one_that_was_recorded_is() -> None:
    unseen, seen = known_entry(python_312(), {}), known_entry(python_312(), {TORCH_312: "ab" * 32})
    assert TORCH not in unseen.values and TORCH_312 in unseen.unlocked[TORCH]
    assert seen.values[TORCH] == f"2.13.0+cpu sha256:{'ab' * 32}" and TORCH not in seen.unlocked


def test_what_has_been_seen_is_no_longer_unlocked() -> None:
    entry = entry_of({}, {("packages", "3.12"): "none has been read yet", ("images", "a:1"): "nobody looked"})
    assert entry.with_seen({("packages", "3.12", "torch"): "1 sha256:00"}).unlocked == {
        ("images", "a:1"): "nobody looked"
    }


# --- the file --------------------------------------------------------------------------------------------------------


def test_it_reads_back_as_it_was_written_and_is_sorted(tmp_path: Path) -> None:
    lock = LockFile({name: known_entry(load_profile(name), {}) for name in ("v100x2-pcie", "cpu")})
    for name, entry in lock.entries.items():
        assert write_entry(tmp_path / "onecat.lock", name, entry) and not write_entry(
            tmp_path / "onecat.lock", name, entry
        )
    assert read_lock_file(tmp_path / "onecat.lock") == lock
    text = (tmp_path / "onecat.lock").read_text()
    packages = list(yaml.safe_load(text)["profiles"]["cpu"]["packages"]["3.11"])
    assert packages == sorted(packages)
    assert all(line.count("sha256:") <= 1 for line in text.splitlines())


@given(
    st.dictionaries(
        st.sampled_from([("onecat",), ("images", "a/b:1.0"), ("patches", "0001-a.b"), ("packages", "3.12", "zope.x")]),
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1),
    ),
    st.dictionaries(
        st.sampled_from(
            [("engine-flags",), ("images", "reg:5000/c:2"), ("packages", "3.11"), ("packages", "3.10", "a.b")]
        ),
        st.text("abc: #'\"", min_size=1),
    ),
)
def test_any_entry_survives_the_file(values: dict[Any, str], unlocked: dict[Any, str]) -> None:
    import tempfile

    lock = LockFile({"cpu": LockEntry(values, unlocked)})
    with tempfile.TemporaryDirectory() as folder:
        write_entry(Path(folder, "onecat.lock"), "cpu", lock.entries["cpu"])
        assert read_lock_file(Path(folder, "onecat.lock")) == lock


def test_builds_that_end_at_the_same_moment_keep_each_others_entries(tmp_path: Path) -> None:
    names = [f"profile-{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: write_entry(tmp_path / "onecat.lock", name, LockEntry({("onecat",): name})), names))
    assert sorted(read_lock_file(tmp_path / "onecat.lock").entries) == sorted(names)


def test_a_merge_that_was_left_unfinished_is_told(tmp_path: Path) -> None:
    path = tmp_path / "onecat.lock"
    path.write_text("schema: onecat.lock/1\n<<<<<<< ours\nprofiles: {}\n=======\nprofiles: {}\n>>>>>>> theirs\n")
    with pytest.raises(OnecatError, match="cannot be read") as raised:
        read_lock_file(path)
    assert raised.value.next_steps[0] == "resolve the merge conflict that is in it"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "this is no lock file"),
        ("[]", "this is no lock file"),
        ("name: mine\nextends: [cpu]\n", "this is no lock file"),
        ("schema: onecat.lock/2\nprofiles: {}\n", "cannot be read"),
        ("schema: onecat.lock/1\n", "cannot be read"),
        ("a: b: c", "cannot be read"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "onecat.lock").write_text(text)
    with pytest.raises(OnecatError, match=found) as raised:
        read_lock_file(tmp_path / "onecat.lock")
    may_be_removed = any("remove it" in step for step in raised.value.next_steps)
    assert may_be_removed is (found == "cannot be read"), "a file of something else is not to be removed"


def test_a_directory_is_no_lock_file(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="is a directory"):
        read_lock_file(tmp_path)


# --- differences -----------------------------------------------------------------------------------------------------


def test_each_difference_names_both_sides() -> None:
    locked = entry_of({("engine",): "vllm 1", ("patches", "0001-a"): "sha256:1", ("patches", "0002-b"): "sha256:2"})
    found = entry_of({("engine",): "vllm 2", ("patches", "0001-a"): "sha256:1", ("patches", "0003-c"): "sha256:3"})
    assert [str(each) for each in differences(locked, found)] == [
        "engine: the lock has vllm 1, here is vllm 2",
        "patches.0002-b: the lock has sha256:2, here is nothing",
        "patches.0003-c: the lock has nothing, here is sha256:3",
    ]


def test_what_was_not_looked_at_is_no_difference() -> None:
    locked = entry_of({("images", "a:1"): "sha256:1", ("packages", "3.11", "torch"): "1", ("engine",): "e"})
    assert differences(locked, entry_of({("engine",): "e"})) == ()


def test_what_the_lock_does_not_know_cannot_differ() -> None:
    locked = entry_of({("engine",): "e"}, {("packages", "3.12"): "none has been read yet"})
    assert differences(locked, entry_of({("engine",): "e", ("packages", "3.12", "torch"): "1 sha256:00"})) == ()


# --- one build -------------------------------------------------------------------------------------------------------


def session(tmp_path: Path, mode: LockMode, home: str = "home", profile: Any = None) -> LockSession:
    """A build that only renders: no engine is asked."""
    where = Home(tmp_path / home, tmp_path / "cache")
    return LockSession(tmp_path / "onecat.lock", profile or load_profile("cpu"), where, mode, "container", looks=False)


def test_the_first_build_records_and_says_so_and_the_second_has_nothing_to_say(tmp_path: Path) -> None:
    said: list[str] = []
    first = session(tmp_path, "record")
    assert first.before(BuildOptions(), said.append) == BuildOptions() and said == []
    assert first.after(said.append)["lock_file"]["written"] is True
    assert "lock: recorded packages.3.11: 146 with their hashes" in said
    assert any(line.startswith("lock: not locked: images.python:3.11-slim-bookworm: ") for line in said)
    assert first.after(said.append)["lock_file"]["written"] is False


def test_locked_without_an_entry_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="there is no lock file"):
        session(tmp_path, "locked").before(BuildOptions(), print)
    session(tmp_path, "record", profile=load_profile("h200")).after(lambda line: None)
    with pytest.raises(OnecatError, match="no entry for profile cpu") as raised:
        session(tmp_path, "locked").before(BuildOptions(), print)
    assert raised.value.code is ExitCode.NO and "--update-lock" in raised.value.next_steps[0]


def test_locked_refuses_drift_before_anything_is_built_and_changes_nothing(tmp_path: Path) -> None:
    session(tmp_path, "record").after(lambda line: None)
    path = tmp_path / "onecat.lock"
    path.write_text(path.read_text().replace("uvloop: 0.23.0", "uvloop: 0.22.0"))
    before = path.read_bytes()
    with pytest.raises(OnecatError, match="1 difference") as raised:
        session(tmp_path, "locked").before(BuildOptions(), print)
    assert raised.value.code is ExitCode.NO and path.read_bytes() == before
    assert raised.value.details[0].startswith("packages.3.11.uvloop: the lock has 0.22.0 sha256:")
    assert raised.value.next_steps[0].startswith("onecat build --profile cpu --runtime container --update-lock --lock ")


def test_without_locked_drift_is_told_and_the_lock_stays(tmp_path: Path) -> None:
    session(tmp_path, "record").after(lambda line: None)
    path = tmp_path / "onecat.lock"
    path.write_text(path.read_text().replace("uvloop: 0.23.0", "uvloop: 0.22.0"))
    said: list[str] = []
    session(tmp_path, "record").before(BuildOptions(), said.append)
    session(tmp_path, "record").after(said.append)
    assert any(line.startswith("lock: 1 difference; onecat build ") for line in said)
    assert any(line.startswith("lock: packages.3.11.uvloop: the lock has 0.22.0") for line in said)
    assert "uvloop: 0.22.0" in path.read_text()
    session(tmp_path, "update").after(said.append)
    assert "uvloop: 0.23.0" in path.read_text()


def test_other_profiles_stay_as_they_are(tmp_path: Path) -> None:
    session(tmp_path, "record", profile=load_profile("v100x2-pcie")).after(lambda line: None)
    other = read_lock_file(tmp_path / "onecat.lock").entries["v100x2-pcie"]
    session(tmp_path, "record").after(lambda line: None)
    assert read_lock_file(tmp_path / "onecat.lock").entries["v100x2-pcie"] == other


def test_a_recorded_hash_reaches_the_next_machine_through_the_lock(tmp_path: Path) -> None:
    profile = python_312()
    first = session(tmp_path, "record", "one", profile)
    first.home.data.mkdir()
    (first.home.data / "recorded-hashes.json").write_text(json.dumps({TORCH_312: "ab" * 32}))
    first.after(lambda line: None)
    said: list[str] = []
    second = session(tmp_path, "locked", "two", profile)
    second.before(BuildOptions(), said.append)
    assert json.loads((second.home.data / "recorded-hashes.json").read_text()) == {TORCH_312: "ab" * 32}
    assert any(TORCH_312 in line and "is demanded" in line for line in said)


def test_a_plan_refuses_drift_and_records_nothing(tmp_path: Path) -> None:
    profile = python_312()
    first = session(tmp_path, "record", "one", profile)
    first.home.data.mkdir()
    (first.home.data / "recorded-hashes.json").write_text(json.dumps({TORCH_312: "ab" * 32}))
    first.after(lambda line: None)
    second = replace(session(tmp_path, "locked", "two", profile), plans=True)
    second.before(BuildOptions(), lambda line: None)
    assert not second.home.data.exists()
    first.path.write_text(first.path.read_text().replace("uvloop: 0.23.0", "uvloop: 0.22.0"))
    with pytest.raises(OnecatError, match="1 difference"):
        second.before(BuildOptions(), print)


def test_another_hash_than_this_machine_recorded_is_drift(tmp_path: Path) -> None:
    profile = python_312()
    one, two = session(tmp_path, "record", "one", profile), session(tmp_path, "locked", "two", profile)
    for home, sha256 in ((one.home, "ab" * 32), (two.home, "cd" * 32)):
        home.data.mkdir()
        (home.data / "recorded-hashes.json").write_text(json.dumps({TORCH_312: sha256}))
    one.after(lambda line: None)
    with pytest.raises(OnecatError, match="1 difference") as raised:
        two.before(BuildOptions(), print)
    assert "ab" * 32 in raised.value.details[0] and "cd" * 32 in raised.value.details[0]


def test_the_locks_packages_go_into_an_image_whose_packages_pip_would_choose(tmp_path: Path) -> None:
    profile = load_profile("v100x2-pcie")
    lock = session(tmp_path, "record", profile=profile)
    entry = known_entry(profile, {}).with_seen({TORCH: f"2.13.0+cu126 sha256:{'ab' * 32} sha256:{'cd' * 32}"})
    write_entry(lock.path, profile.name, entry)
    assert lock.before(BuildOptions(), print).packages == (
        LockedPackage("torch", "2.13.0+cu126", ("ab" * 32, "cd" * 32)),
    )


def test_two_clean_homes_render_the_same_bytes_from_one_lock(tmp_path: Path) -> None:
    """Other directories, another time, another umask, other names of everything."""
    work = tmp_path / "first"
    rendered = []
    for name, umask, locked in (("first", 0o022, "--update-lock"), ("second", 0o077, "--locked")):
        home = tmp_path / name
        home.mkdir()
        program = f"import os, sys; os.umask({umask}); sys.argv[0] = 'onecat'; import onecat.cli.main as m; m.main()"
        output = home / f"context-{name}"
        arguments = ["build", "-p", "cpu", "--render-only", "--lock", str(work / "onecat.lock"), locked]
        environment = {**os.environ, "ONECAT_HOME": str(home / "data"), "TZ": "Asia/Tokyo" if umask else "UTC"}
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments, "--output", str(output)],
            env={**environment, "PYTHONHASHSEED": str(umask)},
            cwd=home,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        files = sorted(path for path in output.rglob("*") if path.is_file())
        modes = [path.stat().st_mode & 0o111 for path in files]
        rendered.append([(path.relative_to(output), path.read_bytes()) for path in files] + modes)
    assert rendered[0] == rendered[1] and len(rendered[0]) > 10


# --- images and reports ----------------------------------------------------------------------------------------------


def test_an_image_is_known_by_its_registry_digest_and_a_local_one_by_its_id() -> None:
    pulled = {"Id": "sha256:1", "RepoDigests": ["mirror/other@sha256:c", "docker.io/library/python@sha256:b"]}
    assert image_identity("python:3.11", pulled, None) == "sha256:b"
    assert image_identity("python:3.11", {"Id": "sha256:1", "RepoDigests": []}, None) == "local-image-id sha256:1"
    assert image_identity("python:3.11", {}, "sha256:b") is None
    two = {"Id": "sha256:1", "RepoDigests": ["python@sha256:a", "python@sha256:b"]}
    assert image_identity("python:3.11", two, "sha256:b") == "sha256:b"


def report(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"version": "1", "install": list(rows)}).encode()


def downloaded(name: str, version: str, sha256: str | None, direct: bool = False) -> dict[str, Any]:
    archive = {"archive_info": {"hashes": {"sha256": sha256}}} if sha256 else {"dir_info": {}}
    return {
        "metadata": {"name": name, "version": version},
        "is_direct": direct,
        "download_info": {"url": "file:///x", **archive},
    }


def test_packages_come_from_what_pip_says_it_downloaded() -> None:
    found = packages_of(
        {
            "pip-20-torch.json": report(downloaded("Torch", "2.13.0", "ab" * 32), downloaded("local", "1", None)),
            "pip-40-engine.json": report(downloaded("vllm", "0.27.1", "cd" * 32, direct=True)),
            "externals.json": b"[]",
        }
    )
    assert found == (LockedPackage("torch", "2.13.0", ("ab" * 32,)),)
