"""`onecat model pull` against real servers: nginx as a directory, as a hub, over TLS, and behind a bad network."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.pull import Progress, Pulled, PullRequest, Teller, pull
from onecat.pull.retries import RetryPolicy
from onecat.space import margin
from tests.testbed.command import Onecat
from tests.testbed.cutting_proxy import CuttingProxy
from tests.testbed.model_servers import COMMIT, TOKEN, ModelServers, running_model_servers
from tests.testbed.waiting import wait_until

MEGABYTE = 10**6
FILES = {
    "config.json": b'{"model_type": "llama"}\n',
    "model.safetensors": random.Random(1).randbytes(20 * MEGABYTE),
    "sub/tokenizer.json": b"{}",
    "empty.txt": b"",
    "pytorch_model.bin": b"a pickle",
}
LARGE = "model.safetensors"
WANTED = [path for path in FILES if path != "pytorch_model.bin"]


@pytest.fixture(scope="module")
def servers(nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServers]:
    with running_model_servers(nginx, tmp_path_factory.mktemp("models"), FILES) as running:
        yield running


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


class Told:
    """Keeps what a pull says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.progress: list[Progress] = []

    @property
    def teller(self) -> Teller:
        return Teller(self.lines.append, self.progress.append)


def pulled(source: str, directory: Path, told: Told | None = None, **options: Any) -> Pulled:
    return pull(PullRequest(source, directory, **options), (told or Told()).teller, RetryPolicy(first_seconds=0.05))


def refused(source: str, directory: Path, **options: Any) -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        pulled(source, directory, **options)
    return caught.value


def assert_whole(directory: Path, files: dict[str, bytes] | None = None) -> None:
    """All files are there with their content, and nothing of the pull but its record."""
    expected = {path: FILES[path] for path in WANTED} if files is None else files
    there = {str(each.relative_to(directory)): each for each in directory.rglob("*") if each.is_file()}
    record = {".onecat-pull/lock", ".onecat-pull/state.json", "SHA256SUMS"}
    assert there.keys() == expected.keys() | record
    assert all(there[path].read_bytes() == content for path, content in expected.items())
    assert json.loads(there[".onecat-pull/state.json"].read_text())["complete"] is True
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=directory, check=True)


def states(found: Pulled) -> dict[str, str]:
    return {each.path: each.state for each in found.files}


def test_a_model_of_a_hub_comes_whole_and_the_token_goes_to_the_hub_alone(
    servers: ModelServers, onecat: Onecat, token_file: Path, tmp_path: Path
) -> None:
    arguments = ("model", "pull", "org/tiny@main", tmp_path / "m", "--token-file", token_file, "--json")
    begin = len(servers.requests())
    done = onecat(*arguments, environment={"HF_ENDPOINT": servers.hub}).expect(0)
    document = done.json()
    assert_whole(tmp_path / "m")
    assert (document["schema"], document["revision"]) == ("onecat.model-pull/1", COMMIT)
    assert document["bytes"] == document["fetched_bytes"] == sum(len(FILES[path]) for path in WANTED)
    checked = {each["path"]: (each["checked"], each["sha256"]) for each in document["files"]}
    assert checked[LARGE] == ("sha256", hashlib.sha256(FILES[LARGE]).hexdigest())
    assert checked["config.json"] == ("git-blob", hashlib.sha256(FILES["config.json"]).hexdigest())
    assert document["skipped"] == [{"path": "pytorch_model.bin", "why": "pickle; the source has safetensors"}]
    hub_port, store_port = servers.hub.rpartition(":")[2], servers.store.rpartition(":")[2]
    asked = servers.requests()[begin:]
    at_store = [line for line in asked if line.startswith(store_port)]
    assert len(at_store) >= 3 and all('auth="-"' in line for line in at_store)
    assert all(f'auth="Bearer {TOKEN}"' in line for line in asked if line.startswith(hub_port))
    told = done.stdout + done.stderr + (tmp_path / "m/.onecat-pull/state.json").read_text()
    assert TOKEN not in told and "do-not-show-this" not in told

    begin = len(servers.requests())
    again = onecat(*arguments, environment={"HF_ENDPOINT": servers.hub}).expect(0).json()
    assert {each["state"] for each in again["files"]} == {"present"} and again["fetched_bytes"] == 0
    assert not any("/resolve/" in line or "/blobs/" in line for line in servers.requests()[begin:])


