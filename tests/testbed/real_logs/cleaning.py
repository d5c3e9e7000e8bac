"""Takes out of a log what belongs to the machine that wrote it, and what only fills it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

# What a server's tracebacks begin in that this program has become.
PROGRAM = Path(__file__).with_name("warm_program.py")
KEEP = "ONECAT_KEEP_LOGS"
LARGEST = 60_000
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
# Routes of the server, and the table that argparse prints of all flags: nobody needs them to know how a start went.
_ROUTE = re.compile(r"Route: /")
_RULER = re.compile(r"^(?:\([^)]*\))?\s*[\^~]+\s*$|\]\s+[\^~]+\s*$")
_KEPT_ROUTES = 3


def keep(path: Path, text: str, folders: Mapping[Path, str]) -> None:
    """Write a log as a fixture when the variable KEEP is set: see `cleaned`."""
    if KEEP in os.environ and text:
        path.write_text(cleaned(text, folders), encoding="utf-8")


def cleaned(text: str, folders: Mapping[Path, str]) -> str:
    """The log as it is kept.

    Parameters:
        folders: directories of this machine and what stands for them.

    Raises ValueError where more than LARGEST bytes are left.
    """
    for folder, name in sorted(folders.items(), key=lambda pair: -len(str(pair[0]))):
        text = text.replace(str(folder), name)
    text = re.sub(rf"(?<![\w.-]){re.escape(socket.gethostname())}(?![\w-])", "gpu-host", text)
    text = text.replace(str(PROGRAM), "/opt/vllm/bin/vllm")
    # Frames of the interpreter and of packages, whatever directory those are in.
    text = re.sub(r"/[\w./+-]*/(?:site|dist)-packages/", "/opt/vllm/lib/python3.11/site-packages/", text)
    text = re.sub(r"/[\w./+-]*/lib/python3\.\d+/(?!site-packages)", "/usr/lib/python3.11/", text)
    text = text.replace(str(Path.home()), "/home/user") if str(Path.home()) != "/" else text
    text = text.replace(f"/tmp/pytest-of-{os.environ.get('USER', 'root')}", "/tmp")
    text = _ADDRESS.sub(_address, text)
    lines = []
    routes = 0
    for line in text.splitlines():
        if _RULER.search(_CONTROL.sub("", line)):
            continue
        routes += bool(_ROUTE.search(line))
        if _ROUTE.search(line) and routes > _KEPT_ROUTES:
            continue
        lines.append(line)
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > LARGEST:
        raise ValueError(f"{len(text.encode())} bytes are left, more than {LARGEST}")
    return text


def _address(match: re.Match[str]) -> str:
    """Addresses of this machine become one that is for documents (RFC 5737). Version numbers look alike and stay."""
    kept = match[0].startswith(("127.", "0.")) or match[0] in ("255.255.255.255",)
    parts = [int(part) for part in match[0].split(".")]
    private = parts[0] in (10, 192) or (parts[0] == 172 and 16 <= parts[1] < 32) or parts[:2] == [169, 254]
    return match[0] if kept or not private else "192.0.2.2"
