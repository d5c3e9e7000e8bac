"""The files of the model, on the host."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.live.preflight.look import Unknown
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject

if TYPE_CHECKING:
    from onecat.checkpoints.integrity import Fault, Manifest

MOST_JOBS = 8
HASH_SECONDS = 6 * 3600.0
"""Longest time that hashing on another host may take: 6 h at 100 MB/s are 2 TB."""


@dataclass(frozen=True)
class ModelSeen:
    """faults: what is wrong with the directory. manifests: lists of checksums that lie there, each with how many it
    holds. hashed: how many files were compared with their checksum. weight_files, tensors, weight_bytes: of the files
    with a whole header. left_out: what was not looked at, in words."""

    directory: str
    faults: tuple[Fault, ...]
    manifests: tuple[tuple[str, int], ...]
    hashed: int
    weight_files: int
    tensors: int
    weight_bytes: int
    left_out: tuple[str, ...] = ()


@observer(ModelSeen, place=80)
def observe_model(subject: Subject) -> ModelSeen | Unknown:
    """`onecat model verify` on this machine; on another one the same rules over headers and small files, and sha256sum
    there."""
    directory = subject.look.plan.model_directory
    if subject.machine.is_local:
        return _here(directory, subject)
    return _there(directory, subject)


def _here(directory: str, subject: Subject) -> ModelSeen:
    from onecat.checkpoints.integrity import Request, find_manifests, read_contents, verify

    contents = read_contents(Path(directory))
    manifests = find_manifests(Path(directory), contents.sizes)
    hashing = bool(manifests) and not subject.quick
    if hashing:
        _tell(subject, manifests, sum(contents.sizes[name] for name in contents.sizes if contents.sizes[name] > 0))
    jobs = min(len(os.sched_getaffinity(0)), MOST_JOBS)
    found = verify(Request(Path(directory), hash=hashing, jobs=jobs))
    return ModelSeen(
        directory,
        found.faults,
        tuple((each.name, len(each.entries)) for each in manifests),
        len(found.digests) if hashing else 0,
        found.weight_files,
        found.tensors,
        found.weight_bytes,
    )


def _there(directory: str, subject: Subject) -> ModelSeen:
    from onecat.checkpoints.integrity import find_manifests, read_contents, static_faults
    from onecat.checkpoints.integrity.comparison import check_without_hashing, compare, tasks_of
    from onecat.checkpoints.integrity.hashing import Task
    from onecat.deploy.model_files import mirror_of

    left_out = ["the values of scales were not read on another host: onecat model verify there does it"]
    with mirror_of(subject.machine, directory, with_small_files=True) as mirror:
        contents = read_contents(mirror)
        faults = list(static_faults(contents))
        manifests = find_manifests(mirror, contents.sizes)
        digests: dict[Task, str] = {}
        for manifest in manifests:
            faults += check_without_hashing(manifest, contents.sizes)
        tasks = tasks_of((entry for manifest in manifests for entry in manifest.entries), contents.sizes)
        if tasks and not subject.quick:
            by_sha256 = [each for each in tasks if each.algorithm == "sha256"]
            if len(by_sha256) < len(tasks):
                left_out.append(f"{len(tasks) - len(by_sha256)} small files with git's own ids were not hashed there")
            _tell(subject, manifests, sum(contents.sizes[each.name] for each in by_sha256))
            digests = {each: digest for each in by_sha256 if (digest := _sha256(subject, f"{directory}/{each.name}"))}
            for manifest in manifests:
                faults += compare(manifest, digests)
    headers = contents.headers.values()
    return ModelSeen(
        directory,
        tuple(dict.fromkeys(faults)),
        tuple((each.name, len(each.entries)) for each in manifests),
        len(digests),
        len(contents.headers),
        sum(len(each.tensors) for each in headers),
        sum(each.data_bytes for each in headers),
        tuple(left_out),
    )


def _sha256(subject: Subject, path: str) -> str | None:
    """Raises OSError where the host cannot read it."""
    done = subject.machine.run(["sha256sum", "--", path], timeout=HASH_SECONDS)
    if done.exit_code != 0:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"sha256sum ended with {done.exit_code}"
        raise OSError(0, reason, shlex.quote(path))
    # A name with a backslash or a newline makes the line begin with a backslash (sha256sum(1)).
    return done.stdout.decode("utf-8", "replace").lstrip("\\").split()[0]


def _tell(subject: Subject, manifests: tuple[Manifest, ...], size: int) -> None:
    names = ", ".join(each.name for each in manifests)
    subject.tell(f"comparing {size / 1e9:.1f} GB of the model with {names}" if size > 10**8 else f"reading {names}")
