"""A lock of a host, held by a program at the other end of a channel: it is free when that program has ended.

The program ends with its channel, whose end sshd tells it at once when the connection is closed or sshd dies. A
connection that is cut without a word is noticed by silence: this side sends a beat each BEAT_SECONDS and the program
sends it back; the program gives the lock up after SILENT_SECONDS without one, this side counts it as lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.machine import LockHeldError

if TYPE_CHECKING:
    from paramiko import Channel

BEAT_SECONDS = 5.0
SILENT_SECONDS = 20
ANSWER_SECONDS = 30.0
HELD, TAKEN, MISSING = "held", "taken", "missing"

# $1: the file, $2: seconds of silence, $3: what the holder writes. The file may have been removed between opening and
# locking: then the lock holds nobody off. Only the shell keeps the file open (9>&-), so that to end it is enough.
# Hosts without flock(1), as small ones, have python3 when they can run an engine.
_SCRIPT = r"""
umask 077
if command -v flock >/dev/null && command -v timeout >/dev/null; then
  exec 9>>"$1" || exit 1
  if ! flock -n 9 || ! [ "$1" -ef /proc/self/fd/9 ]; then echo taken; exit 0; fi
  printf %s "$3" >"$1" || exit 1
  echo held
  while [ "$(timeout "$2" dd bs=1 count=1 2>/dev/null 9>&-)" = . ]; do printf . || break; done
  : >"$1"
elif command -v python3 >/dev/null; then
  exec python3 -c '
import fcntl, os, select, sys
path, seconds, holder = sys.argv[1:]
stream = open(path, "a+")
try:
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    same = os.stat(path).st_ino == os.fstat(stream.fileno()).st_ino
except OSError:
    same = False
print("held" if same else "taken", flush=True)
if same:
    stream.truncate(0)
    stream.write(holder)
    stream.flush()
    while select.select([0], [], [], float(seconds))[0] and os.read(0, 1) == b".":
        os.write(1, b".")
    stream.truncate(0)
' "$1" "$2" "$3"
else
  echo missing
fi
"""


def lock_argv(path: str, holder: str) -> list[str]:
    """The program that takes the lock, says HELD, TAKEN or MISSING in a line, and holds it while it is spoken to."""
    return ["sh", "-c", _SCRIPT, "onecat-lock", path, str(SILENT_SECONDS), holder]


class RemoteLock:
    """One lock that is held on a host.

    Parameters:
        channel: to the program of lock_argv. path: of the lock. holder: reads what its file says.
        lost: called when the lock is held no longer, though it was not given up.

    Raises LockHeldError when another has it; OnecatError when the host cannot hold one; OSError when its file cannot be
    written.
    """

    def __init__(
        self, channel: Channel, path: str, host: str, holder: Callable[[], str], lost: Callable[[str], None]
    ) -> None:
        self._channel = channel
        self._lost = lost
        self._released = threading.Event()
        channel.settimeout(ANSWER_SECONDS)
        said = _line(channel)
        if said == TAKEN:
            channel.close()
            raise LockHeldError(path, holder())
        if said == MISSING:
            raise OnecatError(
                "the host has neither flock and timeout nor python3, so that nothing there can be locked",
                where=host,
                next_steps=["install them there: apt-get install util-linux coreutils"],
                code=ExitCode.UNREACHABLE,
            )
        if said != HELD:
            text = channel.makefile_stderr().read().decode(errors="replace").strip().splitlines()
            raise OnecatError(
                "the lock cannot be taken",
                where=f"{path} on {host}",
                details=text[-3:],
                next_steps=["is there room on that disk? df -h", "whose is the directory? ls -ld"],
                code=ExitCode.ROLLED_BACK,
            )
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give the lock up, and wait until it is free."""
        self._released.set()
        with contextlib.suppress(OSError, EOFError):  # the connection is gone, and the lock with it
            self._channel.shutdown_write()
        self._thread.join()
        with contextlib.suppress(OSError, EOFError):
            self._channel.close()

    def _beat(self) -> None:
        while self._answers(b"."):
            # Nothing comes until the next beat, unless the program ends, which may be at any time.
            if not self._answers(None):
                break
        if not self._released.is_set():
            self._lost("the lock on the host was lost: it was broken there, or no word of it came any more")

    def _answers(self, beat: bytes | None) -> bool:
        """Whether a beat comes back; without one, whether the program still runs after the time between two."""
        self._channel.settimeout(SILENT_SECONDS - BEAT_SECONDS if beat else BEAT_SECONDS)
        try:
            if beat:
                self._channel.sendall(beat)
            return self._channel.recv(1) == beat
        except TimeoutError:
            return beat is None
        except (OSError, EOFError):
            return False


def _line(channel: Channel) -> str:
    text = b""
    try:
        while not text.endswith(b"\n"):
            piece = channel.recv(1)
            if not piece:
                break
            text += piece
    except OSError:
        return ""
    return text.decode(errors="replace").strip()
