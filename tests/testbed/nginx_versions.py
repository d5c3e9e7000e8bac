"""Other nginx versions than this machine's, from the packages of other Debian releases: unpacked, not installed.

A program of another release runs with that release's loader and libraries.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.cache import Cache
from tests.testbed.debian_packages import unpacked

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


def nginx_of(release: str, cache: Cache) -> Nginx:
    """The nginx of a Debian release; the first time some seconds and 10 MB of download. Raises NotToBeHad."""
    packages = hashlib.sha256(" ".join(PACKAGES[release]).encode()).hexdigest()[:8]
    root = unpacked(f"nginx-{packages}", release, PACKAGES[release], cache, expired=True)
    triplet = f"{platform.machine()}-linux-gnu"
    libraries = [root / prefix / triplet for prefix in ("lib", "usr/lib")]
    (loader, *_) = [path for folder in libraries for path in sorted(folder.glob("ld-linux-*.so.*"))]
    return Nginx(
        (str(loader), "--library-path", ":".join(map(str, libraries)), str(root / "usr/sbin/nginx")),
        root,
    )
