"""Other nginx versions than this machine's, from the packages of other Debian releases: unpacked, not installed.

apt fetches them with lists of its own, so that this machine's stay as they are. A program of another release runs with
that release's loader and libraries.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.base_image import KEYRING, machine_mirror
from tests.testbed.cache import KEPT_SECONDS, Cache

# The program's package and the libraries it needs, by release: 1.18, 1.26, and the newest there is.
PACKAGES = {
    "bullseye": ("nginx-core", "libc6", "libcrypt1", "libpcre3", "libssl1.1", "zlib1g"),
    "trixie": ("nginx", "libc6", "libcrypt1", "libpcre2-8-0", "libssl3t64", "zlib1g", "libzstd1"),
    "sid": ("nginx", "libc6", "libcrypt1", "libpcre2-8-0", "libssl3t64", "zlib1g", "libzstd1"),
}


@dataclass(frozen=True)
class Nginx:
    """One nginx. argv: what stands before its own arguments; root: where its release was unpacked."""

    argv: tuple[str, ...]
    root: Path | None = None

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.argv, *arguments], capture_output=True, text=True, timeout=30)


class NotToBeHad(Exception):
    """The packages of a release cannot be fetched; the message says why."""


def nginx_of(release: str, cache: Cache) -> Nginx:
    """The nginx of a Debian release; the first time some seconds and 10 MB of download. Raises NotToBeHad."""
    packages = hashlib.sha256(" ".join(PACKAGES[release]).encode()).hexdigest()[:8]
    root = cache.folder("nginx-versions") / f"{release}-{packages}"
    with cache.lock(f"nginx-{release}"):
        if not root.exists() or time.time() - root.stat().st_mtime > KEPT_SECONDS:
            partial = root.with_name(f"{root.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _unpack(release, partial)
            shutil.rmtree(root, ignore_errors=True)
            partial.rename(root)
    triplet = f"{platform.machine()}-linux-gnu"
    libraries = [root / prefix / triplet for prefix in ("lib", "usr/lib")]
    (loader, *_) = [path for folder in libraries for path in sorted(folder.glob("ld-linux-*.so.*"))]
    return Nginx(
        (str(loader), "--library-path", ":".join(map(str, libraries)), str(root / "usr/sbin/nginx")),
        root,
    )


def _unpack(release: str, target: Path) -> None:
    work = target / "apt"
    for name in ("lists/partial", "archives/partial", "debs"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {machine_mirror() or ''} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",
        "APT::Sandbox::User": "root",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    for command in (["update", "-qq"], ["download", "-qq", *PACKAGES[release]]):
        done = subprocess.run(["apt-get", *words, *command], cwd=work / "debs", capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise NotToBeHad(f"apt-get {command[0]} for {release}: {said[-1] if said else done.returncode}")
    for package in (work / "debs").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(target)], check=True)
    shutil.rmtree(work)
