"""`onecat.lock`: what a build was made from, by content, so that the next one is made from the same or says why not.

One entry for each profile, one line for each thing. What nobody saw is not in it: it is named under `unlocked` with
the reason, and the build that sees it first writes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat import __version__
from onecat.errors import ExitCode, OnecatError
from onecat.files import write_atomically
from onecat.images.bundle_create import profile_text
from onecat.images.context import render_context
from onecat.images.given_wheel import VARIABLE
from onecat.images.lock import lock_path, read_lock
from onecat.images.options import LockedPackage
from onecat.images.recipe import COMMON, load_recipe

if TYPE_CHECKING:
    from onecat.config.schema import Profile

SCHEMA = "onecat.lock/1"
FILE_NAME = "onecat.lock"
HEAD = """\
# What the builds of each profile were made from. Written by `onecat build`; keep it beside onecat.yaml and commit it.
# `onecat build --locked` refuses anything else; `onecat build --update-lock` writes it anew.
"""
Key = tuple[str, ...]


@dataclass(frozen=True)
class LockEntry:
    """What one profile's builds are made from.

    values: path in the entry (`("packages", "3.11", "torch")`) -> what it is, by content.
    unlocked: path -> why it is not among the values.
    """

    values: Mapping[Key, str] = field(default_factory=dict)
    unlocked: Mapping[Key, str] = field(default_factory=dict)

    def packages(self, python: str) -> tuple[LockedPackage, ...]:
        """The packages for one Python version, sorted by name."""
        rows = []
        for key, value in sorted(self.values.items()):
            if key[:2] == ("packages", python):
                version, *hashes = value.split()
                rows.append(LockedPackage(key[2], version, tuple(each.removeprefix("sha256:") for each in hashes)))
        return tuple(rows)

    def with_seen(self, values: Mapping[Key, str], unlocked: Mapping[Key, str] | None = None) -> LockEntry:
        """The entry with what else was seen, and what was looked for and not found."""
        merged = {**self.values, **values}
        reasons = {**self.unlocked, **(unlocked or {})}
        # What is known, or has parts that are known, is not unlocked.
        known = {key[:length] for key in merged for length in range(1, len(key) + 1)}
        return LockEntry(merged, {key: why for key, why in reasons.items() if key not in known})


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the lock says. locked, found: None where there is nothing."""

    key: Key
    locked: str | None
    found: str | None

    def __str__(self) -> str:
        return f"{'.'.join(self.key)}: the lock has {self.locked or 'nothing'}, here is {self.found or 'nothing'}"


def differences(locked: LockEntry, found: LockEntry) -> tuple[Difference, ...]:
    """What was looked at and is not as the lock says.

    A group that was not looked at (the images of a native build, the packages of another Python) is not compared, and
    what the lock says it does not know cannot differ.
    """
    looked_at = {key[:-1] for key in found.values} - {()}
    rows = []
    for key in sorted({*locked.values, *found.values}):
        before, now = locked.values.get(key), found.values.get(key)
        if before == now or (now is None and key[:-1] not in looked_at):
            continue
        if before is None and any(key[:length] in locked.unlocked for length in range(1, len(key) + 1)):
            continue
        rows.append(Difference(key, before, now))
    return tuple(rows)


def known_entry(profile: Profile, hashes: Mapping[str, str], pythons: tuple[str, ...] = ()) -> LockEntry:
    """All of a profile's entry that is known before a build, from what ships with onecat.

    Parameters:
        hashes: file name -> SHA-256 (hex) of wheels, as recorded at first use. pythons: CPython versions whose
            packages are meant, for engines with a lock of their own; that of the image if none are named.
    """
    values: dict[Key, str] = {
        ("onecat",): __version__,
        ("profile",): f"sha256:{hashlib.sha256(profile_text(profile)).hexdigest()}",
        ("engine",): f"{profile.engine.name} {profile.engine.version}",
        ("recipe",): f"{profile.image.recipe} sha256:{_recipe_digest(profile.image.recipe)}",
    }
    unlocked: dict[Key, str] = {}
    _add_flags(profile, values, unlocked)
    context = render_context(profile, hashes)
    for base in context.bases:
        unlocked["images", base] = "no build with a Docker engine has looked at it yet"
    if context.source is not None:
        values["source", context.source.file] = f"sha256:{context.source.sha256}"
    if isinstance(given := profile.image.variables.get(VARIABLE), str):
        values["wheel",] = f"sha256:{given.lower()}"
    if profile.image.patches is not None:
        _add_series(profile, values)
    if lock_path(profile.engine.name, profile.engine.version).is_file():
        lock = read_lock(profile.engine.name, profile.engine.version)
        for python in pythons or (str(profile.image.variables.get("python", "")),):
            for row in lock.for_python(python):
                sha256 = row.sha256 or hashes.get(row.file)
                key = ("packages", python, row.project)
                if sha256:
                    values[key] = f"{row.version} sha256:{sha256}"
                else:
                    unlocked[key] = f"nobody has seen {row.file} yet"
    elif load_recipe(profile.image.recipe).torch_index:
        python = str(profile.image.variables.get("python", ""))
        unlocked["packages", python] = "pip chooses them in the image's build; none has been read yet"
    return LockEntry(values, unlocked)


def _add_flags(profile: Profile, values: dict[Key, str], unlocked: dict[Key, str]) -> None:
    from onecat.engines import flag_schema_digest

    digest = flag_schema_digest(profile.engine.name, profile.engine.version)
    if digest:
        values["engine-flags",] = f"sha256:{digest}"
    else:
        unlocked["engine-flags",] = "this onecat has no schema of this engine's flags"


