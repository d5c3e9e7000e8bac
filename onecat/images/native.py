"""Native runtimes: an engine in a managed virtual environment of this machine, made from its lock.

A runtime is whole when its marker file is there, which is written last. Anything else is completed or made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from packaging.utils import canonicalize_name

from onecat.errors import ExitCode, OnecatError
from onecat.files import write_atomically
from onecat.images.cpu_engine import COMPANION_SUMMARY, IMPORT_CHECK, companion_version
from onecat.images.disk import is_out_of_space, megabytes, out_of_space, out_of_space_told, run_logged
from onecat.images.host_check import INSTALLED_PER_DOWNLOADED, check_machine, check_space
from onecat.images.interpreters import OWN_VERSION, PRINT_VERSION, Interpreter, interpreters
from onecat.images.lock import EngineLock, LockedFile, profile_lock
from onecat.images.metadata_wheel import write_metadata_wheel
from onecat.images.patched_wheel import ensure_patched_wheel
from onecat.images.pip import clean_environment
from onecat.images.wheels import Downloader, WheelStore, fetch, file_sha256, wheel_store

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home

Report = Callable[[str], None]

MARKER = "onecat-runtime.json"
INSTALLING = "onecat-installing"


@dataclass(frozen=True)
class NativeRuntime:
    """An engine ready to run on this machine.

    python: the runtime's interpreter. directory: its virtual environment. python_version: as "3.11".
    lock_digest: SHA-256 over the files it consists of, patches included.
    """

    engine: str
    version: str
    python: Path
    directory: Path
    python_version: str
    lock_digest: str

    def serve_argv(self, server_args: Sequence[str]) -> list[str]:
        """The command that starts the server with these arguments (what follows `vllm serve`)."""
        return [str(self.python), str(self.directory / "bin" / "vllm"), "serve", *server_args]


def runtime_directory(home: Home, lock: EngineLock, python: str) -> Path:
    """Where the runtime of a lock for one Python version lies (it may not exist)."""
    return home.runtimes / f"{lock.engine}-{lock.version}-py{python.replace('.', '')}-{lock.digest(python)[:8]}"


def find_runtime(profile: Profile, home: Home) -> NativeRuntime | None:
    """The whole and matching runtime of a profile's engine, or None. Cheap: reads names, starts one interpreter."""
    lock = _native_lock(profile)
    for python in _preferred(lock.pythons):
        runtime = _checked(lock, python, runtime_directory(home, lock, python))
        if runtime is not None:
            return runtime
    return None


def ensure_runtime(profile: Profile, home: Home, report: Report, offline: bool = False) -> NativeRuntime:
    """The runtime of a profile's engine, made now if it is not there; continues where an earlier run stopped.

    Parameters:
        report: called with one line per step. offline: nothing may be downloaded.

    Raises:
        OnecatError: this machine cannot run the engine (exit code 1); no fitting Python, a wheel that nobody supplies
            or that has another hash (2); no index reachable (3); disk full or a failed installation (5). What has been
            downloaded until then is kept.
    """
    runtime = find_runtime(profile, home)
    if runtime is not None:
        return runtime
    lock = _native_lock(profile)
    check_machine(lock)
    interpreter, python = choose_interpreter(lock)
    directory = runtime_directory(home, lock, python)
    store = wheel_store(home)
    report(f"engine: {lock.engine} {lock.version} on Python {python}. {lock.packaged_by}")
    with out_of_space_told(home.runtimes):
        home.runtimes.mkdir(parents=True, exist_ok=True)
        with _only_builder(home.runtimes / f".{directory.name}.lock", report):
            present = _checked(lock, python, directory)
            return present or _build(lock, python, interpreter, directory, store, report, offline)


def _native_lock(profile: Profile) -> EngineLock:
    if "native" not in profile.launch.runtimes:
        raise OnecatError(
            f"profile {profile.name} does not run natively",
            expected=f"runtime: {' or '.join(profile.launch.runtimes)}",
            next_steps=[f"onecat build --profile {profile.reference} --runtime container"],
        )
    return profile_lock(profile)


def _preferred(pythons: Sequence[str]) -> list[str]:
    """Python versions in order of preference: the one that runs onecat, then the newest."""
    return sorted(pythons, key=lambda python: (python != OWN_VERSION, [-int(part) for part in python.split(".")]))


