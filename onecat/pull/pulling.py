"""A whole pull: list, choose, see what is there and what fits, fetch, verify, and put everything in its place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onecat.checkpoints.numbering import counted
from onecat.errors import ExitCode, OnecatError
from onecat.files import write_atomically
from onecat.own_files import check_writable
from onecat.pull import manifest
from onecat.pull.asking import Asker
from onecat.pull.connection import Connection
from onecat.pull.credentials import token_for
from onecat.pull.crew import FULL, Crew
from onecat.pull.crowd import Crowd
from onecat.pull.listing import list_source
from onecat.pull.names import check_together
from onecat.pull.part import Part, allocated
from onecat.pull.places import check_places, ignores_case, state_directory
from onecat.pull.present import look, refuse_foreign
from onecat.pull.records import FileState, Listing, Progress, Pulled, PulledFile, PullRequest, RemoteFile
from onecat.pull.retries import RetryPolicy
from onecat.pull.selection import Selection, select
from onecat.pull.sources import parse_source
from onecat.pull.speed import speeds
from onecat.pull.state import PullState, Recorded, note_finished, only_pull, read_state, write_state
from onecat.pull.transfer import Transfer
from onecat.pull.web_pages import BEGINNING, refuse_web_page
from onecat.space import check_room, gigabytes, room

SMALL_BYTES = 8 * 2**20
"""Files below this come first: a missing licence or a wrong token shows before the long ones."""
_TICK_SECONDS = 0.1
_POLICY = RetryPolicy()
_FIRST_ATTEMPTS = 4
"""For the listing: a person waits there, and may have mistyped a name."""


@dataclass(frozen=True)
class Teller:
    """Where a pull tells what it does. say: one line; show: called several times a second while bytes come."""

    say: Callable[[str], None]
    show: Callable[[Progress], None]


def pull(request: PullRequest, teller: Teller, policy: RetryPolicy = _POLICY) -> Pulled:
    """Fetch a model into a directory; what is there and whole is not fetched again.

    policy: when failed requests are tried again.

    Raises OnecatError: wrong options (exit code 2), a refusal of the source or no room (1), nobody answers (3), a wrong
    checksum or a second pull (4), a disk that filled up (5). A KeyboardInterrupt keeps the parts, as a kill does.
    """
    began = time.monotonic()
    source = parse_source(
        request.source, request.revision, request.endpoint or os.environ.get("HF_ENDPOINT"), request.insecure_http
    )
    token = token_for(request, source, os.environ, teller.say)
    if not request.dry_run:
        check_writable(request.directory)
    if request.directory.exists() and not request.directory.is_dir():
        raise OnecatError(f"{request.directory} is no directory", expected="a directory, or a new name")
    connection = Connection(source.origin, token, request.stall_seconds, request.jobs, request.insecure_http)
    with contextlib.closing(connection):
        listing = list_source(
            source, Asker(connection, replace(policy, attempts=_FIRST_ATTEMPTS), teller.say), request.manifest
        )
        chosen = select(listing.files, request.include, request.exclude)
        check_places(request.directory, [each.path for each in chosen.files])
        if request.dry_run:
            return _dry(request, listing, chosen, teller, began)
        request.directory.mkdir(parents=True, exist_ok=True)
        with only_pull(request.directory, teller.say):
            return _Run(request, listing, chosen, connection, policy, teller).fetch(began)


def _dry(request: PullRequest, listing: Listing, chosen: Selection, teller: Teller, began: float) -> Pulled:
    state = read_state(request.directory) if request.directory.is_dir() else None
    seen = look(request.directory, chosen.files, state, not request.replace, teller.say)
    files = []
    for file in chosen.files:
        row = seen.files.get(file.path)
        files.append(_result(file, row, "present") if row else PulledFile(file.path, file.size, "missing", file.sha256))
    notes = list(chosen.notes)
    notes += [f"{each} is there, differs, and would only be replaced under --replace" for each in seen.foreign]
    left = room(request.directory)
    notes.append(f"{gigabytes(left.bytes)} are free for {gigabytes(sum(each.size or 0 for each in seen.missing))}")
    return Pulled(
        listing.source,
        request.directory,
        listing.revision,
        tuple(files),
        chosen.skipped,
        tuple(notes),
        0,
        time.monotonic() - began,
        dry_run=True,
    )


class _Run:
    """One pull that holds the lock of its directory."""

    def __init__(
        self,
        request: PullRequest,
        listing: Listing,
        chosen: Selection,
        connection: Connection,
        policy: RetryPolicy,
        teller: Teller,
    ) -> None:
        self._request, self._listing, self._chosen, self._teller = request, listing, chosen, teller
        self._directory, self._folder = request.directory, state_directory(request.directory)
        self._stop = threading.Event()
        self._transfer = Transfer(connection, Crowd(request.jobs), policy, teller.say, self._stop)
        self._lock = threading.Lock()
        self._recorded: dict[str, Recorded] = {}
        self._written: str | None = None  # as PullState.manifest
        self._results: dict[str, PulledFile] = {}

    def fetch(self, began: float) -> Pulled:
        """Bring everything into its place."""
        if ignores_case(self._directory):
            check_together((each.path for each in self._chosen.files), self._listing.source, any_case=True)
        old = read_state(self._directory)
        present = look(self._directory, self._chosen.files, old, not self._request.replace, self._teller.say)
        if not self._request.replace:
            refuse_foreign(self._directory, present.foreign)
        for file in self._chosen.files:
            if file.path in present.files:
                self._results[file.path] = _result(file, present.files[file.path], "present")
        missing = sorted(present.missing, key=lambda each: ((each.size or SMALL_BYTES) >= SMALL_BYTES, each.path))
        self._check_room(missing)
        chosen = {each.path for each in self._chosen.files}
        kept = {path: row for path, row in (old.files if old else {}).items() if path not in chosen}
        self._recorded = {**kept, **present.files}
        self._written = old.manifest if old is not None else None
        self._write_state(complete=False)
        received = self._crew(missing) if missing else 0
        return self._whole(kept, received, began)

    def _write_state(self, *, complete: bool) -> None:
        listing = self._listing
        write_state(
            self._directory, PullState(listing.source, listing.revision, complete, self._recorded, self._written)
        )

    def _check_room(self, missing: Sequence[RemoteFile]) -> None:
        wanted = sum(each.size or 0 for each in missing) - allocated(self._folder)
        less = ["or fetch less: --exclude GLOB, --include GLOB"]
        check_room(self._directory, room(self._directory), max(wanted, 0), 2 * len(missing), less=less)

    def _crew(self, missing: Sequence[RemoteFile]) -> int:
        """Fetch what is missing; returns the bytes that came."""
        sizes = [each.size for each in missing]
        total = None if None in sizes else sum(each or 0 for each in sizes)
        crew = Crew(self._folder, missing, self._transfer, self._request.jobs, self._finish)
        self._teller.say(
            f"fetching {counted(len(missing), 'file')}{f', {gigabytes(total)}' if total is not None else ''}"
        )
        interrupted = True
        kept = 0
        try:
            crew.start()
            for speed in speeds(lambda: crew.received):
                self._teller.show(Progress(crew.done, total, speed, crew.files_done, len(missing)))
                if not crew.is_running:
                    break
                time.sleep(_TICK_SECONDS)
            interrupted = False
        finally:
            kept = crew.end()
            if interrupted:
                self._teller.say(self._how_to_go_on(kept))
        if crew.failure is not None:
            raise self._told(crew.failure, kept) from crew.failure
        return crew.received

    def _how_to_go_on(self, kept: int) -> str:
        return (
            f"{gigabytes(kept)} of unfinished files are kept in {self._folder}; "
            "the same command goes on from there, and removing that folder gives the room back"
        )

    def _told(self, failure: BaseException, kept: int) -> BaseException:
        if isinstance(failure, OSError) and failure.errno in FULL:
            return OnecatError(
                "the disk is full",
                where=str(self._directory),
                expected="room for the rest",
                details=[self._how_to_go_on(kept)],
                next_steps=["free some space there, then type the same command again: it goes on from here"],
                code=ExitCode.NEEDS_PERSON,
            )
        if isinstance(failure, OnecatError):
            told = failure.told_as()
            told.details = (*failure.details, self._how_to_go_on(kept)) if kept else failure.details
            return told
        return failure

    def _finish(self, part: Part) -> None:
        """Verify a whole part and put it in its place. Called by the crew's threads."""
        file = part.file
        sha256, blob = part.digests()
        for told, found, what in ((file.sha256, sha256, "SHA-256"), (file.blob, blob, "SHA-1 (as a git blob)")):
            if told is not None and told != found:
                part.remove()
                raise OnecatError(
                    f"{file.path} has another {what} than the source tells, and was removed",
                    expected=told,
                    where=str(self._directory / file.path),
                    details=[f"found {found}", f"{part.received} bytes in this run, {part.resumed} of an earlier one"],
                    next_steps=[
                        "type the same command again: it is fetched anew",
                        "when that ends alike: the source, or a proxy between, gives another file than it lists",
                    ],
                    code=ExitCode.ROLLED_BACK,
                )
        try:
            refuse_web_page(file, part.beginning(BEGINNING))
        except OnecatError:
            part.remove()
            raise
        row = Recorded(part.size or 0, part.modified(), sha256, file.check, part.validator)
        resumed = part.resumed
        with self._lock:
            check_places(self._directory, [file.path])  # once more: somebody may have changed it while bytes came
            note_finished(self._directory, file.path, row)
        part.move_to(self._directory / file.path)
        with self._lock:
            self._recorded[file.path] = row
            self._results[file.path] = _result(file, row, "resumed" if resumed else "fetched")

    def _whole(self, kept: dict[str, Recorded], received: int, began: float) -> Pulled:
        files = tuple(self._results[each.path] for each in self._chosen.files)
        notes = list(self._chosen.notes)
        unknown = [each.path for each in files if each.checked is None]
        if unknown:
            notes.append(
                f"the source tells no checksum of {len(unknown)} of {len(files)} files, as {unknown[0]}: they have "
                "the right length, and nobody can say that they are the publisher's"
            )
        stale = sorted(path for path in kept if (self._directory / path).exists() and not self._is_skipped(path))
        notes += [f"{path} is of an earlier pull, and the source does not have it now" for path in stale]
        path = self._directory / manifest.NAME
        notes += self._write_manifest(path, {each.path: each.sha256 for each in files if each.sha256 is not None})
        for each in [*self._folder.glob("*.partial"), *self._folder.glob("*.json")]:
            if each.name != "state.json":
                each.unlink()
        self._write_state(complete=True)
        return Pulled(
            self._listing.source,
            self._directory,
            self._listing.revision,
            files,
            self._chosen.skipped,
            tuple(notes),
            received,
            time.monotonic() - began,
            manifest=path,
        )

    def _write_manifest(self, path: Path, sums: dict[str, str]) -> list[str]:
        """Write the checksums of all files, but never over a list that somebody else made; what to say of it."""
        if path.name in self._results:
            return [f"{path.name} is the source's own"]
        text = manifest.text_of(sums)
        there = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        wanted = hashlib.sha256(text.encode()).hexdigest()
        if there not in (None, wanted, self._written) and not self._request.replace:
            return [
                f"{path.name} was there and no pull wrote it: it is kept, and nothing was compared with it; "
                f"onecat model verify {shlex.quote(str(self._directory))} --hash does it"
            ]
        write_atomically(path, text, 0o644)
        self._written = wanted
        return []

    def _is_skipped(self, path: str) -> bool:
        return any(each.path == path for each in self._chosen.skipped)


def _result(file: RemoteFile, row: Recorded, state: FileState) -> PulledFile:
    return PulledFile(file.path, row.size, state, row.sha256, file.check)
