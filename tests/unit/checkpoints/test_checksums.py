"""Lists of checksums in all forms, and hashing that goes on after an interruption."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints.integrity import Request, find_manifests, read_manifest, text_of, verify
from onecat.checkpoints.integrity.hash_state import HashState, stamp_of
from onecat.checkpoints.integrity.hashing import Task, hash_files
from onecat.checkpoints.integrity.manifests.text import parse_text
from onecat.errors import OnecatError
from tests.unit.checkpoints.checkpoint_files import write_checkpoint

DIGEST = "0a" * 32


def entries(text: str, name: str = "SHA256SUMS") -> dict[str, str]:
    manifest = parse_text(text, name)
    assert manifest.faults == ()
    return {entry.path: entry.digest for entry in manifest.entries}


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (f"{DIGEST}  model.safetensors", "model.safetensors"),
        (f"{DIGEST} *model.safetensors", "model.safetensors"),
        (f"{DIGEST.upper()}  ./a/b.json", "a/b.json"),
        (f"{DIGEST}\tname with blanks", "name with blanks"),
        (f"SHA256 (model.safetensors) = {DIGEST}", "model.safetensors"),
        (f"SHA-256(a (1).json)= {DIGEST}", "a (1).json"),
        (f"\\{DIGEST}  new\\nline\\\\", "new\nline\\"),
        (f"# a comment\n\n{DIGEST}  x\r\n", "x"),
    ],
)
def test_lines_as_sha256sum_and_bsd_write_them(line: str, path: str) -> None:
    assert entries(line) == {path: DIGEST}


def test_a_file_beside_a_weight_file_may_hold_its_checksum_alone() -> None:
    assert entries(DIGEST + "\n", "model.safetensors.sha256") == {"model.safetensors": DIGEST}


@pytest.mark.parametrize(
    ("digest", "told"),
    [
        ("0a" * 33, "has 66 hex digits; a SHA-256 has 64"),
        ("0a" * 20, "has 40 hex digits (a SHA-1 or git id?); a SHA-256 has 64"),
        ("0a" * 16, "has 32 hex digits (an MD5?); a SHA-256 has 64"),
        ("0a" * 64, "has 128 hex digits (a SHA-512?); a SHA-256 has 64"),
        ("0a" * 31 + "xy", "has 64 characters and 'x' among them; a SHA-256 has 64 hex digits"),
    ],
)
def test_a_checksum_that_is_no_sha256_is_told_by_what_is_wrong_with_it(digest: str, told: str) -> None:
    manifest = parse_text(f"{DIGEST}  good\n{digest}  model.safetensors\n", "SHA256SUMS")
    assert [entry.path for entry in manifest.entries] == ["good"]
    assert [(fault.code, fault.where) for fault in manifest.faults] == [("bad-checksum", "SHA256SUMS:2")]
    assert manifest.faults[0].text == f"the checksum of model.safetensors {told}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no checksum"),
        ("model.safetensors", "is no checksum and file name"),
        (f"MD5 (x) = {DIGEST[:32]}", "by MD5, which is not compared"),
        (f"{DIGEST}  x\n{'0b' * 32}  x", "another checksum than a line above"),
        ("\x1b[31m", "is no checksum and file name: '\\x1b[31m'"),
    ],
)
def test_lines_that_are_no_checksums(text: str, told: str) -> None:
    (fault,) = parse_text(text, "SHA256SUMS").faults
    assert (fault.code, told in fault.text) == ("bad-manifest", True)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_entries_or_faults(text: str) -> None:
    manifest = parse_text(text, "x")
    assert all(len(entry.digest) == 64 for entry in manifest.entries)
    assert manifest.entries or manifest.faults


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z\\\n][a-z\\\n .*]{0,8}[a-z]", fullmatch=True), st.just(DIGEST), min_size=1))
def test_what_is_written_is_read_again(digests: dict[str, str]) -> None:
    assert entries(text_of(digests)) == digests


LISTINGS: dict[str, Any] = {
    "tree of Hugging Face": [
        {"type": "directory", "path": "x", "oid": "0b" * 20},
        {"type": "file", "path": "model.safetensors", "size": 5, "oid": "0c" * 20, "lfs": {"oid": DIGEST, "size": 5}},
        {"type": "file", "path": "config.json", "size": 3, "oid": "0b" * 20},
    ],
    "model of Hugging Face": {
        "siblings": [
            {"rfilename": "model.safetensors", "size": 5, "blobId": "0c" * 20, "lfs": {"sha256": DIGEST, "size": 5}},
            {"rfilename": "config.json", "size": 3, "blobId": "0b" * 20},
        ]
    },
}


@pytest.mark.parametrize("case", LISTINGS)
def test_listings_of_hubs_are_lists_of_checksums(case: str, tmp_path: Path) -> None:
    path = tmp_path / "listing.json"
    path.write_text(json.dumps(LISTINGS[case]))
    found = {entry.path: (entry.algorithm, entry.digest, entry.size) for entry in read_manifest(path).entries}
    assert found == {"model.safetensors": ("sha256", DIGEST, 5), "config.json": ("git-blob", "0b" * 20, 3)}


def test_a_listing_of_modelscope_and_one_with_a_wrong_digest(tmp_path: Path) -> None:
    path = tmp_path / "listing.json"
    path.write_text(json.dumps({"Data": {"Files": [{"Path": "a", "Type": "blob", "Size": 5, "Sha256": DIGEST}]}}))
    assert [(entry.path, entry.size) for entry in read_manifest(path).entries] == [("a", 5)]
    path.write_text(json.dumps([{"path": "a", "lfs": {"oid": DIGEST + "00"}}]))
    assert "66 hex digits" in read_manifest(path).faults[0].text


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_list_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(OnecatError, match="the manifest"):
        read_manifest(tmp_path / "x")


def test_what_huggingface_hub_left_is_a_list_of_checksums(tmp_path: Path) -> None:
    content = b"text"
    blob = hashlib.sha1(b"blob 4\0" + content).hexdigest()
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / blob).write_bytes(content)
    (snapshot / "notes.txt").symlink_to(f"../../blobs/{blob}")
    download = snapshot / ".cache" / "huggingface" / "download"
    download.mkdir(parents=True)
    (download / "model.safetensors.metadata").write_text(f"commit\n{DIGEST}\n1.0\n")
    names = ["notes.txt", ".cache/huggingface/download/model.safetensors.metadata"]
    (manifest,) = find_manifests(snapshot, names)
    found = {(entry.path, entry.algorithm, entry.digest) for entry in manifest.entries}
    assert found == {("notes.txt", "git-blob", blob), ("model.safetensors", "sha256", DIGEST)}
    assert [each.digest for each in hash_files(snapshot, [Task("notes.txt", "git-blob")], HashState(None), jobs=1)] == [
        blob
    ]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "m", {"a": ("F32", [2], None)})


def write_sums(directory: Path, **changes: str) -> None:
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir() if path.suffix != ""
    }
    (directory / "SHA256SUMS").write_text(text_of({**digests, **changes}))


def test_files_are_compared_with_their_checksums(checkpoint: Path) -> None:
    write_sums(checkpoint)
    assert verify(Request(checkpoint, hash=True)).faults == ()
    write_sums(checkpoint, **{"model.safetensors": DIGEST, "gone.json": DIGEST})
    (checkpoint / "new.json").write_text("{}")
    found = {(fault.code, fault.severity, fault.where) for fault in verify(Request(checkpoint, hash=True)).faults}
    assert found == {
        ("wrong-checksum", "fail", "model.safetensors"),
        ("missing-file", "fail", "gone.json"),
        ("no-checksum", "info", "new.json"),
    }
    without = verify(Request(checkpoint))
    assert {fault.code for fault in without.faults} == {"missing-file", "no-checksum"}
    assert any("--hash" in each for each in without.skipped)


def test_a_list_cannot_make_onecat_read_outside_of_the_directory(checkpoint: Path) -> None:
    (checkpoint.parent / "secret").write_text("x")
    (checkpoint / "SHA256SUMS").write_text(f"{DIGEST}  ../secret\n{DIGEST}  /etc/hostname\n")
    found = verify(Request(checkpoint, hash=True))
    assert [fault.code for fault in found.faults if fault.severity == "fail"] == ["missing-file", "missing-file"]


def test_sizes_of_a_listing_are_compared_without_hashing(checkpoint: Path, tmp_path: Path) -> None:
    listing = tmp_path / "listing.json"
    listing.write_text(json.dumps([{"path": "model.safetensors", "size": 3, "lfs": {"oid": DIGEST}}]))
    found = verify(Request(checkpoint, manifests=(listing,)))
    assert [fault.code for fault in found.faults] == ["wrong-size", "no-checksum"]


def files(directory: Path, count: int) -> list[Task]:
    directory.mkdir(exist_ok=True)
    for number in range(count):
        (directory / f"{number}").write_bytes(bytes([number]) * 100)
    return [Task(str(number)) for number in range(count)]


def test_an_interrupted_run_goes_on_with_what_is_unchanged_and_forgets_when_whole(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    tasks = files(directory, 4)
    state = HashState.for_directory(directory, tmp_path / "cache")
    running = hash_files(directory, tasks, state, jobs=1)
    done = {next(running).task.name, next(running).task.name}
    running.close()
    state.save()
    changed = sorted(done)[0]
    (directory / changed).write_bytes(b"new")
    again = HashState.for_directory(directory, tmp_path / "cache")
    results = {each.task.name: each for each in hash_files(directory, tasks, again, jobs=1)}
    kept = {name for name, each in results.items() if each.kept}
    assert kept >= done - {changed} and changed not in kept
    assert all(
        each.digest == hashlib.sha256((directory / name).read_bytes()).hexdigest() for name, each in results.items()
    )
    again.forget()
    assert len(HashState.for_directory(directory, tmp_path / "cache")) == 0


def test_a_whole_run_leaves_nothing_so_that_the_next_reads_again(checkpoint: Path, tmp_path: Path) -> None:
    write_sums(checkpoint)
    request = Request(checkpoint, hash=True, cache=tmp_path / "cache")
    assert verify(request).is_fine
    path = checkpoint / "model.safetensors"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [fault.code for fault in verify(request).faults] == ["wrong-checksum"]


def test_ctrl_c_keeps_what_is_finished(checkpoint: Path, tmp_path: Path) -> None:
    request = Request(checkpoint, hash=True, cache=tmp_path / "cache", jobs=1)
    calls = []

    def interrupt(progress: Any) -> None:
        calls.append(progress.done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(request, interrupt)
    # One file after another: two were finished before the third, and that one is not.
    kept = HashState.for_directory(checkpoint, tmp_path / "cache")
    assert 2 <= len(kept) < 5
    told = f"{len(kept)} of them by an earlier run that was interrupted"
    assert any(told in each for each in verify(request).checked)


def test_files_that_were_finished_and_not_asked_for_are_kept_when_it_is_broken_off(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    tasks = files(directory, 4)
    state = HashState.for_directory(directory, tmp_path / "cache")
    read, all_read = [], threading.Event()

    def tell(count: int) -> None:
        read.append(count)
        if len(read) == len(tasks):
            all_read.set()

    results = hash_files(directory, tasks, state, jobs=1, tell=tell)
    next(results)
    assert all_read.wait(10)
    results.close()
    for task in tasks[:3]:
        stamp = stamp_of(directory / task.name)
        assert stamp is not None and state.get(task.name, task.algorithm, stamp) is not None


def test_a_damaged_state_only_costs_time(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    tasks = files(directory, 1)
    for content in ("{", "[]", '{"schema": "onecat.hash-state/1", "files": []}', "[" * 100_000):
        state = HashState.for_directory(directory, tmp_path / "cache")
        (tmp_path / "cache" / "hashes").mkdir(parents=True, exist_ok=True)
        stamp = stamp_of(directory / "0")
        assert stamp is not None
        state.put("0", "sha256", stamp, DIGEST)
        state.save()
        next((tmp_path / "cache" / "hashes").iterdir()).write_text(content)
        again = HashState.for_directory(directory, tmp_path / "cache")
        assert [each.kept for each in hash_files(directory, tasks, again, jobs=1)] == [False]


def test_a_stop_ends_the_reading_of_all_threads(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    tasks = files(tmp_path / "m", 3)
    assert list(hash_files(tmp_path / "m", tasks, HashState(None), jobs=2, stop=stop)) == []


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_hashed(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    tasks = [*files(directory, 1), Task("missing")]
    results = {each.task.name: each.error for each in hash_files(directory, tasks, HashState(None), jobs=2)}
    assert results == {"0": None, "missing": "No such file or directory"}
