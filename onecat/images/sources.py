"""The source archive of an engine: from a folder, the store, or the indexes of the user's pip; always by its hash."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.files import scratch_directory
from onecat.images.disk import is_out_of_space, out_of_space, out_of_space_told, run_logged
from onecat.images.interpreters import interpreter_with_pip
from onecat.images.pip import GOT, MISMATCH, UNREACHABLE, clean_environment
from onecat.images.wheels import file_sha256, wheel_store
from onecat.patching import Upstream, wrong_hash

if TYPE_CHECKING:
    from onecat.paths import Home

Report = Callable[[str], None]

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]*")
"""What a version may look like that goes into a file name and a line of a requirements file (PEP 440's characters)."""

# pip asks the build backend of a source archive for its name and version before it hands the archive over. Here a
# backend of our own answers, whichever one the archive names: none of the archive's code runs.
# Source of the variables: pyproject_hooks/_impl.py (pip 23.1 and later), pep517/wrappers.py (before).
_SITE = """\
import os
for prefix in ("_PYPROJECT_HOOKS_", "PEP517_"):
    if prefix + "BUILD_BACKEND" in os.environ:
        os.environ[prefix + "BUILD_BACKEND"] = "onecat_answers"
        os.environ.pop(prefix + "BACKEND_PATH", None)
"""
_SETUPTOOLS = """\
raise SystemExit("onecat downloads source archives and runs nothing of them")
"""
_BACKEND = """\
import os
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = {folder!r}
    os.mkdir(os.path.join(metadata_directory, name))
    for file, text in {files!r}.items():
        with open(os.path.join(metadata_directory, name, file), "w") as stream:
            stream.write(text)
    return name
"""


def fetch_source(
    upstream: Upstream, home: Home, report: Report, folder: Path | None = None, *, offline: bool = False
) -> Path:
    """A file with the pinned content: the given one, of a folder in ONECAT_WHEELS, of the store, or through pip.

    Parameters:
        report: gets one line for each step. folder: the archive, or a folder that is looked at before anything else.
        offline: whether no index may be asked.

    Raises OnecatError: the file found has another hash (exit code 1), nobody has it (2), no index answers (3), the
    disk is full (5).
    """
    given = _given(upstream.file, folder)
    if given is not None:
        found = file_sha256(given)
        if found != upstream.sha256:
            raise wrong_hash(given, upstream, found)
        return given
    for place in (folder / upstream.file for folder in wheel_store(home).folders):
        if place.is_file():
            if file_sha256(place) == upstream.sha256:
                return place
            report(f"source: not used: {place} has another hash than the patches are made for")
    kept = home.sources / upstream.file
    if kept.is_file():
        if file_sha256(kept) == upstream.sha256:
            return kept
        report(f"source: {kept} is damaged or another release; it is fetched again")
    if offline:
        raise _offline(upstream.file, home, f"sha256 {upstream.sha256}")
    report(f"source: downloading {upstream.file} as pip is configured")
    with out_of_space_told(home.sources):
        home.sources.mkdir(parents=True, exist_ok=True)
        with scratch_directory(home.sources) as scratch:
            got = _download(upstream.distribution, upstream.version, upstream.sha256, scratch, home)
            found = file_sha256(got)
            if found != upstream.sha256:
                raise wrong_hash(got, upstream, found)
            got.replace(kept)
    report(f"source: {upstream.file}, verified, kept in {home.sources}")
    return kept


def fetch_release(
    distribution: str, version: str, home: Home, report: Report, folder: Path | None = None
) -> tuple[Path, Upstream]:
    """The source archive of a release whose hash onecat does not ship: it is recorded at the first use, and said.

    Raises OnecatError as `fetch_source` does; a file with another hash than the recorded one is refused.
    """
    if not _VERSION.fullmatch(version):
        raise OnecatError(f"{version!r} is no version", expected=f"a release of {distribution}, as 0.33.0")
    file = f"{distribution}-{version}.tar.gz"
    store = wheel_store(home)
    seen = store.recorded_hashes()
    if file in seen:
        upstream = Upstream(distribution, version, file, seen[file], "")
        return fetch_source(upstream, home, report, folder), upstream
    given = _given(file, folder)
    kept = home.sources / file
    with out_of_space_told(home.sources):
        home.sources.mkdir(parents=True, exist_ok=True)
        with scratch_directory(home.sources) as scratch:
            if given is None and not kept.is_file():
                report(f"source: downloading {file} as pip is configured")
                _download(distribution, version, None, scratch, home).replace(kept)
    found = file_sha256(given or kept)
    store.record({file: found})
    report(f"source: the hash of {file} is not known to onecat; recorded as seen now: sha256 {found}")
    return given or kept, Upstream(distribution, version, file, found, "")


def download_command(python: Path, requirements: Path, target: Path, *, hashed: bool) -> list[str]:
    """pip's command that downloads one source archive and builds nothing."""
    command = [str(python), "-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
    command += ["--use-pep517", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--ignore-requires-python", *(["--require-hashes"] if hashed else [])]
    return [*command, "--dest", str(target), "--requirement", str(requirements)]


def write_answering_backend(directory: Path, distribution: str, version: str) -> None:
    """Write the modules that, first on PYTHONPATH, answer pip in place of an archive's build backend."""
    name = distribution.replace("-", "_")
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: onecat\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    (directory / "setuptools").mkdir(parents=True)
    (directory / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    (directory / "setuptools" / "__init__.py").write_text(_SETUPTOOLS, encoding="utf-8")
    backend = _BACKEND.format(folder=f"{name}-{version}.dist-info", files=files)
    (directory / "onecat_answers.py").write_text(backend, encoding="utf-8")


def _download(distribution: str, version: str, sha256: str | None, scratch: Path, home: Home) -> Path:
    backend, temporary, target = scratch / "backend", scratch / "temporary", scratch / "files"
    write_answering_backend(backend, distribution, version)
    temporary.mkdir()
    requirements = scratch / "requirements.txt"
    hashed = f" --hash=sha256:{sha256}" if sha256 else ""
    requirements.write_text(f"{distribution}=={version}{hashed}\n", encoding="utf-8")
    environment = clean_environment(os.environ) | {"TMPDIR": str(temporary), "PYTHONPATH": str(backend)}
    log = home.sources / "pip.log"
    command = download_command(interpreter_with_pip(), requirements, target, hashed=sha256 is not None)
    code, output = run_logged(command, environment, log)
    files = [path for path in target.glob("*") if path.is_file()] if target.is_dir() else []
    if code != 0 or len(files) != 1:
        raise _failed(distribution, version, sha256, code, output, log)
    return files[0]


def _failed(distribution: str, version: str, sha256: str | None, code: int, output: str, log: Path) -> OnecatError:
    file = f"{distribution}-{version}.tar.gz"
    if is_out_of_space(output, log.parent):
        return out_of_space(log.parent)
    folder = f"or get {file} by other means and name it: --source FILE"
    if MISMATCH.search(output):
        got = GOT.search(output)
        return OnecatError(
            f"{file} was offered with another content than the patches are made for",
            expected=f"sha256 {sha256}",
            where=f"pip's log {log}",
            details=[
                *([f"sha256 {got[1]} was offered"] if got else []),
                f"either it was damaged on its way, or {distribution} {version} was released anew or replaced",
            ],
            next_steps=["look at the indexes and folders in `pip config list`", folder],
            code=ExitCode.NO,
        )
    if UNREACHABLE.search(output):
        return OnecatError(
            f"no package index could be reached for {file}",
            where=f"pip's log {log}",
            details=[line[:200] for line in output.splitlines() if UNREACHABLE.search(line)][-1:],
            next_steps=["check the network, the proxy (HTTPS_PROXY) and `pip config list`", folder],
            code=ExitCode.UNREACHABLE,
        )
    return OnecatError(
        f"nobody supplies {file}",
        expected=f"sha256 {sha256}" if sha256 else f"{distribution} {version}, as source",
        where=f"pip's exit code {code}, pip's log {log}",
        details=[line[:200] for line in output.splitlines() if line.startswith("ERROR:")][-1:],
        next_steps=["set an index that has it: `pip config set global.index-url ADDRESS`", folder],
    )


def _given(file: str, folder: Path | None) -> Path | None:
    """The archive that a person named, itself or by its folder; None when the folder has none."""
    if folder is None:
        return None
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    if not folder.is_file():
        raise OnecatError(f"{folder} does not exist", expected=f"{file}, or a folder with it", where=str(folder))
    return folder


def _offline(file: str, home: Home, expected: str) -> OnecatError:
    return OnecatError(
        f"{file} is not on this machine, and no index may be asked",
        expected=expected,
        where=str(home.sources),
        next_steps=[f"get {file} on another machine and name it: --source FILE"],
    )