def _add_series(profile: Profile, values: dict[Key, str]) -> None:
    from onecat.patching import load_series

    series = load_series(str(profile.image.patches)).for_profile(profile)
    values["series",] = f"{series.name} sha256:{series.digest}"
    for patch in series.patches:
        values["patches", patch.name] = f"sha256:{patch.sha256}"
    if series.added:
        rows = [f"{path}\0{hashlib.sha256(series.added_content(path)).hexdigest()}\n" for path in series.added]
        values["added",] = f"{len(rows)} files sha256:{hashlib.sha256(''.join(rows).encode()).hexdigest()}"


def _recipe_digest(name: str) -> str:
    """SHA-256 (hex) over all templates and plain files that a recipe is rendered from."""
    recipe = load_recipe(name)
    root = recipe.directory.parent
    folders = [root / each for each in (COMMON, *recipe.shared)]
    paths = {path for folder in (*folders, recipe.directory) for path in folder.rglob("*") if path.is_file()}
    if any(b'"stages/' in path.read_bytes() for path in paths):
        paths |= set((root / "stages").iterdir())
    rows = [
        f"{path.relative_to(root).as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in sorted(paths)
        if "__pycache__" not in path.parts
    ]
    return hashlib.sha256("".join(rows).encode()).hexdigest()


@dataclass(frozen=True)
class LockFile:
    """A whole lock file: the entries by profile name."""

    entries: Mapping[str, LockEntry] = field(default_factory=dict)

    def with_entry(self, profile: str, entry: LockEntry) -> LockFile:
        return replace(self, entries={**self.entries, profile: entry})

    def text(self) -> str:
        """The file: sorted, one line for each thing, the same for the same entries."""
        import yaml

        profiles = {}
        for name, entry in self.entries.items():
            document = _nested(entry.values)
            if entry.unlocked:
                document["unlocked"] = {".".join(key): why for key, why in entry.unlocked.items()}
            profiles[name] = document
        body = {"schema": SCHEMA, "profiles": profiles}
        return HEAD + yaml.safe_dump(body, sort_keys=True, width=2**20, allow_unicode=True)


def _nested(values: Mapping[Key, str]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in values.items():
        place = document
        for part in key[:-1]:
            place = place.setdefault(part, {})
        place[key[-1]] = value
    return document


def read_lock_file(path: Path) -> LockFile:
    """The lock file at `path`; an empty one when there is none.

    Raises OnecatError (exit code 2) when it is not well-formed, as after a merge that was left unfinished.
    """
    import yaml

    if path.is_dir():
        raise OnecatError(
            "the lock file is a directory",
            expected="a file",
            where=str(path.absolute()),
            next_steps=["name another one: onecat build --lock FILE"],
        )
    if not path.is_file():
        return LockFile()
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        document = yaml.safe_load(text)
        if not isinstance(document, dict) or "schema" not in document:
            raise OnecatError(
                "this is no lock file",
                expected=f"a file of {SCHEMA}, as onecat build writes it",
                where=str(path.absolute()),
                next_steps=["name another one: onecat build --lock FILE"],
            )
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, this onecat knows {SCHEMA}")
        return LockFile({str(name): _entry(body) for name, body in document["profiles"].items()})
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        lines = f"it lacks {error}".splitlines() if isinstance(error, KeyError) else str(error).splitlines()
        steps = ["restore it from version control", "or remove it: the next build writes it anew"]
        if "<<<<<<<" in text:
            steps.insert(0, "resolve the merge conflict that is in it")
        raise OnecatError(
            "the lock file cannot be read",
            expected=SCHEMA,
            where=str(path.absolute()),
            details=lines[:3],
            next_steps=steps,
        ) from error


def _entry(document: Mapping[str, Any]) -> LockEntry:
    unlocked = {_unlocked_key(name): str(why) for name, why in (document.get("unlocked") or {}).items()}
    return LockEntry(dict(_leaves({key: value for key, value in document.items() if key != "unlocked"})), unlocked)


def _unlocked_key(name: str) -> Key:
    """`packages.3.11.torch` as a key: groups have names without dots, their last part may have some."""
    group, _, rest = name.partition(".")
    if group == "packages":
        major, minor, *project = rest.split(".", 2)
        return (group, f"{major}.{minor}", *project)
    return (group, rest) if rest else (group,)


def _leaves(document: Mapping[str, Any], path: Key = ()) -> Iterator[tuple[Key, str]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, str(name)))
        elif isinstance(value, str):
            yield (*path, str(name)), value
        else:
            raise ValueError(f"{'.'.join((*path, str(name)))} is no text: {value!r}")


def write_entry(path: Path, profile: str, entry: LockEntry) -> bool:
    """Write a profile's entry into a lock file if that changes it. Returns whether it did.

    Builds of other profiles that end at the same moment wait for each other: none loses its entry. Raises OnecatError
    when the file that is there cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        text = read_lock_file(path).with_entry(profile, entry).text()
        if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
            return False
        write_atomically(path, text, 0o644)
        return True
    finally:
        os.close(folder)


def drifted(path: Path, profile: str, found: tuple[Difference, ...], update: str) -> OnecatError:
    """What `--locked` says: each difference in a line, and the command that takes them into the lock."""
    shown = [str(each) for each in found[:20]]
    return OnecatError(
        f"profile {profile} is not what the lock file says: "
        + (f"{len(found)} differences" if len(found) > 1 else "1 difference"),
        where=str(path.absolute()),
        details=[*shown, *([f"and {len(found) - 20} more"] if len(found) > 20 else [])],
        next_steps=[f"{update}, if the change is wanted", "or restore what the lock names"],
        code=ExitCode.NO,
    )
