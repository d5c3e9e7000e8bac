"""pip's commands, and what its output means. pip's own text never reaches a user: it goes to a log file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from onecat.errors import ExitCode, OnecatError
from onecat.images.disk import is_out_of_space, megabytes, out_of_space
from onecat.images.lock import EngineLock, LockedFile

UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError|ConnectionResetError"
    r"|Name or service not known|Temporary failure in name resolution|Connection refused"
)
_UNMATCHED = re.compile(r"No matching distribution found for (\S+)")
MISMATCH = re.compile(r"DO NOT MATCH THE HASHES|Hashes did not match", re.IGNORECASE)
_MISMATCH_FILE = re.compile(r"^\s+(\S+?)(?:==\S+)? from ", re.MULTILINE)
GOT = re.compile(r"Got\s+([0-9a-f]{64})")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a runtime's Python: nothing of the caller's Python leaks in, bytecode is written."""
    dropped = {
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "VIRTUAL_ENV",
        "__PYVENV_LAUNCHER__",
    }
    return {key: value for key, value in environment.items() if key not in dropped} | {"PYTHONNOUSERSITE": "1"}


def requirement_line(row: LockedFile) -> str:
    """One line of a pip requirements file for a locked wheel."""
    return f"{row.project}=={row.version}" + (f" --hash=sha256:{row.sha256}" if row.sha256 else "") + "\n"


def download_command(
    pip: Path, requirements: Path, target: Path, *, hashed: bool, lock: EngineLock, python: str
) -> list[str]:
    """pip's command that downloads exactly the wheels of a requirements file, as the user's pip is configured.

    Parameters:
        pip: an interpreter with pip, of any version. python: the CPython version the wheels are for, as "3.11".
        hashed: whether every line of the requirements file has a hash.
    """
    command = [str(pip), "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", *(["--require-hashes"] if hashed else [])]
    command += ["--implementation=cp", f"--python-version={python}", f"--abi=cp{python.replace('.', '')}"]
    command += [f"--platform={platform}" for platform in platform_tags(lock.machine, lock.glibc)]
    return [*command, "--dest", str(target), "--requirement", str(requirements)]


def platform_tags(machine: str, glibc: str) -> list[str]:
    """Platform tags of wheels that a machine with that glibc accepts, best first (PEP 600 and its older aliases)."""
    aliases = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    tags = []
    for minor in range(int(glibc.split(".")[1]), 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in aliases:
            tags.append(f"{aliases[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]


def download_error(
    lock: EngineLock,
    row: LockedFile,
    group: Sequence[LockedFile],
    code: int,
    output: str,
    directory: Path,
    log: Path,
) -> OnecatError:
    """What went wrong when pip did not bring `row`, one of `group`, told from its exit code and output."""
    by_project = {canonicalize_name(entry.project): entry for entry in group}
    if is_out_of_space(output, directory):
        return out_of_space(directory)
    if MISMATCH.search(output):
        named = _MISMATCH_FILE.search(output)
        row = by_project.get(canonicalize_name(named.group(1)), row) if named else row
        got = GOT.search(output)
        return OnecatError(
            f"{row.file} was offered with another hash than the lock has",
            expected=f"sha256 {row.sha256}",
            where=f"{lock.engine} {lock.version}, pip's log {log}",
            details=[f"sha256 {got.group(1)} was offered"] if got else [],
            next_steps=[
                "look at the indexes and folders in `pip config list`: one of them supplies a changed file",
                "or put the right file into a folder and name the folder in ONECAT_WHEELS",
            ],
        )
    unmatched = _UNMATCHED.search(output)
    if unmatched:
        row = by_project.get(canonicalize_name(unmatched.group(1).split("==")[0].split("[")[0]), row)
    size = f", {megabytes(lock.estimated_size(row))}" if lock.estimated_size(row) else ""
    if UNREACHABLE.search(output):
        return OnecatError(
            f"no package index could be reached for {row.file}{size}",
            where=f"pip's log {log}",
            details=[line[:200] for line in output.splitlines() if UNREACHABLE.search(line)][-1:],
            next_steps=[
                "check the network, the proxy (HTTPS_PROXY) and `pip config list`, then run the same command again",
                "or put the file into a folder and name the folder in ONECAT_WHEELS",
            ],
            code=ExitCode.UNREACHABLE,
        )
    pinned = row.project in lock.pinned
    own_index = (
        "add PyTorch's CPU wheel index (pytorch.org, Start Locally: Linux, Pip, CPU) to pip: "
        "`pip config set global.extra-index-url ADDRESS`"
    )
    return OnecatError(
        f"nobody supplies {row.file}{size}",
        expected=f"sha256 {row.sha256}" if row.sha256 else f"{row.project} {row.version}",
        where=f"{lock.engine} {lock.version}, pip's exit code {code}, pip's log {log}",
        details=[line[:200] for line in output.splitlines() if line.startswith("ERROR:")][-1:],
        next_steps=[
            own_index if pinned else "set an index that has it: `pip config set global.index-url ADDRESS`",
            "or put the file into a folder and name the folder in ONECAT_WHEELS",
        ],
    )
