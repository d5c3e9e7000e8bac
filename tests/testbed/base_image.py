"""The operating system that test containers run: Debian 12 by debootstrap, since nothing can be pulled in the tests.

It also stands in for the base image that profiles name, so it behaves like that one: `python` and `pip` are there and
pip may install into the system.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.testbed.cache import Cache

SUITE = "bookworm"
BASE_TAG = "onecat-test/base:bookworm"
STANDS_IN_FOR = ("python:3.11-slim-bookworm",)

PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
# What containers need from this machine to reach the package registries as this machine does.
MACHINE_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
IMAGE_CHANGES = ["ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", 'CMD ["python3"]']
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def machine_mirror() -> str | None:
    """The archive of Debian 12 that this machine's apt uses, or None to leave the choice to debootstrap."""
    listing = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(ORIGIN)|$(CODENAME)|$(COMPONENT)|$(REPO_URI)",
            "Created-By: Packages",
        ],
        capture_output=True,
        text=True,
    ).stdout
    for line in listing.splitlines():
        origin, codename, component, address = line.split("|", 3)
        if (origin, codename, component) == ("Debian", SUITE, "main"):
            return address
    return None


def debootstrap_argv(target: Path, mirror: str | None) -> list[str]:
    """The command that makes a minimal Debian in the folder `target`."""
    argv = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        f"--keyring={KEYRING}",
        SUITE,
        str(target),
    ]
    return [*argv, mirror] if mirror else argv


def make_base_archive(archive: Path, mirror: str | None) -> None:
    """Write the base image's file system to a tar archive. Needs root; about a minute and 300 MB."""
    scratch = Path(tempfile.mkdtemp(prefix="onecat-test-base-", dir=archive.parent))
    try:
        root = scratch / "root"
        made = subprocess.run(debootstrap_argv(root, mirror), capture_output=True, text=True)
        if made.returncode != 0:
            raise RuntimeError(f"debootstrap failed:\n{made.stdout[-4000:]}{made.stderr[-2000:]}")
        for name in MACHINE_FILES:
            if Path(name).is_file():
                shutil.copyfile(name, root / name.lstrip("/"))
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        for package in root.glob("var/cache/apt/archives/*.deb"):
            package.unlink()
        subprocess.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), "."], check=True)
    finally:
        shutil.rmtree(scratch)


def ensure_base_image(docker_client: Any, cache: Cache) -> str:
    """The base image in this daemon, made or imported where it is missing. Returns its tag."""
    mirror = os.environ.get("ONECAT_TEST_MIRROR") or machine_mirror()
    inputs = (
        *debootstrap_argv(Path("root"), mirror),
        inspect.getsource(make_base_archive),
        *(Path(name).read_bytes() if Path(name).is_file() else b"" for name in MACHINE_FILES),
    )
    archive = cache.entry("base.tar", inputs, lambda path: make_base_archive(path, mirror))
    repository, _, _ = BASE_TAG.partition(":")
    current = f"{repository}:{archive.stem.removeprefix('base-')}"
    if not docker_client.images.list(current):
        docker_client.api.import_image_from_file(str(archive), *current.split(":"), changes=IMAGE_CHANGES)
    for image in docker_client.images.list(repository):
        for name in image.tags:
            if name.startswith(f"{repository}:") and name not in (current, BASE_TAG):
                docker_client.images.remove(name)
    image = docker_client.images.get(current)
    for name in (BASE_TAG, *STANDS_IN_FOR):
        image.tag(*name.split(":"))
    return BASE_TAG