def choose_interpreter(lock: EngineLock) -> tuple[Interpreter, str]:
    """An interpreter that the lock has wheels for and that can make virtual environments, and its version as "3.11".

    Raises OnecatError (exit code 2) when there is none.
    """
    incomplete = []
    for interpreter in interpreters(_preferred(lock.pythons)):
        version = interpreter.answers(PRINT_VERSION)
        if (
            version not in lock.pythons
            or interpreter.answers("import sys; print(sys.implementation.name)") != "cpython"
        ):
            continue
        if interpreter.answers("import ensurepip, venv; print('yes')") == "yes":
            return interpreter, str(version)
        incomplete.append(f"python{version}")
    raise OnecatError(
        f"{incomplete[0]} cannot make virtual environments"
        if incomplete
        else "this machine has no Python that the engine has wheels for",
        expected=f"Python {' or '.join(lock.pythons)} with its modules venv and ensurepip",
        next_steps=[f"on Debian or Ubuntu: apt-get install {incomplete[0] if incomplete else 'python3'}-venv"],
    )


def _checked(lock: EngineLock, python: str, directory: Path) -> NativeRuntime | None:
    """The runtime in `directory` if its marker, interpreter and installed distributions match the lock."""
    marker = directory / MARKER
    if not marker.is_file():
        return None
    try:
        written = json.loads(marker.read_text(encoding="utf-8"))
    except ValueError:
        written = None
    if not isinstance(written, dict):
        return None
    digest = lock.digest(python)
    interpreter = Interpreter(directory / "bin" / "python")
    if written.get("lock_digest") != digest or written.get("directory") != str(directory.resolve()):
        return None
    if _expected_distributions(lock, python) - _installed(directory, python):
        return None
    if interpreter.answers(PRINT_VERSION) != python:
        return None
    return NativeRuntime(lock.engine, lock.version, interpreter.path, directory, python, digest)


def _expected_distributions(lock: EngineLock, python: str) -> set[str]:
    named = {_distribution(row.project, row.version) for row in lock.for_python(python)}
    return named | {_distribution("vllm", companion_version(lock))}


