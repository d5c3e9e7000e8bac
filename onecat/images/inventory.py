"""What an image or a native runtime holds: packages of the system, Python distributions, the CUDA toolkit.

Read from files alone; nothing of the image runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name

from onecat.images.image_files import read_matching

_DPKG = re.compile(r"var/lib/dpkg/(status|status\.d/[^/]+)")
_RPM = re.compile(r"(var/lib|usr/lib/sysimage)/rpm/(rpmdb\.sqlite|Packages|Packages\.db)")
_SYSTEM = re.compile(r"(etc|usr/lib)/os-release")
_DISTRIBUTION = re.compile(r"(.*(?:site|dist)-packages)/[^/]+\.dist-info/METADATA")
_CUDA = re.compile(r"usr/local/cuda[^/]*/version\.json")
LONGEST_LICENCE = 120
"""Characters; what is longer in the field License is a licence's text and not its name."""


@dataclass(frozen=True)
class SystemPackage:
    """A package of the distribution's package manager. source: the source package it is built from."""

    name: str
    version: str
    architecture: str
    source: str


@dataclass(frozen=True)
class Distribution:
    """An installed Python distribution.

    name: as its metadata writes it. licences: SPDX expressions or names, as far as its metadata says. folder: where it
    lies.
    """

    name: str
    version: str
    licences: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class Inventory:
    """All that was found.

    system: os-release's ID and VERSION_ID. cuda: the toolkit's version. unread: what is there and cannot be read.
    """

    system: tuple[str, str] | None = None
    packages: tuple[SystemPackage, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    cuda: str | None = None
    unread: tuple[str, ...] = ()


def image_inventory(client: Any, image: str) -> Inventory:
    """What an image of a Docker engine holds."""
    patterns = (_DPKG, _RPM, _SYSTEM, _DISTRIBUTION, _CUDA)
    return inventory_of(read_matching(client, image, lambda name: any(each.fullmatch(name) for each in patterns)))


def runtime_inventory(directory: Path) -> Inventory:
    """What a virtual environment holds; the system below it is the machine's and not part of it."""
    paths = sorted(directory.glob("lib/python*/site-packages/*.dist-info/METADATA"))
    return inventory_of({path.relative_to(directory).as_posix(): path.read_bytes() for path in paths})


def inventory_of(files: Mapping[str, bytes]) -> Inventory:
    """An inventory from the files that tell of it: path without a leading slash -> content."""
    packages: set[SystemPackage] = set()
    distributions: set[Distribution] = set()
    system = cuda = None
    unread = []
    for name, content in sorted(files.items()):
        if _DPKG.fullmatch(name):
            packages |= set(system_packages(content.decode(errors="replace")))
        elif _RPM.fullmatch(name):
            unread.append(f"the packages of the system, which are in an RPM database: /{name}")
        elif _SYSTEM.fullmatch(name):
            system = system or _system(content.decode(errors="replace"))
        elif _CUDA.fullmatch(name):
            cuda = cuda or _cuda(content)
        elif found := _DISTRIBUTION.fullmatch(name):
            distribution = distribution_of(content, found[1])
            if distribution is None:
                unread.append(f"the metadata of a Python distribution: /{name}")
            else:
                distributions.add(distribution)
    return Inventory(
        system=system,
        packages=tuple(sorted(packages, key=lambda each: (each.name, each.architecture, each.version))),
        distributions=tuple(sorted(distributions, key=lambda each: (canonicalize_name(each.name), each.folder))),
        cuda=cuda,
        unread=tuple(unread),
    )


def system_packages(status: str) -> Iterator[SystemPackage]:
    """The installed packages of dpkg's status file (deb-control(5) paragraphs)."""
    for paragraph in re.split(r"\n\s*\n", status):
        fields = dict(re.findall(r"^([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)$", paragraph, re.MULTILINE))
        # Images without a package manager have one file for each package, without a status.
        state = fields.get("Status", "install ok installed").split()
        if "Package" in fields and "Version" in fields and state[-1] == "installed":
            name = fields["Package"].strip()
            source = fields.get("Source", name).split(" ")[0].strip()
            yield SystemPackage(name, fields["Version"].strip(), fields.get("Architecture", "").strip(), source)


def distribution_of(metadata: bytes, folder: str) -> Distribution | None:
    """A distribution from its METADATA; None when that has no name or version."""
    data, _ = parse_email(metadata)
    name, version = data.get("name"), data.get("version")
    if not name or not version:
        return None
    classified = tuple(
        row.rpartition(" :: ")[2] for row in data.get("classifiers", ()) if row.startswith("License :: ")
    )
    written = data.get("license_expression") or data.get("license") or ""
    if written and "\n" not in written and len(written) <= LONGEST_LICENCE and written.upper() != "UNKNOWN":
        return Distribution(name, version, (written.strip(),), folder)
    return Distribution(name, version, tuple(each for each in classified if each != "OSI Approved"), folder)


def _system(text: str) -> tuple[str, str] | None:
    fields = {name: value.strip("\"'") for name, value in re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)}
    return (fields["ID"], fields.get("VERSION_ID", "")) if "ID" in fields else None


def _cuda(content: bytes) -> str | None:
    try:
        return str(json.loads(content)["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        return None
