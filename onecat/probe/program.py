"""The agent as one program, and the command lines that run it.

The program is one text that two languages read: Python from 3.6 on runs it as it is, and a POSIX shell finds the
collector for hosts without Python between two marks in it. So one command and one standard input do for every host.

Hosts with the Python version of this machine get the agent compiled: that takes half of what it costs them.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import marshal
import pkgutil
import re
import zlib
from collections.abc import Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from onecat.errors import ExitCode, OnecatError
from onecat.probe.bindings import reachable
from onecat.probe.options import ProbeOptions

AGENT = "onecat.probe.agent"
FOLDER = Path(__file__).parent / "agent"
SOURCES_TABLE = re.compile(r"^SOURCES = (\{.*?\})", re.MULTILINE | re.DOTALL)
KEY = re.compile(r"\"([\w-]+)\":")

PYTHONS = (
    "python3",
    "/usr/libexec/platform-python",
    *(f"python3.{minor}" for minor in range(14, 5, -1)),
    "python",
)
"""Where a host may have Python: RHEL 8 has its own outside PATH, some hosts have versions only."""

BOOTSTRAP = (
    f"for p in {' '.join(PYTHONS)}; do "
    'case "$("$p" -V 2>&1 </dev/null)" in "Python 3."[6-9]*|"Python 3."[1-9][0-9]*) exec $s "$p" -I -S - "$@";; esac; '
    "done; "
    'c="$(sed -n "/^#begin collector/,/^#end collector/p")"; exec $s sh -c "$c" onecat-probe "$@"'
)
"""Runs the program on standard input with the first Python that can, else its collector with sh.

-I -S: neither the user's environment nor installed packages can change what the agent is. The text has no quote,
exclamation mark, backslash or line end that a login shell (csh and fish too) could take for its own.
"""

BECOME_ROOT = (
    's=; test "$(id -u)" = 0 || if sudo -n true </dev/null >/dev/null 2>&1; then s="sudo -n"; '
    'else set -- --sudo-refused "$@"; fi; '
)
NO_ROOT = "s=; "

LOAD_SECONDS = 120.0
"""What measuring the links of all GPUs may take, beyond the limit of every source."""
SMOKE_SECONDS = 120.0
"""What a GPU calculation in a container may take: a large image starts slowly the first time."""


@functools.cache
def program() -> bytes:
    """The text of the agent, to be given to `agent_argv` or `remote_argv` on standard input.

    Raises OnecatError when nvidia-ml-py is not installed beside onecat.
    """
    files = {**_sources(), f"{AGENT}.core": FOLDER / "core.py"}
    # The others are for hosts with GPUs or Docker only.
    needed = {f"{AGENT}.core", f"{AGENT}.sources.files", *source_index().values()}
    collector = (FOLDER / "collector.sh").read_text(encoding="utf-8")
    return (
        f"COLLECTOR = r'''\n#begin collector\n{collector}#end collector\n'''\nINDEX = {source_index()!r}\n"
        + packed_modules(files, needed, packages=("sources",))
        + (FOLDER / "start.py").read_text(encoding="utf-8")
    ).encode()


def packed_modules(files: Mapping[str, Path], compiled: Iterable[str], *, packages: Iterable[str]) -> str:
    """The beginning of a program that carries modules and pynvml and imports them on a host; see agent/boot.py.

    Parameters:
        files: the modules by their full names. compiled: those that are sent compiled too. packages: below the agent's
        own, the packages that the modules lie in.

    Raises OnecatError when nvidia-ml-py is not installed beside onecat.
    """
    modules = {name: "" for name in ("onecat", "onecat.probe", AGENT, *(f"{AGENT}.{each}" for each in packages))}
    texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    codes = {name: _packed(marshal.dumps(_code(name, files[name]))) for name in sorted(compiled)}
    texts["pynvml"] = reachable(_pynvml().read_text(encoding="utf-8"), texts.values())
    modules.update((name, _packed(text.encode())) for name, text in texts.items())
    boot = (FOLDER / "boot.py").read_text(encoding="utf-8")
    return f"MAGIC = {importlib.util.MAGIC_NUMBER!r}\nCOMPILED = {codes!r}\nMODULES = {modules!r}\n{boot}"


def _code(name: str, file: Path) -> CodeType:
    """The code of a module, from where Python keeps it compiled."""
    code = SourceFileLoader(name, str(file)).get_code(name)
    assert code is not None  # of every module that has a text
    return code


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode()


def agent_argv(python: str, options: ProbeOptions, host: str) -> list[str]:
    """The command that runs the agent with one Python interpreter of this machine, without becoming root."""
    return [python, "-I", "-S", "-", *_agent_options(options, host)]


def remote_argv(options: ProbeOptions, host: str) -> list[str]:
    """The command that runs the agent on a host whatever it has: a Python from 3.6 on, or only a POSIX shell.

    For one exec over SSH: `shlex.join(remote_argv(...))` is one line that every login shell understands, and program()
    is its standard input. With options.sudo it becomes root by `sudo -n`, and where that is refused observes without
    and says so in a note. The answer is the JSON document of the agent, or text of sections that begin with
    `===== onecat: NAME` from the collector (see agent/collector.sh): `onecat facts` and importers read both.

    Parameters:
        options: what to observe. host: the host's name in the document.
    """
    rights = BECOME_ROOT if options.sudo else NO_ROOT
    return ["sh", "-c", rights + BOOTSTRAP, "onecat-probe", *_agent_options(options, host)]


def most_seconds(options: ProbeOptions) -> float:
    """How long the agent may take at most on the host, connection and start not counted."""
    # The agent puts load on a machine last, one thing after the other.
    asked = options.load * LOAD_SECONDS + (options.smoke_image is not None) * SMOKE_SECONDS
    return options.timeout + asked + 1.0


def _agent_options(options: ProbeOptions, host: str) -> list[str]:
    arguments = ["--host", host, "--root", options.root, "--timeout", f"{options.timeout:g}"]
    for purpose, path in options.paths.items():
        arguments += ["--path", f"{purpose}={path}"]
    if options.load:
        arguments += ["--load"]
    if options.smoke_image is not None:
        arguments += ["--smoke", options.smoke_image]
    return arguments


@functools.cache
def source_index() -> dict[str, str]:
    """The name of each source and the module that has it.

    Read from their text, because what they import belongs on a host.
    """
    return {
        source: name
        for name, file in _sources().items()
        for table in SOURCES_TABLE.findall(file.read_text(encoding="utf-8"))
        for source in KEY.findall(table)
    }


def _sources() -> dict[str, Path]:
    folder = FOLDER / "sources"
    return {f"{AGENT}.sources.{each.name}": folder / f"{each.name}.py" for each in pkgutil.iter_modules([str(folder)])}


def _pynvml() -> Path:
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise OnecatError(
            "the package nvidia-ml-py is missing beside onecat",
            next_steps=["reinstall onecat with its dependencies"],
            code=ExitCode.NEEDS_PERSON,
        )
    return Path(found.origin)
