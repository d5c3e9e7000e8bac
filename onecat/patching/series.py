"""What a folder patches/<engine>-<version>/ says: the pinned source, the patches in order, our own added files."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from onecat.errors import OnecatError
from onecat.patching.diff import FileChange, parse_diff
from onecat.resources import read_table, resource_directory

if TYPE_CHECKING:
    from onecat.config.schema import Profile

UPSTREAM, SERIES, ADDED = "upstream.yaml", "series.yaml", "add"


@dataclass(frozen=True)
class Upstream:
    """The source a series is made for, pinned by content: any index, folder or bundle may supply it.

    distribution, version: its name on a package index. file, sha256 (hex): the source archive. licence: SPDX's word.
    """

    distribution: str
    version: str
    file: str
    sha256: str
    licence: str


@dataclass(frozen=True)
class Guard:
    """What must be true of one upstream file: texts that it holds and texts that it does not.

    file: path from the root of the source. A guard tells that upstream has changed where a hunk would still fit.
    """

    file: str
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class AppliesTo:
    """Which builds need a patch.

    profiles: patterns of profile names (`v100*`), any of which fits. compute_capability: a specifier as `<8.0` that
    the profile's cards must meet; None for any, also for profiles without a GPU.
    """

    profiles: tuple[str, ...] = ("*",)
    compute_capability: str | None = None

    def matches(self, profile: str, compute_capability: str | None) -> bool:
        """Whether a profile of that name, for cards of that compute capability (as `7.0`, None without), needs it."""
        if not any(fnmatch.fnmatchcase(profile, pattern) for pattern in self.profiles):
            return False
        if self.compute_capability is None:
            return True
        return compute_capability is not None and compute_capability in SpecifierSet(self.compute_capability)


@dataclass(frozen=True)
class Patch:
    """One patch of a series.

    file: its name in the series' folder. reference: where upstream speaks of the same matter, or how far it was sent.
    drop_when: what makes it superfluous. before, after: guards on the source without and with it.
    text: the unified diff, paths from the root of the source under a/ and b/.
    """

    file: str
    purpose: str
    author: str
    reference: str
    applies_to: AppliesTo
    drop_when: str
    before: tuple[Guard, ...]
    after: tuple[Guard, ...]
    text: str

    @property
    def name(self) -> str:
        """The file's name without its ending, as `0001-build`."""
        return self.file.removesuffix(".patch")

    @property
    def sha256(self) -> str:
        """SHA-256 of the diff in hex."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogateescape")).hexdigest()

    @functools.cached_property
    def changes(self) -> tuple[FileChange, ...]:
        """What the diff makes of each file. Raises OnecatError when it may not be applied (parse_diff)."""
        return parse_diff(self.text, self.file)


@dataclass(frozen=True)
class Series:
    """The patches of one engine release, and the files that are added to its source.

    name: as `vllm-0.27.1`. directory: where it lies. added: paths below `directory`/add, which are paths in the source.
    """

    name: str
    directory: Path
    upstream: Upstream
    patches: tuple[Patch, ...]
    added: tuple[str, ...]

    def for_profile(self, profile: Profile) -> Series:
        """The series with only those patches that builds of this profile need."""
        capability = profile.hardware.compute_capability
        wanted = [each for each in self.patches if each.applies_to.matches(profile.name, capability)]
        return replace(self, patches=tuple(wanted))

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the pin, the patches in order and the added files: equal series give equal sources."""
        rows = [f"{self.upstream.file}\0{self.upstream.sha256}\n"]
        rows += [f"{patch.file}\0{patch.sha256}\n" for patch in self.patches]
        rows += [f"{path}\0{hashlib.sha256(self.added_content(path)).hexdigest()}\n" for path in self.added]
        return hashlib.sha256("".join(rows).encode()).hexdigest()

    def added_content(self, path: str) -> bytes:
        """The bytes of one added file."""
        return (self.directory / ADDED / path).read_bytes()

    def added_mode(self, path: str) -> int:
        """The permission bits that one added file gets in a tree."""
        return 0o755 if (self.directory / ADDED / path).stat().st_mode & 0o100 else 0o644


def list_series() -> tuple[str, ...]:
    """The names of the series that ship with onecat, sorted."""
    return tuple(sorted(path.parent.name for path in resource_directory("patches").glob(f"*/{SERIES}")))


def load_series(name: str) -> Series:
    """The series that ships under that name, else that of the folder.

    Raises OnecatError (exit code 2) when there is none or it is not well-formed.
    """
    shipped = resource_directory("patches") / name
    directory = shipped if name in list_series() else Path(name).absolute()
    if not (directory / SERIES).is_file():
        raise OnecatError(
            f"the folder {name} has no {SERIES}" if directory.is_dir() else f"there is no patch series {name}",
            expected=f"one of: {', '.join(list_series())}, or a folder with {SERIES}",
            next_steps=["onecat patch list"],
        )
    with _told(directory / UPSTREAM):
        upstream = Upstream(**read_table(directory / UPSTREAM))
    with _told(directory / SERIES):
        patches = tuple(_patch(directory, row) for row in read_table(directory / SERIES)["patches"])
        names = [patch.file for patch in patches]
        if len(set(names)) < len(names):
            raise ValueError("a patch is named twice")
    added = directory / ADDED
    return Series(
        name=directory.name,
        directory=directory,
        upstream=upstream,
        patches=patches,
        added=tuple(
            path.relative_to(added).as_posix()
            for path in sorted(added.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        ),
    )


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """Turns what is wrong with a file of a series into an OnecatError."""
    import yaml

    try:
        yield
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, FileNotFoundError) as error:
        found = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise OnecatError(
            "a patch series is not well-formed",
            expected="the fields that patches/README.md describes",
            where=str(file),
            details=found.splitlines(),
        ) from error


def _patch(directory: Path, row: dict[str, Any]) -> Patch:
    _only(row, "file", "purpose", "author", "reference", "applies_to", "drop_when", "guard")
    applies_to = _only(row.get("applies_to", {}), "profiles", "compute_capability")
    guard = _only(row.get("guard", {}), "before", "after")
    if not re.fullmatch(r"[0-9]{4}-[A-Za-z0-9._-]+\.patch", row["file"]):
        raise ValueError(f"{row['file']} is no name as 0001-build.patch")
    SpecifierSet(applies_to.get("compute_capability") or "")
    return Patch(
        file=row["file"],
        purpose=row["purpose"],
        author=row["author"],
        reference=row["reference"],
        applies_to=AppliesTo(tuple(applies_to.get("profiles", ("*",))), applies_to.get("compute_capability")),
        drop_when=row["drop_when"],
        before=tuple(_guard(each) for each in guard.get("before", ())),
        after=tuple(_guard(each) for each in guard.get("after", ())),
        text=(directory / row["file"]).read_bytes().decode("utf-8", "surrogateescape"),
    )


def _guard(row: dict[str, Any]) -> Guard:
    _only(row, "file", "contains", "lacks")
    for texts in (row.get("contains", []), row.get("lacks", [])):
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise ValueError(f"a guard of {row['file']} has {texts!r}, not a list of texts")
    return Guard(row["file"], tuple(row.get("contains", ())), tuple(row.get("lacks", ())))


def _only(row: dict[str, Any], *known: str) -> dict[str, Any]:
    """The row. Raises ValueError when it has a field that nobody reads: a mistyped guard would guard nothing."""
    unknown = sorted(set(row) - set(known))
    if unknown:
        raise ValueError(f"unknown field {', '.join(unknown)}, not one of: {', '.join(known)}")
    return row