def test_a_hub_that_wants_a_token_says_so(servers: ModelServers, tmp_path: Path) -> None:
    error = refused("org/tiny", tmp_path / "m", endpoint=servers.hub)
    assert (error.code, error.found.endswith("answers 401: it wants a token")) == (ExitCode.NO, True)
    assert any("--token-file" in step for step in error.next_steps)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("location", ["", "/norange", "/few", "/json", "/untold"])
def test_a_directory_comes_whole_from_servers_of_many_kinds(
    servers: ModelServers, tmp_path: Path, location: str
) -> None:
    found = pulled(f"{servers.files}{location}/", tmp_path / "m")
    assert_whole(tmp_path / "m")
    assert states(found) == dict.fromkeys(sorted(WANTED), "fetched")
    assert found.fetched_bytes == sum(len(FILES[path]) for path in WANTED)
    if location == "":  # several connections at once, with pieces of the large file
        ranges = {line.partition("range=")[2] for line in servers.requests() if f"GET /{LARGE} 206" in line}
        assert len(ranges) == 3


def test_a_dry_run_says_what_would_come_and_writes_nothing(servers: ModelServers, tmp_path: Path) -> None:
    found = pulled(f"{servers.files}/", tmp_path / "m", dry_run=True, include=("*.json",))
    assert states(found) == {"config.json": "missing", "sub/tokenizer.json": "missing"}
    assert found.fetched_bytes == 0 and not (tmp_path / "m").exists()


def test_connections_that_are_cut_go_on_where_they_stopped(servers: ModelServers, tmp_path: Path) -> None:
    port = int(servers.files.rpartition(":")[2])
    cuts = [0, *[1_500_000] * 12]
    with CuttingProxy(port, cuts).running() as proxy:
        found = pulled(f"http://127.0.0.1:{proxy.port}/{LARGE}", tmp_path / "m", jobs=3)
        assert proxy.connections >= 12
    assert_whole(tmp_path / "m", {LARGE: FILES[LARGE]})
    assert found.fetched_bytes == len(FILES[LARGE])  # no byte twice


def test_a_connection_that_stalls_is_given_up_and_made_anew(servers: ModelServers, tmp_path: Path) -> None:
    port = int(servers.files.rpartition(":")[2])
    with CuttingProxy(port, [10**9, 3_000_000], stall=True).running() as proxy:
        began = time.monotonic()
        pulled(f"http://127.0.0.1:{proxy.port}/{LARGE}", tmp_path / "m", jobs=1, stall_seconds=1.0)
        assert 1 < time.monotonic() - began < 10
    assert_whole(tmp_path / "m", {LARGE: FILES[LARGE]})


