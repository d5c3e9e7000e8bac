"""onecat itself as wheel files: its own, made from what is installed, and those that its requirements lock names."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging import tags
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from onecat import __version__
from onecat.errors import ExitCode, OnecatError
from onecat.files import scratch_directory
from onecat.images.disk import is_out_of_space, out_of_space, out_of_space_told, run_logged
from onecat.images.interpreters import interpreter_with_pip
from onecat.images.metadata_wheel import metadata_wheel_name, wheel_of
from onecat.images.pip import clean_environment, platform_tags
from onecat.images.wheels import WheelStore, file_sha256
from onecat.resources import resource_directory

if TYPE_CHECKING:
    from packaging.tags import Tag

Report = Callable[[str], None]

DATA = ("templates", "profiles", "patches", "models", "requirements")
OLDEST_GLIBC = "2.31"  # of Debian 11 and Ubuntu 20.04, the oldest systems that onecat is installed on
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class PinnedRequirement:
    """One package with its version and the hashes (hex) of all its files."""

    requirement: Requirement
    sha256: tuple[str, ...]

    @property
    def project(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        return next(iter(self.requirement.specifier)).version

    def hash_options(self) -> str:
        """The options for its line of a requirements file."""
        return "".join(f" --hash=sha256:{each}" for each in self.sha256)

    def needed_on(self, python: str) -> bool:
        """Whether CPython `python` (as "3.11") on Linux needs it."""
        environment = {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "platform_machine": platform.machine(),
        }
        return self.requirement.marker is None or self.requirement.marker.evaluate(environment)


def own_wheel() -> tuple[str, bytes]:
    """The file name and the bytes of onecat's own wheel; the same installation gives the same bytes.

    Raises OnecatError (exit code 2) when onecat is not installed as a distribution, or another version of it is.
    """
    try:
        distribution = metadata.distribution("onecat")
    except metadata.PackageNotFoundError as error:
        raise _not_installed("it is not installed as a package") from error
    if distribution.version != __version__:
        raise _not_installed(f"installed is {distribution.version}, running is {__version__}")
    package = Path(__file__).resolve().parent.parent
    files = {f"onecat/{path.relative_to(package).as_posix()}": path for path in _files(package)}
    for name in DATA:
        folder = resource_directory(name)
        files |= {f"onecat/{name}/{path.relative_to(folder).as_posix()}": path for path in _files(folder)}
    content = {name: path.read_bytes() for name, path in sorted(files.items()) if not name.endswith("/dev.lock")}
    described = {name: (distribution.read_text(name) or "").encode() for name in ("METADATA", "entry_points.txt")}
    return metadata_wheel_name("onecat", __version__), wheel_of("onecat", __version__, content, described)


def _not_installed(detail: str) -> OnecatError:
    return OnecatError(
        "onecat cannot pack itself",
        expected=f"onecat {__version__} installed by pip",
        details=[detail],
        next_steps=["make venv, or pip install onecat"],
    )


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield path


def own_requirements() -> tuple[PinnedRequirement, ...]:
    """All rows of the requirements lock that ships with onecat."""
    return parse_requirements((resource_directory("requirements") / "core.lock").read_text(encoding="utf-8"))


def parse_requirements(text: str) -> tuple[PinnedRequirement, ...]:
    """The rows of a requirements file in which every package has a pin and hashes."""
    lines = [
        line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.strip().startswith("#")
    ]
    return tuple(
        PinnedRequirement(Requirement(_HASH.sub("", line).strip()), tuple(_HASH.findall(line))) for line in lines
    )


def requirements_text(rows: Sequence[PinnedRequirement], wheel: str, sha256: str) -> str:
    """The requirements file that installs onecat and what it needs, on any of its Python versions."""
    lines = [f"{row.requirement}{row.hash_options()}" for row in rows]
    name, version, _, _ = parse_wheel_filename(wheel)
    return "\n".join([*lines, f"{name}=={version} --hash=sha256:{sha256}", ""])


def fetch_own_wheels(python: str, store: WheelStore, log: Path, report: Report) -> tuple[Path, ...]:
    """Bring the wheels that onecat needs on one Python version into the store. Raises as `fetch_pinned` does."""
    rows = [row for row in own_requirements() if row.needed_on(python)]
    return fetch_pinned(rows, python, OLDEST_GLIBC, store, log, report, f"onecat on Python {python}")


def fetch_pinned(
    rows: Sequence[PinnedRequirement],
    python: str,
    glibc: str,
    store: WheelStore,
    log: Path,
    report: Report,
    what: str,
) -> tuple[Path, ...]:
    """Bring the wheels of pinned requirements into the store, each verified; sorted by name.

    Parameters:
        python: the CPython version they are for, as "3.11". glibc: the oldest they must run on, as "2.31".
        what: what needs them, for people.

    Raises OnecatError: no index could be reached or one lacks a file (exit code 3), the disk is full (5).
    """
    machine = platform.machine()
    supported = target_tags(python, machine, glibc)
    found = {row.project: _held(row, (store.directory, *store.folders), supported) for row in rows}
    missing = [row for row in rows if found[row.project] is None]
    if missing:
        report(f"bundle: downloading {len(missing)} of the {len(rows)} packages of {what}")
        store.directory.mkdir(parents=True, exist_ok=True)
        with out_of_space_told(store.directory), scratch_directory(store.directory) as folder:
            requirements = folder / "requirements.txt"
            lines = [f"{row.project}=={row.version}{row.hash_options()}\n" for row in missing]
            requirements.write_text("".join(lines), encoding="utf-8")
            command = pinned_download_command(
                interpreter_with_pip(), requirements, folder / "files", python, platform_tags(machine, glibc)
            )
            code, output = run_logged(command, clean_environment(os.environ), log)
            for path in sorted((folder / "files").glob("*.whl")):
                path.replace(store.directory / path.name)
            found |= {row.project: _held(row, (store.directory,), supported) for row in missing}
            absent = [row for row in rows if found[row.project] is None]
            if absent and is_out_of_space(output, store.directory):
                raise out_of_space(store.directory)
            if absent:
                told = [line[:200] for line in output.splitlines() if line.startswith("ERROR:")]
                raise OnecatError(
                    f"nobody supplies {absent[0].project} {absent[0].version} for Python {python}",
                    expected=f"a wheel with one of the hashes that {what} is pinned to",
                    where=f"pip's exit code {code}, pip's log {log}",
                    details=told[-1:],
                    next_steps=[
                        "check the network, the proxy (HTTPS_PROXY) and `pip config list`, then run this again",
                        "or put the wheels into a folder and name the folder in ONECAT_WHEELS",
                    ],
                    code=ExitCode.UNREACHABLE,
                )
    return tuple(sorted({path for path in found.values() if path is not None}, key=lambda path: path.name))


def pinned_download_command(
    pip: Path, requirements: Path, target: Path, python: str, platforms: Sequence[str]
) -> list[str]:
    """pip's command that downloads wheels of a hashed requirements file for another Python than its own."""
    command = [str(pip), "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--implementation=cp"]
    command += [f"--python-version={python}", f"--abi=cp{python.replace('.', '')}"]
    command += [f"--platform={tag}" for tag in platforms]
    return [*command, "--dest", str(target), "--requirement", str(requirements)]


def target_tags(python: str, machine: str, glibc: str) -> frozenset[Tag]:
    """The wheel tags that CPython `python` on Linux with that glibc takes."""
    major, minor = (int(part) for part in python.split("."))
    platforms = platform_tags(machine, glibc)
    interpreter = f"cp{major}{minor}"
    mine = tags.cpython_tags((major, minor), abis=[interpreter], platforms=platforms)
    return frozenset([*mine, *tags.compatible_tags((major, minor), interpreter, platforms)])


def _held(row: PinnedRequirement, folders: Sequence[Path], supported: frozenset[Tag]) -> Path | None:
    """A wheel of that package in one of the folders, with a hash of the lock."""
    for folder in folders:
        for path in sorted(folder.glob("*.whl")):
            try:
                name, version, _, offered = parse_wheel_filename(path.name)
            except InvalidWheelFilename:
                continue
            fits = name == row.project and version == Version(row.version) and not supported.isdisjoint(offered)
            if fits and file_sha256(path) in row.sha256:
                return path
    return None
