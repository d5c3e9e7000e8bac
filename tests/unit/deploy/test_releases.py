"""Releases on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.deploy.releases import Release, from_document, reachable, to_document
from onecat.deploy.store import DeploymentStore
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import LocalMachine


def make(store: DeploymentStore, outcome: str = "starting") -> Release:
    number, directory = store.new_directory()
    release = Release(
        deployment=store.name,
        number=number,
        directory=directory,
        runtime="native",
        profile="cpu",
        model="tiny",
        host="127.0.0.1",
        port=8000,
        endpoint="http://127.0.0.1:8080",
        proxy_kind="own",
        protected=False,
        fingerprint="abc",
        created_at="2026-11-29T16:00:00.000Z",
        outcome=outcome,  # type: ignore[arg-type]
    )
    return store.save(release)


@pytest.fixture
def store(tmp_path: Path) -> DeploymentStore:
    return DeploymentStore(LocalMachine(tmp_path), "demo")


def test_a_release_comes_back_from_disk_as_it_was_written(store: DeploymentStore) -> None:
    release = make(store)
    assert store.load(1) == release
    assert Path(release.directory, "release.json").stat().st_mode & 0o777 == 0o600
    assert Path(release.directory).stat().st_mode & 0o777 == 0o700


def test_releases_are_numbered_and_one_is_current(store: DeploymentStore) -> None:
    assert store.current() is None
    first, second = make(store, "stopped"), make(store, "serving")
    store.set_current(second.number)
    assert [release.number for release in store.releases()] == [1, 2]
    assert store.current() == second
    assert not store.taken_down()
    store.set_current(None)
    assert store.current() is None
    assert store.taken_down()
    assert first.number == 1


def test_a_directory_left_by_a_killed_rendering_is_used_again(store: DeploymentStore) -> None:
    number, directory = store.new_directory()
    Path(directory, "half").touch()
    assert store.new_directory() == (number, directory)
    assert list(Path(directory).iterdir()) == []


def test_old_releases_go_and_the_current_one_stays(store: DeploymentStore) -> None:
    current = make(store, "serving")
    store.set_current(current.number)
    for _ in range(7):
        make(store, "failed")
    store.prune(keep=3)
    assert [release.number for release in store.releases()] == [1, 6, 7, 8]


def test_the_release_to_go_back_to_stays(store: DeploymentStore) -> None:
    older, good = make(store, "stopped"), make(store, "stopped")
    for each in (older, good):
        store.save(replace(each, fingerprint="before", served_at="2026-11-29T16:01:00.000Z"))
    current = store.end(make(store), "serving")
    store.set_current(current.number)
    for _ in range(4):
        make(store, "failed")
    store.prune(keep=2)
    assert [release.number for release in store.releases()] == [2, 3, 6, 7]


def test_releases_of_experiments_push_none_out(store: DeploymentStore) -> None:
    older, good = make(store, "stopped"), make(store, "serving")
    store.save(replace(older, fingerprint="before", served_at="2026-11-29T16:01:00.000Z"))
    store.set_current(good.number)
    for _ in range(6):
        tried = make(store, "stopped")
        store.save(replace(tried, purpose="bench", fingerprint="tried", served_at="2026-11-29T16:02:00.000Z"))
    store.prune(keep=2)
    assert [release.number for release in store.releases()] == [1, 2, 7, 8]


def test_secrets_go_with_the_end_of_a_release(store: DeploymentStore) -> None:
    release = make(store)
    Path(release.directory, "secrets").mkdir()
    store.end(release, "serving")
    assert Path(release.directory, "secrets").exists()
    store.end(release, "failed", "no memory")
    assert not Path(release.directory, "secrets").exists()
    loaded = store.load(1)
    assert loaded is not None
    assert (loaded.outcome, loaded.cause) == ("failed", "no memory")


def test_a_second_operator_is_told_who_works_on_it(store: DeploymentStore) -> None:
    make(store)
    with store.lock("onecat up"), pytest.raises(OnecatError) as raised, store.lock("onecat down"):
        pass
    assert f"(pid {os.getpid()})" in raised.value.found
    assert "`onecat up`" in raised.value.found
    assert raised.value.code == ExitCode.ROLLED_BACK
    with store.lock("onecat down"):
        pass


def test_the_lock_of_a_killed_process_is_free(store: DeploymentStore) -> None:
    make(store)
    program = (
        "import os, pathlib, sys\n"
        "from onecat.deploy.store import DeploymentStore\n"
        "from onecat.hosts import LocalMachine\n"
        "store = DeploymentStore(LocalMachine(pathlib.Path(sys.argv[1])), 'demo')\n"
        "with store.lock('onecat up'): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, store.machine.data_directory], check=False)
    assert killed.returncode == -9
    assert '"purpose": "onecat up"' in Path(store.directory, "lock").read_text()
    with store.lock("onecat up"):
        pass


def test_a_deployment_without_a_release_leaves_nothing_behind(store: DeploymentStore) -> None:
    with store.lock("onecat up"):
        assert Path(store.directory).exists()
    assert not Path(store.directory).exists()


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("gpu1", "gpu1")]
)
def test_where_a_listening_server_is_reached(host: str, address: str) -> None:
    assert reachable(host) == address


# --- what others have written -----------------------------------------------------------------------------------------

FIRST_FORM = {
    "schema": "onecat.release/1", "deployment": "demo", "number": 1, "runtime": "native", "profile": "cpu",
    "model": "tiny", "host": "127.0.0.1", "port": 8000, "endpoint": "http://127.0.0.1:8080", "proxied": True,
    "protected": False, "fingerprint": "abc", "created_at": "2026-11-30T01:26:08.000Z", "container": None,
    "docker_host": None, "outcome": "serving", "cause": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "proxy_kind", "service"),
    [
        ({}, "own", "supervisor"),
        ({"proxied": False}, None, "supervisor"),
        ({"runtime": "container", "container": "onecat-demo-0001"}, "own", "docker"),
    ],
)
def test_a_release_of_the_first_form_is_one_with_our_own_nginx(
    changes: dict[str, object], proxy_kind: str | None, service: str
) -> None:
    release = from_document({**FIRST_FORM, **changes}, "/somewhere")
    assert (release.proxy_kind, release.service, release.outcome) == (proxy_kind, service, "serving")
    assert from_document(to_document(release), "/somewhere") == release


def test_what_only_a_later_onecat_knows_is_left_out(store: DeploymentStore) -> None:
    release = make(store)
    assert from_document({**to_document(release), "color": "blue"}, release.directory) == release


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("releases/0001/release.json", b"{"),
        ("releases/0001/release.json", b"[]"),
        ("releases/0001/release.json", b'{"schema": "onecat.release/1"}'),
        ("releases/0001/release.json", b"\xff\xfe"),
        ("deployment.json", b"null and void"),
        ("deployment.json", b'{"current": "newest"}'),
        ("deployment.json", b'"1"'),
    ],
)
def test_a_damaged_file_is_told_with_its_place(store: DeploymentStore, file: str, content: bytes) -> None:
    store.set_current(make(store, "serving").number)
    Path(store.directory, file).write_bytes(content)
    with pytest.raises(OnecatError, match="damaged") as told:
        store.current()
    assert (told.value.where, told.value.code) == (f"{store.directory}/{file}", ExitCode.NEEDS_PERSON)


def test_a_line_of_the_audit_log_that_was_cut_off_hides_no_other(store: DeploymentStore) -> None:
    make(store)
    store.audit.record("up", 1)
    log = Path(store.directory, "audit.jsonl")
    log.write_bytes(log.read_bytes() + b'{"time": "2026-11')
    store.audit.record("started", 1)
    store.audit.record("ready", 1)
    assert [each.event for each in store.audit.entries()] == ["up", "ready"]