def killed(onecat: Onecat, number: signal.Signals, *arguments: str | Path, at_least: int = 300_000) -> tuple[int, str]:
    """Run the command, and send it a signal when a journal promises some bytes. Its exit code and standard error."""
    directory = Path(arguments[1])
    process = subprocess.Popen(
        onecat.argv("model", "pull", *arguments),
        env=onecat.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def promised() -> int:
        journals = list(directory.glob(".onecat-pull/*-*.json"))
        ranges = [pair for each in journals for pair in json.loads(each.read_text())["ranges"]]
        return sum(end - start for start, end in ranges)

    try:
        wait_until(lambda: promised() >= at_least)
    finally:
        process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors


def test_a_killed_pull_goes_on_from_its_journal(servers: ModelServers, onecat: Onecat, tmp_path: Path) -> None:
    target = tmp_path / "m"
    code, _ = killed(onecat, signal.SIGKILL, f"{servers.files}/slow/{LARGE}", target, "--jobs", "2")
    assert code == -signal.SIGKILL
    assert json.loads((target / ".onecat-pull/state.json").read_text())["complete"] is False
    assert not (target / LARGE).exists()
    found = pulled(f"{servers.files}/{LARGE}", target)
    assert states(found) == {LARGE: "resumed"}
    assert found.fetched_bytes <= len(FILES[LARGE]) - 300_000
    assert_whole(target, {LARGE: FILES[LARGE]})


def test_a_file_that_changed_since_the_interrupted_run_begins_anew(nginx: str, onecat: Onecat, tmp_path: Path) -> None:
    with running_model_servers(nginx, tmp_path, {LARGE: FILES[LARGE]}) as own:
        code, errors = killed(onecat, signal.SIGINT, f"{own.files}/slow/{LARGE}", tmp_path / "m")
        assert code == 130
        assert re.search(r"of unfinished files are kept in .*/m/\.onecat-pull; the same command goes on", errors)
        changed = FILES[LARGE][::-1]
        (own.root / LARGE).write_bytes(changed)
        os.utime(own.root / LARGE, (1, 1))
        found = pulled(f"{own.files}/{LARGE}", tmp_path / "m")
        assert states(found) == {LARGE: "fetched"}
        assert_whole(tmp_path / "m", {LARGE: changed})

        # ... and once more in a whole directory: what a pull put there may be replaced, what a person changed may not.
        (own.root / LARGE).write_bytes(FILES[LARGE])
        assert states(pulled(f"{own.files}/{LARGE}", tmp_path / "m")) == {LARGE: "fetched"}
        (tmp_path / "m" / LARGE).write_bytes(b"mine")
        error = refused(f"{own.files}/{LARGE}", tmp_path / "m")
        assert "is there and is not what the source has" in error.found
        assert (tmp_path / "m" / LARGE).read_bytes() == b"mine"
        pulled(f"{own.files}/{LARGE}", tmp_path / "m", replace=True)
        assert_whole(tmp_path / "m", {LARGE: FILES[LARGE]})


def test_a_second_pull_into_the_same_directory_is_refused(
    servers: ModelServers, onecat: Onecat, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        onecat.argv("model", "pull", f"{servers.files}/slow/{LARGE}", tmp_path / "m", "--quiet"),
        env=onecat.environment(),
    )
    try:
        wait_until((tmp_path / "m/.onecat-pull/state.json").exists)
        error = refused(f"{servers.files}/", tmp_path / "m")
        assert error.found == f"another onecat (process {process.pid}) pulls into this directory"
    finally:
        process.kill()
        process.wait()
    pulled(f"{servers.files}/", tmp_path / "m")
    assert_whole(tmp_path / "m")


def test_a_wrong_checksum_removes_the_file_and_says_so(servers: ModelServers, tmp_path: Path) -> None:
    wrong = tmp_path / "SHA256SUMS"
    wrong.write_text(f"{'0' * 64}  {LARGE}\n")
    error = refused(f"{servers.files}/", tmp_path / "m", manifest=wrong)
    assert error.code == ExitCode.ROLLED_BACK
    assert error.found == f"{LARGE} has another SHA-256 than the source tells, and was removed"
    assert f"found {hashlib.sha256(FILES[LARGE]).hexdigest()}" in error.details
    assert not (tmp_path / "m" / LARGE).exists()
    assert list(tmp_path.glob("m/.onecat-pull/*.partial")) == []
    wrong.write_text(f"{hashlib.sha256(FILES[LARGE]).hexdigest()}  {LARGE}\n")
    found = pulled(f"{servers.files}/", tmp_path / "m", manifest=wrong)
    assert {each.path: each.checked for each in found.files}[LARGE] == "sha256"
    assert_whole(tmp_path / "m")


def test_a_manifest_is_a_source_and_its_checksums_count(nginx: str, tmp_path: Path) -> None:
    sums = "".join(f"{hashlib.sha256(FILES[path]).hexdigest()}  {path}\n" for path in ("config.json", "empty.txt"))
    files = {**FILES, "SHA256SUMS": sums.encode()}
    with running_model_servers(nginx, tmp_path, files) as own:
        found = pulled(f"{own.files}/SHA256SUMS", tmp_path / "m")
        assert {each.path: each.checked for each in found.files} == {"config.json": "sha256", "empty.txt": "sha256"}
        (own.root / "config.json").write_bytes(b"{}")
        error = refused(f"{own.files}/SHA256SUMS", tmp_path / "other")
        assert error.found == "config.json has another SHA-256 than the source tells, and was removed"


def test_what_does_not_fit_is_refused_before_anything_is_fetched(
    servers: ModelServers, tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(8)
    error = refused(f"{servers.files}/", disk / "m")
    assert error.code == ExitCode.NO and error.found.startswith("not enough room: 20.0 MB are to be fetched")
    assert [each.name for each in disk.rglob("*.safetensors")] == []
    assert margin(20 * MEGABYTE) == 2**20


def test_a_disk_that_fills_up_keeps_what_came_and_goes_on_elsewhere_once_there_is_room(
    servers: ModelServers, tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(16)
    error = refused(f"{servers.files}/untold/", disk / "m")
    assert (error.found, error.code) == ("the disk is full", ExitCode.NEEDS_PERSON)
    kept = re.match(r"(\d+\.\d) MB of unfinished files are kept in ", error.details[0])
    assert kept is not None and 10 < float(kept[1]) < 17
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    found = pulled(f"{servers.files}/untold/", disk / "m")
    assert states(found)[LARGE] == "resumed" and found.fetched_bytes < 10 * MEGABYTE
    assert_whole(disk / "m")


def test_a_server_that_has_too_much_to_do_is_left_alone_after_a_while(servers: ModelServers, tmp_path: Path) -> None:
    error = refused(f"{servers.files}/broken/model.safetensors", tmp_path / "m")
    assert error.code == ExitCode.UNREACHABLE
    assert error.found == f"{servers.files}/broken/model.safetensors answers 503, 4 times in a row"


def test_a_server_that_counts_requests_is_asked_again_when_it_says_and_everything_comes(
    servers: ModelServers, tmp_path: Path
) -> None:
    told = Told()
    began, begin = time.monotonic(), len(servers.requests())
    pulled(f"{servers.files}/limited/", tmp_path / "m", told, include=("*.json",))
    assert_whole(tmp_path / "m", {path: FILES[path] for path in ("config.json", "sub/tokenizer.json")})
    refusals = sum(" 429 " in line for line in servers.requests()[begin:])
    assert refusals and any(re.search(r"answers 429; trying again in 1 s", line) for line in told.lines)
    assert 1 <= time.monotonic() - began < 20


def test_nobody_there_is_told_plainly(tmp_path: Path, free_port: Callable[[], int]) -> None:
    error = refused(f"http://127.0.0.1:{free_port()}/m/", tmp_path / "m")
    assert error.code == ExitCode.UNREACHABLE and "127.0.0.1: [Errno 111] Connection refused" in error.found


def authority(directory: Path) -> tuple[Path, Path]:
    """A certificate of a private authority for `localhost`, and its key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_a_private_authority_is_trusted_by_ssl_cert_file_and_not_before(
    nginx: str, onecat: Onecat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = authority(tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    tls = f"ssl_certificate {certificate}; ssl_certificate_key {key};"
    tls += " location = /away { return 302 http://127.0.0.1/x; }"
    with running_model_servers(nginx, tmp_path, FILES, tls) as own:
        error = refused(f"{own.files}/", tmp_path / "m")
        assert error.code == ExitCode.UNREACHABLE
        assert error.found == "localhost cannot be trusted: self-signed certificate"
        assert any("SSL_CERT_FILE=" in step for step in error.next_steps)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        pulled(f"{own.files}/", tmp_path / "m")
        assert_whole(tmp_path / "m")
        error = refused(f"{own.files}/away", tmp_path / "other")
        assert "redirects to plain HTTP" in error.found
