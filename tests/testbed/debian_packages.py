"""Programs of another Debian release than this machine's, unpacked from their packages and not installed.

apt fetches and checks them with lists of its own, so that this machine's stay as they are.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.base_image import KEYRING, machine_mirror
from tests.testbed.cache import KEPT_SECONDS, Cache


class NotToBeHad(RuntimeError):
    """The packages of a release cannot be fetched; the message says why."""


def unpacked(name: str, release: str, packages: Sequence[str], cache: Cache, expired: bool = False) -> Path:
    """The folder `name` of the cache with what the packages of a release hold; the first time some seconds and a
    download.

    Parameters:
        expired: whether the release may be one whose lists are renewed no more.

    Raises NotToBeHad with apt's words when they cannot be had.
    """
    root = cache.folder("debian-packages") / f"{name}-{release}"
    with cache.lock(root.name):
        if not root.exists() or time.time() - root.stat().st_mtime > KEPT_SECONDS:
            partial = root.with_name(f"{root.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _unpack(release, packages, partial, expired)
            shutil.rmtree(root, ignore_errors=True)
            partial.rename(root)
            root.touch()
    return root


def _unpack(release: str, packages: Sequence[str], target: Path, expired: bool) -> None:
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
        "APT::Sandbox::User": "root",
        **({"Acquire::Check-Valid-Until": "false"} if expired else {}),
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    for command in (["update", "-qq"], ["download", "-qq", *packages]):
        done = subprocess.run(["apt-get", *words, *command], cwd=work / "debs", capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise NotToBeHad(f"apt-get {command[0]} for {release}: {said[-1] if said else done.returncode}")
    for package in sorted((work / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(target)], check=True)
    shutil.rmtree(work)