def _installed(directory: Path, python: str) -> set[str]:
    """What is installed, as normalised `name-version`, from the names of the .dist-info directories."""
    found = set()
    for path in (directory / "lib" / f"python{python}" / "site-packages").glob("*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        if (path / "RECORD").is_file():
            found.add(_distribution(name, version))
    return found


def _distribution(name: str, version: str) -> str:
    return f"{canonicalize_name(name)}-{version}"


@contextlib.contextmanager
def _only_builder(path: Path, report: Report) -> Iterator[None]:
    """Holds a lock file: two onecat processes do not build the same runtime at once; the second waits."""
    with path.open("a+") as stream:
        told = False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    stream.seek(0)
                    report(f"waiting: another onecat (process {stream.read().strip() or '?'}) builds this runtime")
                    told = True
                time.sleep(0.5)
        stream.seek(0)
        stream.truncate()
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


def _build(
    lock: EngineLock,
    python: str,
    interpreter: Interpreter,
    directory: Path,
    store: WheelStore,
    report: Report,
    offline: bool,
) -> NativeRuntime:
    rows = lock.for_python(python)
    log = directory.with_name(f"{directory.name}.log")
    started = time.monotonic()
    download = sum(lock.estimated_size(row) for row in rows if not store.path(row).is_file())
    installed = round(sum(lock.estimated_size(row) for row in rows) * INSTALLED_PER_DOWNLOADED)
    fetched = f"{megabytes(download)} to download to {store.directory}" if download else "nothing to download"
    report(f"disk: {fetched}, about {megabytes(installed)} in {directory}")
    check_space([(store.directory, download), (directory, installed)])
    _make_environment(interpreter, directory, log, report)
    python_path = directory / "bin" / "python"
    rows = fetch(lock, store, Downloader(python_path, python, log, offline), report)
    _install(lock, python, rows, directory, store, log, report)
    _import_check(python_path, log, report)
    digest = lock.digest(python)
    marker = {"schema": "onecat.runtime/1", "engine": lock.engine, "version": lock.version, "python": python}
    if lock.series is not None:
        marker["patches"] = f"{lock.series.name} sha256:{lock.series.digest}"
    write_atomically(
        directory / MARKER,
        json.dumps(marker | {"lock_digest": digest, "directory": str(directory.resolve())}, indent=2) + "\n",
        0o644,
    )
    report(f"runtime: ready in {directory} after {time.monotonic() - started:.0f} s")
    others = sorted(path.parent.name for path in directory.parent.glob(f"{lock.engine}-*/{MARKER}"))
    others.remove(directory.name)
    if others:
        report(f"runtime: older ones stay in {directory.parent} for releases that use them: {', '.join(others)}")
    return NativeRuntime(lock.engine, lock.version, python_path, directory, python, digest)


def _make_environment(interpreter: Interpreter, directory: Path, log: Path, report: Report) -> None:
    """An empty virtual environment with pip; one whose installation was cut off is made anew."""
    usable = (
        directory.is_dir()
        and not (directory / INSTALLING).exists()
        and not (directory / MARKER).exists()
        and Interpreter(directory / "bin" / "python").answers("import pip; print('yes')") == "yes"
    )
    if usable:
        return
    if directory.exists():
        report(f"environment: removing the unfinished or damaged one in {directory}")
        shutil.rmtree(directory)
    report(f"environment: making {directory}")
    command = [str(interpreter.path), "-m", "venv", str(directory)]
    code, output = run_logged(command, clean_environment(os.environ), log)
    if code != 0:
        shutil.rmtree(directory, ignore_errors=True)
        raise _failed("the virtual environment could not be made", output, directory, log)


def install_command(python: Path, requirements: Path) -> list[str]:
    """pip's command that installs verified wheel files and nothing else, without any index."""
    command = [str(python), "-m", "pip", "install", "--no-index", "--no-deps", "--require-hashes", "--no-compile"]
    return [*command, "--no-input", "--disable-pip-version-check", "--progress-bar=off", "-r", str(requirements)]


def install_requirements(rows: Sequence[tuple[str, Path, str]]) -> str:
    """A requirements file of local wheels: rows of project, path, SHA-256 in hex."""
    return "".join(f"{project} @ file://{quote(str(path))} --hash=sha256:{sha256}\n" for project, path, sha256 in rows)


def _install(
    lock: EngineLock,
    python: str,
    rows: Sequence[LockedFile],
    directory: Path,
    store: WheelStore,
    log: Path,
    report: Report,
) -> None:
    companion, companion_hash = write_metadata_wheel(
        store.directory, "vllm", companion_version(lock), COMPANION_SUMMARY
    )
    files = [(row.project, store.path(row), str(row.sha256)) for row in rows] + [("vllm", companion, companion_hash)]
    if lock.series is not None:
        patched = ensure_patched_wheel(lock, python, store, report).path
        files = [row for row in files if row[0] != lock.engine] + [(lock.engine, patched, file_sha256(patched))]
    (directory / INSTALLING).touch()
    requirements = directory / "onecat-requirements.txt"
    requirements.write_text(install_requirements(files), encoding="utf-8")
    report(f"install: {len(files)} distributions, offline from the verified wheels")
    # The user's pip configuration chose where files come from; here it could only change what is already decided.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment = clean_environment(environment) | {"PIP_CONFIG_FILE": os.devnull, "TMPDIR": str(directory)}
    sizes = {_distribution(row.project, row.version): lock.estimated_size(row) for row in rows}
    total, last = max(sum(sizes.values()), 1), time.monotonic()

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= 5:
            last = time.monotonic()
            done = sum(size for name, size in sizes.items() if name in _installed(directory, python))
            report(f"install: {done * 100 // total} % of the bytes")

    code, output = run_logged(install_command(directory / "bin" / "python", requirements), environment, log, tick)
    if code != 0:
        raise _failed("the wheels could not be installed", output, directory, log)
    absent = _expected_distributions(lock, python) - _installed(directory, python)
    if absent:
        raise _failed(f"after the installation {min(absent)} is missing", output, directory, log)
    (directory / INSTALLING).unlink()


def _import_check(python: Path, log: Path, report: Report) -> None:
    report("check: importing the engine once")
    environment = clean_environment(os.environ) | {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    code, output = run_logged([str(python), "-c", IMPORT_CHECK], environment, log)
    if code != 0:
        raise _failed("the engine is installed but cannot be imported", output, python.parent.parent, log)


def _failed(what: str, output: str, directory: Path, log: Path) -> OnecatError:
    if is_out_of_space(output, directory):
        return out_of_space(directory)
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("WARNING")]
    telling = [line for line in lines if re.match(r"(ERROR|[A-Za-z.]*(Error|Exception)):?", line)] or lines
    return OnecatError(
        what,
        where=f"log {log}",
        details=telling[-3:],
        next_steps=["run the same command again: it goes on from here", f"or remove {directory} to begin anew"],
        code=ExitCode.NEEDS_PERSON,
    )
