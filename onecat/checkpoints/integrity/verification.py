"""All that can be said of whether a model directory is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from onecat.checkpoints.integrity.claims import faults_of_claims
from onecat.checkpoints.integrity.comparison import check_without_hashing, compare, tasks_of, without_entry
from onecat.checkpoints.integrity.contents import Contents, read_contents
from onecat.checkpoints.integrity.hash_state import HashState
from onecat.checkpoints.integrity.hashing import Task, hash_files
from onecat.checkpoints.integrity.manifests import Manifest, find_manifests, read_manifest
from onecat.checkpoints.integrity.manifests.text import is_text_manifest
from onecat.checkpoints.integrity.progress import Counter, Show
from onecat.checkpoints.integrity.records import SEVERITIES, Fault, Verification
from onecat.checkpoints.integrity.registry import rules
from onecat.checkpoints.integrity.scales import Found, Wanted, faults_of_scales, faults_of_weights, floats, scales
from onecat.checkpoints.integrity.values import scan
from onecat.checkpoints.numbering import counted
from onecat.checkpoints.other_kinds import other_kind
from onecat.checkpoints.unfinished import explained

MOST_SCALE_BYTES = 4 << 30
SMALL_SCALE_BYTES = 1 << 12
"""Scales are read without being asked up to so many bytes in all; beyond, only those of whole tensors and channels."""


@dataclass(frozen=True)
class Request:
    """What to verify. Without anything, what headers, names, sizes and scales tell.

    manifests: lists of checksums beside those in the directory. hash: read all files and compare. hash_all: hash
    files that no list names as well. weights: read all floats for NaN. jobs: files read at once.
    cache: where finished checksums are kept until the run is whole, None for nowhere.
    """

    directory: Path
    manifests: tuple[Path, ...] = ()
    hash: bool = False
    hash_all: bool = False
    weights: bool = False
    jobs: int = 1
    cache: Path | None = None


def verify(request: Request, show: Show = lambda progress: None) -> Verification:
    """Verify a model directory; everything that is wrong with it is told at once.

    Raises OnecatError when there is no such directory, or a manifest that was asked for is none; OSError when a file
    cannot be read to its end. Interrupted, it keeps the checksums of finished files for the next run.
    """
    contents = read_contents(request.directory)
    faults = list(static_faults(contents))
    faults += faults_of_claims(request.directory, faults)
    checked = [_headers_told(contents), "config.json against the tensors, as `onecat model inspect` does"]
    skipped: list[str] = []
    faults += _scanned(contents, request, show, checked, skipped)
    manifests = (*map(read_manifest, request.manifests), *find_manifests(request.directory, contents.sizes))
    still_to_come = explained(request.directory)
    for manifest in manifests:
        faults += (each for each in check_without_hashing(manifest, contents.sizes) if each.code not in still_to_come)
        checked.append(
            f"{manifest.name}: {counted(len(manifest.entries), 'checksum')} ({manifest.form}), files and sizes compared"
        )
    faults += without_entry(manifests, contents.sizes)
    digests: Mapping[Task, str] = {}
    if request.hash or request.hash_all:
        digests, unread = _hashed(contents, manifests, request, show, checked)
        faults += unread
        for manifest in manifests:
            faults += compare(manifest, digests)
    elif manifests:
        skipped.append("no file was hashed: --hash compares the checksums")
    else:
        skipped.append("no checksums: there is no SHA256SUMS; --manifest FILE gives one")
    faults.sort(key=lambda fault: SEVERITIES.index(fault.severity))
    return Verification(
        directory=str(request.directory),
        faults=tuple(dict.fromkeys(faults)),
        checked=tuple(checked),
        skipped=tuple(skipped),
        weight_files=len(contents.headers),
        tensors=sum(len(header.tensors) for header in contents.headers.values()),
        weight_bytes=sum(header.data_bytes for header in contents.headers.values()),
        digests={task.name: digest for task, digest in digests.items() if task.algorithm == "sha256"},
    )


def static_faults(contents: Contents) -> Iterator[Fault]:
    """What names, sizes, headers and documents tell, without reading values; the worst are not first."""
    other = other_kind(contents.directory)
    if other is not None:
        told = other.problem
        yield Fault(told.code, told.severity, told.text, told.where, told.fix)
    told_once = explained(contents.directory) | (other.explains if other is not None else frozenset())
    for rule in rules():
        yield from (fault for fault in rule(contents) if fault.code not in told_once)


def _headers_told(contents: Contents) -> str:
    tensors = sum(len(header.tensors) for header in contents.headers.values())
    files = counted(len(contents.headers), "weight file")
    return f"{files} with {counted(tensors, 'tensor')}: headers, sizes, index, shapes of scales"


def _scanned(
    contents: Contents, request: Request, show: Show, checked: list[str], skipped: list[str]
) -> Iterator[Fault]:
    wanted = scales(contents)
    if not request.weights and (length := _bytes(wanted)) > MOST_SCALE_BYTES:
        told = f"{length / 1e9:.0f} GB of block scales were not read for NaN: --weights reads them with all others"
        skipped.append(told)
        wanted = [
            (name, header, [each for each in those if each[0].end - each[0].begin <= SMALL_SCALE_BYTES])
            for name, header, those in wanted
        ]
    if wanted:
        yield from faults_of_scales(_scan(contents, wanted, request, show, "scales", signs=True))
        checked.append(f"{counted(_count(wanted), 'scale')}: no other NaN, infinity or sign than told")
    if not request.weights:
        skipped.append("weights were not read for NaN: --weights does it")
        return
    wanted = floats(contents)
    yield from faults_of_weights(_scan(contents, wanted, request, show, "weights", signs=False))
    checked.append(f"{counted(_count(wanted), 'tensor')} of floats: no other NaN or infinity than told")


def _scan(contents: Contents, wanted: Wanted, request: Request, show: Show, what: str, *, signs: bool) -> list[Found]:
    counter = Counter(f"reading {what}", _bytes(wanted), show)
    return list(scan(contents.directory, wanted, signs=signs, jobs=request.jobs, tell=counter.add))


def _hashed(
    contents: Contents, manifests: tuple[Manifest, ...], request: Request, show: Show, checked: list[str]
) -> tuple[dict[Task, str], list[Fault]]:
    tasks = tasks_of((entry for manifest in manifests for entry in manifest.entries), contents.sizes)
    if request.hash_all or not tasks:
        others = [name for name in contents.sizes if contents.sizes[name] >= 0 and is_content(name)]
        tasks = tuple(dict.fromkeys([*tasks, *(Task(name) for name in others)]))
    tasks = tuple(sorted(tasks, key=lambda task: -contents.sizes[task.name]))
    counter = Counter("hashing", sum(contents.sizes[task.name] for task in tasks), show)
    state = HashState(None) if request.cache is None else HashState.for_directory(contents.directory, request.cache)
    digests: dict[Task, str] = {}
    faults = []
    kept = 0
    try:
        with closing(hash_files(contents.directory, tasks, state, jobs=request.jobs, tell=counter.add)) as results:
            for done in results:
                if done.digest is None:
                    text, fix = f"could not be hashed: {done.error}", "check the disk and its kernel log"
                    faults.append(Fault("unreadable", "fail", text, done.task.name, fix))
                else:
                    digests[done.task] = done.digest
                    kept += done.kept
    except BaseException:
        state.save()
        raise
    state.forget()
    told = f", {kept} of them by an earlier run that was interrupted" if kept else ""
    seconds = counter.now().seconds
    checked.append(f"{counted(len(digests), 'file')} hashed{told}, {counter.now().done} bytes in {seconds:.1f} s")
    return digests, faults


def is_content(name: str) -> bool:
    """Whether a file belongs to the checkpoint: no list of checksums, nothing that is hidden."""
    return not any(part.startswith(".") for part in name.split("/")) and not is_text_manifest(name)


def _bytes(wanted: Wanted) -> int:
    return sum(tensor.end - tensor.begin for _, _, tensors in wanted for tensor, _ in tensors)


def _count(wanted: Wanted) -> int:
    return sum(len(tensors) for _, _, tensors in wanted)
