"""Files that onecat has written on a host, remembered so that a hand edit can be told later."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onecat.deploy.store import read_json, understood, write_json

if TYPE_CHECKING:
    from onecat.deploy.proxies import Proxy
    from onecat.hosts import Machine

BY_HAND = ".by-hand"
RENDERED_FILE = "rendered.json"
# What changes in a release's directory while it lives.
_LIVING = ("release.json", "engine.json", "state.json", "accepted", "server.log", RENDERED_FILE)
_KEPT_FOLDERS = ("", "nginx", "systemd")
# Files with keys of clients: that they differ is told, what is in them is not.
_SECRET_ENDINGS = (".keys", "keys.conf")

Edit = Literal["changed", "removed"]


@dataclass(frozen=True)
class HandEdit:
    """A file that is not as it was written. diff: unified, from what was written to what is there; none for keys."""

    path: str
    edit: Edit
    diff: tuple[str, ...] = ()


def installed_files(proxy: Proxy) -> dict[str, dict[str, str | None]]:
    """nginx's files as they are now, in the form that is kept: hash and text by path; no text of keys."""
    return {path: kept_file(path, content) for path, content in proxy.files().items()}


def kept_file(path: str, content: bytes) -> dict[str, str | None]:
    """One file in the form that is kept."""
    text = None if path.endswith(_SECRET_ENDINGS) else content.decode("utf-8", "replace")
    return {"sha256": hashlib.sha256(content).hexdigest(), "text": text}


def compare(
    written: Mapping[str, Mapping[str, str | None]], present: Mapping[str, bytes], removed_too: bool = True
) -> tuple[HandEdit, ...]:
    """What differs between files as they were written and as they are. Pure.

    Parameters:
        written: see `kept_file`. removed_too: whether one that is missing counts.
    """
    edits = []
    for path, kept in sorted(written.items()):
        if path not in present:
            if removed_too:
                edits.append(HandEdit(path, "removed"))
            continue
        if hashlib.sha256(present[path]).hexdigest() != kept["sha256"]:
            now = present[path].decode("utf-8", "replace")
            edits.append(HandEdit(path, "changed", unified(kept["text"], now, path, "as written", "on the host")))
    return tuple(edits)


def unified(before: str | None, after: str | None, name: str, was: str, becomes: str) -> tuple[str, ...]:
    """A unified diff without line ends; nothing where one side may not be shown."""
    if before is None or after is None:
        return ()
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} ({was})", f"{name} ({becomes})", lineterm="", n=2
    )
    return tuple(lines)


def record_rendered(machine: Machine, directory: str) -> None:
    """Keep the hashes of what was rendered into a release's directory."""
    document = {"schema": "onecat.rendered/1", "files": _hashes(machine, directory)}
    write_json(machine, f"{directory}/{RENDERED_FILE}", document)


def _hashes(machine: Machine, directory: str) -> dict[str, str]:
    """SHA-256 of the rendered files in a release's directory, by name there; asked of the host at once."""
    done = machine.run(["find", directory, "-type", "f", "-exec", "sha256sum", "{}", "+"])
    found = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        digest, _, path = line.partition("  ")
        folder, _, name = path.removeprefix(f"{directory}/").rpartition("/")
        if folder in _KEPT_FOLDERS and name not in _LIVING and not name.startswith(("server.log", "nginx.pid", ".")):
            found[f"{folder}/{name}" if folder else name] = digest
    return found


def rendered_edits(machine: Machine, directory: str) -> tuple[HandEdit, ...]:
    """What somebody has changed in a release's directory since it was rendered; nothing where no hashes were kept."""
    kept = read_json(machine, f"{directory}/{RENDERED_FILE}")
    if kept is None:
        return ()
    with understood(machine, f"{directory}/{RENDERED_FILE}"):
        files = sorted(dict(kept["files"]).items())
    present = _hashes(machine, directory)
    return tuple(
        HandEdit(f"{directory}/{name}", "changed" if name in present else "removed")
        for name, digest in files
        if present.get(name) != digest
    )
