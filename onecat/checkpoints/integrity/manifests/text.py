"""Lines of checksums as sha256sum(1) writes them, plain or with --tag, or a file with nothing but one checksum.

Source: https://www.gnu.org/software/coreutils/manual/html_node/cksum-output-modes.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from onecat.checkpoints.integrity.manifests.records import Entry, Manifest, bad_checksum, wrong_digest
from onecat.checkpoints.integrity.records import Fault

_NAMES = re.compile(r"(?i)((sha256[-_]?sums?|check-?sums?|manifest)(\.(txt|sha256|sha256sums?))?|.+\.sha256(sums?)?)")
_TAGGED = re.compile(r"(\\?)([A-Za-z0-9/-]+) ?\((.+)\) ?= ?(\S+)")
_PLAIN = re.compile(r"(\\?)([0-9A-Za-z]{16,})(?:[ \t]+\*?|\*)(\S.*)")
_ALONE = re.compile(r"(?:sha256:)?([0-9A-Za-z]{16,})")


def is_text_manifest(name: str) -> bool:
    """Whether a file of this name holds checksums, as SHA256SUMS, checksums.txt, model.safetensors.sha256."""
    return _NAMES.fullmatch(name) is not None


def parse_text(text: str, name: str) -> Manifest:
    """The checksums in `text`, of a file called `name`; lines that are none are faults."""
    entries: dict[str, Entry] = {}
    faults: list[Fault] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", ";", "//")):
            continue
        where = f"{name}:{number}"
        algorithm, path, digest = "SHA256", "", ""
        if (tagged := _TAGGED.fullmatch(line)) is not None:
            escaped, algorithm, path, digest = tagged.groups()
        elif (plain := _PLAIN.fullmatch(line)) is not None:
            escaped, digest, path = plain.groups()
        elif (alone := _ALONE.fullmatch(line)) is not None and name.lower().endswith((".sha256", ".sha256sum")):
            escaped, digest, path = "", alone[1], name.rpartition(".")[0]
        else:
            text_of_it = ascii(line if len(line) <= 60 else f"{line[:57]}...")
            faults.append(_fault(where, f"is no checksum and file name: {text_of_it}"))
            continue
        if escaped:
            path = re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), path)
        path = path.removeprefix("./")
        if algorithm.upper().replace("-", "") != "SHA256":
            faults.append(_fault(where, f"is a checksum by {algorithm}, which is not compared; SHA256 is"))
        elif (reason := wrong_digest(digest)) is not None:
            faults.append(bad_checksum(where, path, reason))
        elif path in entries and entries[path].digest != digest.lower():
            faults.append(_fault(where, f"gives {path} another checksum than a line above"))
        else:
            entries[path] = Entry(path, "sha256", digest.lower())
    if not entries and not faults:
        faults.append(_fault(name, "holds no checksum"))
    return Manifest(name, "sha256sum", tuple(entries.values()), tuple(faults))


def text_of(digests: Mapping[str, str]) -> str:
    """A list that `sha256sum --check` reads, in the order of names."""
    lines = []
    for path, digest in sorted(digests.items()):
        shown = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{'' if shown == path else chr(92)}{digest}  {shown}\n")
    return "".join(lines)


def _fault(where: str, text: str) -> Fault:
    return Fault("bad-manifest", "fail", text, where, "get the list again from its publisher", "",
                 "https://www.gnu.org/software/coreutils/manual/html_node/cksum-output-modes.html")  # fmt: skip
