"""Reads what `--from` names: saved facts, and raw captures of hosts that were never probed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat import __version__
from onecat.errors import OnecatError
from onecat.facts import SCHEMA, Facts, from_json, to_json

if TYPE_CHECKING:
    from onecat.probe.importers import Part

LARGEST_FILE = 64 * 1024 * 1024
"""Bytes; a longer capture is not read. A verbose lspci of a large server has one megabyte, a month's kernel log ten."""

LOOSE_HOST = "captures"
"""The name of the host that captures given without a name are of, when they are several."""

_STEPS = ["on the host: onecat facts --json > facts.json"]


@dataclass
class _Host:
    """What the arguments gave for one host so far: parts with what they came from."""

    name: str
    parts: list[tuple[str, Part]] = field(default_factory=list)
    saved: Facts | None = None

    def facts(self) -> Facts:
        from onecat.probe.merging import facts_from_parts

        if self.saved is not None and not self.parts:
            return replace(self.saved, host=self.name)
        saved = [("", {**to_json(self.saved), "host": self.name})] if self.saved is not None else []
        sources = [*(self.saved.sources if self.saved else ()), *(name for name, _ in self.parts)]
        return replace(facts_from_parts(self.name, [*saved, *self.parts]), sources=tuple(dict.fromkeys(sources)))


def read_facts(file: Path) -> Facts:
    """The facts in a file that `onecat facts --json` wrote. Raises OnecatError when it is anything else."""
    document = _saved_document(_text(_read(str(file), file)))
    if document is None:
        raise OnecatError(
            "this is not a file of saved facts",
            where=str(file),
            expected=f"a document of schema {SCHEMA}, as `onecat facts --json` writes it",
            next_steps=_STEPS,
        )
    return _saved_facts(document, str(file))


def read_hosts(arguments: Sequence[str]) -> list[Facts]:
    """The facts that the arguments of `--from` stand for, in the order of their first mention.

    Saved facts stand each for themselves: a host of its own name, or of the file's where they say `local`; a file may
    have those of several hosts, a line each. Where a name is taken, the file stands behind it. A directory is one host
    named after it. `NAME=FILE` and `NAME=DIRECTORY` add to the host NAME. All other captures are one host together,
    named after the file when there is only one. `-` is standard input.
    Raises OnecatError (exit code 2) when one cannot be read or no importer knows what it holds.
    """
    hosts: dict[str, _Host] = {}
    loose: list[str] = []
    for number, argument in enumerate(arguments):
        name, place = _named(argument)
        if not place:
            raise OnecatError("'' names no file", expected="FILE, NAME=FILE, a directory, or - for standard input")
        path = Path(place)
        if place != "-" and _is(path.is_dir):
            host = hosts.setdefault(f"name {name or _directory_name(path)}", _Host(name or _directory_name(path)))
            _add_directory(host, path)
            continue
        text = _text(_read(place, path))
        lines = _saved_lines(text)
        if lines and not name:
            for line, each in enumerate(lines, 1):
                facts = _saved_facts(each, f"{place}:{line}")
                hosts[f"saved {number} {line}"] = _Host(_free(facts.host, f"{place}:{line}", hosts), saved=facts)
            continue
        document = _saved_document(text)
        if document is not None:
            facts = _saved_facts(document, place)
            if name:
                host = hosts.setdefault(f"name {name}", _Host(name))
                _add_saved(host, facts, place)
            else:
                own = facts.host if facts.host != "local" else _stem(place)
                hosts[f"saved {number}"] = _Host(_free(own, place, hosts), saved=facts)
            continue
        host = hosts.setdefault(f"name {name}" if name else "loose", _Host(name or LOOSE_HOST))
        host.parts += _parts(place, text)
        if not name:
            loose.append(place)
            host.name = _stem(place) if len(loose) == 1 else LOOSE_HOST
    return [host.facts() for host in hosts.values()]


def _free(name: str, place: str, hosts: dict[str, _Host]) -> str:
    """A name that tells a host from the others."""
    return f"{name} ({place})" if any(host.name == name for host in hosts.values()) else name


def _named(argument: str) -> tuple[str | None, str]:
    """Name and place of NAME=PLACE; a path that exists is never taken apart."""
    match = re.fullmatch(r"([\w.@-]{1,255})=(.+)", argument)
    if match is None or _is(Path(argument).exists):
        return None, argument
    return match.group(1), match.group(2)


