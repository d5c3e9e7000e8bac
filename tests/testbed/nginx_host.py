"""A host that runs its own nginx as its distribution set it up, with a site of somebody else: a mount namespace in
which /etc/nginx, /run and nginx's other folders are that host's alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from onecat.deploy.proxies.program import master_state
from onecat.hosts import Completed, Conversation, LocalMachine

SOMEBODY = """server {
    listen 127.0.0.1:%d;
    server_name somebody.example;
    location / { return 200 "somebody else's site\\n"; }
}
"""
_ENTER = """
mount --bind "$0/etc" /etc/nginx
mount --bind "$0/log" /var/log/nginx
mount --bind "$0/lib" /var/lib/nginx
mount -t tmpfs tmpfs /run
echo ready
exec sleep infinity
"""


class NginxHost(LocalMachine):
    """The host as a machine. others_port: where somebody else's site answers."""

    def __init__(self, data_directory: Path, pid: int, others_port: int) -> None:
        super().__init__(data_directory)
        self.pid = pid
        self.others_port = others_port
        self.root_directory = Path(f"/proc/{pid}/root")
        self.is_root = True

    def root(self) -> NginxHost | None:
        return self if self.is_root else None

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        return super().run(["nsenter", "-t", str(self.pid), "-m", "--", *argv], **options)

    def start(self, argv: Sequence[str]) -> Conversation:
        return super().start(["nsenter", "-t", str(self.pid), "-m", "--", *argv])

    def path(self, path: str) -> Path:
        """Where a file of the host is found from outside."""
        return self.root_directory / path.lstrip("/")

    def read(self, path: str) -> bytes | None:
        return super().read(str(self.path(path)))

    def write(self, path: str, content: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
        super().write(str(self.path(path)), content, mode, owner)

    def names(self, path: str) -> tuple[str, ...]:
        return super().names(str(self.path(path)))

    def status(self, path: str) -> Any:
        return super().status(str(self.path(path)))

    def make_directory(self, path: str, mode: int = 0o700) -> None:
        super().make_directory(str(self.path(path)), mode)

    def remove(self, path: str) -> None:
        super().remove(str(self.path(path)))

    def files(self) -> dict[str, bytes]:
        """All files below /etc/nginx."""
        folder = self.path("/etc/nginx")
        return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@contextlib.contextmanager
def running_nginx_host(directory: Path, data_directory: Path, others_port: int) -> Iterator[NginxHost]:
    """Start the host and its nginx; both are gone afterwards. Needs root and Debian's nginx."""
    shutil.copytree("/etc/nginx", directory / "etc", symlinks=True)
    for name in ("log", "lib"):
        (directory / name).mkdir()
    for name in ("conf.d", "sites-enabled"):
        shutil.rmtree(directory / "etc" / name)
        (directory / "etc" / name).mkdir()
    (directory / "etc/sites-enabled/somebody").write_text(SOMEBODY % others_port)
    keeper = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _ENTER, str(directory)],
        stdout=subprocess.PIPE,
    )
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == b"ready\n"
    host = NginxHost(data_directory, keeper.pid, others_port)
    try:
        started = host.run(["nginx"])
        assert started.exit_code == 0, started.stderr
        yield host
    finally:
        _end(host)
        keeper.kill()
        keeper.wait()


def _end(host: NginxHost) -> None:
    text = (host.read("/run/nginx.pid") or b"").decode().strip()
    if not text.isdigit():
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(text), signal.SIGTERM)
    limit = time.monotonic() + 10
    while master_state(host, int(text)) is not None and time.monotonic() < limit:
        time.sleep(0.02)
