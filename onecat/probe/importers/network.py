"""TCP ports in use, from `ss -ltn` and `netstat -ltn`, with or without -p."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer

_SS = re.compile(
    r"^(?:tcp {1,20})?LISTEN {1,20}[0-9]{1,10} {1,20}[0-9]{1,10} {1,40}(\S{1,80}):([0-9]{1,5}) {1,40}\S{1,80}:\*"
    r"(?: {1,20}users:\(\(\"([^\"\n]{1,80})\")?",
    re.MULTILINE,
)
_NETSTAT = re.compile(
    r"^tcp6? {1,20}[0-9]{1,10} {1,20}[0-9]{1,10} (\S{1,80}):([0-9]{1,5}) {1,40}\S{1,80}:\* {1,40}LISTEN"
    r"(?: {1,20}[0-9]{1,10}/([^\s:]{1,80}))?",
    re.MULTILINE,
)


def _is_listing(text: str) -> bool:
    return "LISTEN" in text and (_SS.search(text) is not None or _NETSTAT.search(text) is not None)


@importer("ss -ltn", recognises=_is_listing, hints=("listen", "ss", "netstat"))
def listeners(capture: Capture) -> Part:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for pattern in (_SS, _NETSTAT):
        for address, port, process in pattern.findall(capture.text):
            if int(port) < 65536:
                place = address.strip("[]").partition("%")[0].replace("*", "0.0.0.0")
                listener: dict[str, Any] = {"address": place, "port": int(port)}
                found.setdefault((place, int(port)), {**listener, **({"process": process} if process else {})})
    return {"listeners": list(found.values())} if found else {}
