"""Importers and how they are found: every module of the package is loaded, every function with the decorator counts."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onecat.probe.importers.sections import Section, plain_command, split_sections
from onecat.probe.importers.text import clean

Part = dict[str, Any]
"""A part of a document in the form of onecat.facts: nested dictionaries and lists, ready for onecat.probe.merging.

Records in it may lack what a fact needs (a GPU its index): merging fills it from other parts or leaves them out.
"""


@dataclass(frozen=True)
class Capture:
    """What a program printed on one host. name: of the file or program, for messages and evidence.

    command: the program with its options or the file that the text is of, where that is told. exit_code: of the
    program, where that is told; 127 when it is not there.
    """

    name: str
    text: str
    command: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class Importer:
    """Reads one form of output.

    name: of the form, as people call it. recognises: whether a text is of this form, or holds it.
    read: gives its parts; never raises, whatever the text.
    sections: names of sections (programs with their options, files) whose text is of this form though it alone does
    not show it. last_resort: asked only when no other importer recognises the text. hints: words that people who mean
    this form use, for the message when no importer recognises a text.
    """

    name: str
    recognises: Callable[[str], bool]
    read: Callable[[Capture], Part]
    sections: tuple[str, ...] = ()
    last_resort: bool = False
    hints: tuple[str, ...] = ()


_MARK = "onecat_importer"


def importer(
    name: str,
    *,
    recognises: Callable[[str], bool],
    sections: tuple[str, ...] = (),
    last_resort: bool = False,
    hints: tuple[str, ...] = (),
) -> Callable[[Callable[[Capture], Part]], Any]:
    """Make a function an importer; see Importer for the parameters."""

    def mark(read: Callable[[Capture], Part]) -> Callable[[Capture], Part]:
        setattr(read, _MARK, Importer(name, recognises, read, sections, last_resort, hints))
        return read

    return mark


def holds(*marks: str) -> Callable[[str], bool]:
    """A `recognises` for texts that hold any of these marks."""
    return lambda text: any(mark in text for mark in marks)


@functools.cache
def all_importers() -> tuple[Importer, ...]:
    """Every importer, sorted by name."""
    import onecat.probe.importers as package

    found = []
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            one = getattr(value, _MARK, None)
            if isinstance(one, Importer) and one.read.__module__ == module.name:
                found.append(one)
    return tuple(sorted(found, key=lambda each: each.name))


def parse_capture(capture: Capture) -> tuple[tuple[str, Part], ...]:
    """What every importer that recognises a capture, or a section of it, reads from it: its name and its part.

    The parts come in the order of the sections. An importer that finds nothing in a text gives no part. A program that
    the collector found hanging or failing, and of which no importer can tell anything, gives a note.
    """
    parts: list[tuple[str, Part]] = []
    for section in split_sections(capture.name, clean(capture.text)):
        command = section.command or capture.command or plain_command(capture.name)
        one = Capture(section.name, section.text, command, section.exit_code)
        chosen = [each for each in all_importers() if not each.last_resort and _takes(each, one)]
        if not chosen and _is_of_unknown_program(one):
            chosen = [each for each in all_importers() if each.last_resort and each.recognises(one.text)]
        read = [(each.name, part) for each in chosen if (part := each.read(one))]
        parts += read
        if section.timed_out or (section.exit_code not in (None, 0, 127) and not read):
            parts.append((section.name, {"notes": [_failure(section)]}))
    return tuple(parts)


SOURCES = {
    "nvidia-smi": "nvml",
    "npu-smi": "ascend",
    "docker": "docker",
    "dmesg": "kernel-log",
    "journalctl": "kernel-log",
    "df": "filesystems",
    "getenforce": "selinux",
    "ss": "listeners",
    "nginx": "tools",
    "lspci": "pci",
}
"""Programs of the collector and the agent's sources that tell the same: a note has one name, whoever writes it."""


def _failure(section: Section) -> dict[str, Any]:
    source = SOURCES.get((section.command or "").partition(" ")[0], section.name)
    said = next((line.strip() for line in reversed(section.text.split("\n")) if line.strip()), "")[:300]
    if section.timed_out:
        return {"source": source, "kind": "timeout", "text": f"no answer in time while running {section.name}"}
    refused = re.search(r"permission denied|not permitted|must be root|access denied", said, re.IGNORECASE)
    kind = "permission" if refused else "error"
    return {"source": source, "kind": kind, "text": f"{section.name}: {said or f'exit code {section.exit_code}'}"}


def _is_of_unknown_program(capture: Capture) -> bool:
    """Whether the text may be a log of a server, not just the failure of a program that tells other facts."""
    return capture.exit_code is None and (capture.command or "").partition(" ")[0] not in SOURCES


def _takes(one: Importer, capture: Capture) -> bool:
    return capture.command in one.sections or one.recognises(capture.text)


def nearest_forms(name: str, text: str) -> list[str]:
    """The names of the forms whose words a text or its file's name holds most, at most three; best first."""
    looked_at = f"{name}\n{text[:20000]}".lower()
    words = {
        hint: re.search(rf"(?<!\w){re.escape(hint)}(?!\w)", looked_at) for one in all_importers() for hint in one.hints
    }
    scores = {one.name: sum(words[hint] is not None for hint in one.hints) for one in all_importers()}
    best = max(scores.values(), default=0)
    return [form for form, score in scores.items() if score == best][:3] if best else []