def _is(asked: Callable[[], bool]) -> bool:
    """What a question about a path says; no, where the answer is forbidden: reading it tells why."""
    try:
        return asked()
    except OSError:
        return False


def _directory_name(path: Path) -> str:
    return path.resolve().name or "root"


def _stem(place: str) -> str:
    return "standard input" if place == "-" else Path(place).stem or place


def _add_saved(host: _Host, facts: Facts, place: str) -> None:
    if host.saved is not None:
        raise OnecatError(f"the host {host.name} has saved facts twice", where=place)
    host.saved = facts


def _add_directory(host: _Host, directory: Path) -> None:
    try:
        files = sorted(each for each in directory.iterdir() if _is(each.is_file) and not each.name.startswith("."))
    except OSError as error:
        raise OnecatError(f"the directory cannot be read: {error.strerror}", where=str(directory)) from error
    found = False
    for file in files:
        text = _text(_read(str(file), file))
        document = _saved_document(text)
        if document is not None:
            _add_saved(host, _saved_facts(document, str(file)), str(file))
            found = True
            continue
        parts = _known_parts(file.name, text)
        if parts:
            host.parts += parts
            found = True
        else:
            note = {"source": file.name, "kind": "error", "text": "no importer knows what this file holds"}
            host.parts.append((file.name, {"notes": [note]}))
    if not found:
        raise OnecatError(
            "the directory holds no file that onecat can read" if files else "the directory holds no files",
            where=str(directory),
            expected=_forms(),
        )


def _read(place: str, path: Path) -> bytes:
    try:
        if place == "-":
            data = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with path.open("rb") as file:
                data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError as error:
        raise OnecatError("the file does not exist", where=place, next_steps=_STEPS) from error
    except OSError as error:
        raise OnecatError(f"the file cannot be read: {error.strerror}", where=place) from error
    if len(data) > LARGEST_FILE:
        raise OnecatError(
            f"the file is larger than {LARGEST_FILE // 1024**2} MiB",
            where=place,
            next_steps=[f"tail -c {LARGEST_FILE // 1024**2}M {place} > shorter.txt"],
        )
    return data


def _text(data: bytes) -> str:
    from onecat.probe.importers.text import decode

    return decode(data)


def _saved_document(text: str) -> dict[str, Any] | None:
    """The document of facts in a text: the text itself, or a fenced block of a report; None when there is none."""
    family = SCHEMA.partition("/")[0] + "/"
    if f'"{family}' not in text:
        return None
    for candidate in (text, *re.findall(r"^```(?:json)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)):
        try:
            document = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and str(document.get("schema")).startswith(family):
            return document
    return None


def _saved_lines(text: str) -> list[dict[str, Any]]:
    """The documents of facts in a text that has one in each line, as `onecat facts --json` writes of several hosts."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(line.startswith('{"') for line in lines):
        return []
    documents = [_saved_document(line) for line in lines]
    known = [document for document in documents if document is not None]
    return known if len(known) == len(lines) else []


def _saved_facts(document: dict[str, Any], place: str) -> Facts:
    expected = f"a document of schema {SCHEMA}, as `onecat facts --json` writes it"
    steps = _STEPS
    if document.get("schema") != SCHEMA:
        steps = ["update onecat on this machine", f"or write them anew with onecat {__version__}", *steps]
    try:
        return from_json(document)
    except ValueError as error:
        raise OnecatError(
            f"these saved facts cannot be read: {error}", where=place, expected=expected, next_steps=steps
        ) from error


def _known_parts(name: str, text: str) -> tuple[tuple[str, Part], ...]:
    from onecat.probe.importers import Capture, parse_capture

    return parse_capture(Capture(name, text))


def _parts(place: str, text: str) -> tuple[tuple[str, Part], ...]:
    if not text.strip():
        raise OnecatError("the file is empty", where=place)
    parts = _known_parts(Path(place).name if place != "-" else "standard input", text)
    if parts:
        return parts
    from onecat.probe.importers import nearest_forms

    nearest = nearest_forms(place, text)
    raise OnecatError(
        "no importer knows what this holds" + (f"; it is nearest to {' or '.join(nearest)}" if nearest else ""),
        where=place,
        expected=_forms(),
        next_steps=_STEPS,
    )


def _forms() -> str:
    from onecat.probe.importers import all_importers

    names = ", ".join(one.name for one in all_importers() if one.hints and not one.last_resort)
    return f"saved facts (`onecat facts --json`), or the output of any of: {names}"
