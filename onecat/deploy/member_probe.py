"""Ask each server behind an nginx how it is, and mark those that do not answer: `python3 -I member_probe.py SETTINGS`.

A timer of systemd runs it on the host of that nginx, which needs nothing of onecat for it: standard library only, one
file, Python 3.7 and later. Each run looks once. SETTINGS (JSON) says where the servers stand (`servers`, lines that
`onecat.deploy.site.render_servers` writes), where the counts are kept (`state`), which lock keeps changes of nginx
apart (`lock`), and how nginx tests and takes up its files (`test`, `reload`).
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# A server is given up after so many failures in a row, and comes back after so many answers in a row.
FAILURES, ANSWERS = 3, 2
ANSWER_SECONDS = 2.0
_NGINX_SECONDS = 20
_WELL = 200
_SERVER = re.compile(r"^(server (\S+) [^;]*?)( down)?;(.*)$")
# sd-daemon(3): levels of the journal.
_NOTICE, _WARNING = "<5>", "<4>"


class Listed(NamedTuple):
    """One server in nginx's file. line: without its mark, which names it and its release."""

    line: str
    address: str
    is_down: bool


class Refused(Exception):
    """nginx does not take its files; in its own words."""


def parse(text: str) -> list[Listed]:
    """The servers in nginx's file."""
    found = (_SERVER.match(line) for line in text.splitlines())
    return [Listed(f"{each[1]};{each[4]}", each[2], bool(each[3])) for each in found if each]


def marked(text: str, down: Iterable[str]) -> str:
    """nginx's file with these of its servers marked, and no others. down: see `Listed.line`."""
    lines = []
    for line in text.splitlines():
        found = _SERVER.match(line)
        if found is not None:
            line = f"{found[1]};{found[4]}"
            line = f"{found[1]} down;{found[4]}" if line in down else line
        lines.append(line)
    return "\n".join(lines) + "\n"


def count(servers: Iterable[Listed], counts: Mapping[str, int], answered: Iterable[str]) -> dict[str, int]:
    """Answers in a row, or failures in a row as a negative number, by `Listed.line`.

    Parameters:
        counts: those before. answered: the addresses that answered now.
    """
    well = frozenset(answered)
    after = {}
    for each in servers:
        before = counts.get(each.line, 0)
        after[each.line] = max(before, 0) + 1 if each.address in well else min(before, 0) - 1
    return after


def decide(servers: Sequence[Listed], counts: Mapping[str, int]) -> frozenset[str]:
    """Which servers nginx shall leave out, by `Listed.line`. Where none would be left it stays as it is."""
    down = frozenset(
        each.line
        for each in servers
        if counts[each.line] <= -FAILURES or (each.is_down and counts[each.line] < ANSWERS)
    )
    return down if len(down) < len(servers) else left_out(servers)


def left_out(servers: Iterable[Listed]) -> frozenset[str]:
    """Which servers nginx leaves out now."""
    return frozenset(each.line for each in servers if each.is_down)


def answers(address: str) -> bool:
    """Whether the server there says that it is well."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health", headers={"Connection": "close"})
        return connection.getresponse().status == _WELL
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def ask(addresses: Iterable[str]) -> frozenset[str]:
    """The addresses that answer in time, asked at the same time."""
    found: set[str] = set()

    def one(address: str) -> None:
        if answers(address):
            found.add(address)

    threads = [threading.Thread(target=one, args=(each,), daemon=True) for each in addresses]
    for each in threads:
        each.start()
    for each in threads:
        each.join(2 * ANSWER_SECONDS)
    return frozenset(found)


def apply(settings: Mapping[str, Any], text: str, down: Iterable[str]) -> bool:
    """Give nginx the marks. Returns False, and changes nothing, while onecat changes nginx, or where it has since.

    Parameters:
        text: nginx's file as it was when the servers were asked.

    Raises Refused; then nginx's files are as before.
    """
    path = Path(settings["servers"])
    with _alone(Path(settings["lock"])) as is_ours:
        if not is_ours or _read(path) != text:
            return False
        _write(path, marked(text, down))
        try:
            for argv in (settings["test"], settings["reload"]):
                _run(argv)
        except BaseException:
            _write(path, text)
            raise
    return True


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_NGINX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(str(error)) from error
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip().replace("\n", " ")
        raise Refused(said or f"{argv[0]} ended with status {done.returncode}")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether nobody else changes nginx; it stays so while the block runs. Never makes the lock's file."""
    if not path.exists():
        yield False
        return
    with path.open("r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino
        except BlockingIOError:
            is_ours = False
        yield is_ours


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new one; mode and owner stay."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    if path.exists():
        status = path.stat()
        fresh.chmod(status.st_mode & 0o777)
        if os.geteuid() == 0:
            os.chown(fresh, status.st_uid, status.st_gid)
    fresh.replace(path)


def _counts(text: str) -> dict[str, int]:
    """The counts that were written down; none where somebody has spoilt them."""
    try:
        return {str(line): int(number) for line, number in json.loads(text or "{}").items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def look(settings: Mapping[str, Any]) -> list[str]:
    """Look once; what has changed by it, in lines for the journal. Raises Refused."""
    text = _read(Path(settings["servers"]))
    servers = parse(text)
    if len(servers) <= 1:
        return []
    state = Path(settings["state"])
    counts = count(servers, _counts(_read(state)), ask({each.address for each in servers}))
    _write(state, json.dumps(counts, indent=2) + "\n")
    before, down = left_out(servers), decide(servers, counts)
    if down == before or not apply(settings, text, down):
        return []
    words = {True: "gets no requests: it does not answer", False: "answers again, and gets requests"}
    return [f"{_NOTICE}{each.address} {words[each.line in down]}" for each in servers if each.line in down ^ before]


def main(arguments: Sequence[str]) -> int:
    """Returns 0; 1 when nginx does not take the marks; 2 for wrong usage."""
    if len(arguments) != 1:
        print("usage: member_probe.py SETTINGS", file=sys.stderr)
        return 2
    try:
        for line in look(json.loads(_read(Path(arguments[0])))):
            print(line, flush=True)
    except Refused as refused:
        print(f"{_WARNING}nginx does not take the marks: {refused}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
