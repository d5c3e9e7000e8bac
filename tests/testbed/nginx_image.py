"""An image of a Debian release's nginx, made from its packages: nothing can be pulled in the tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from tests.testbed.cache import Cache
from tests.testbed.nginx_versions import nginx_of

RELEASE = "trixie"
TAG = "onecat-test/nginx:trixie"
_FILES = {
    "etc/passwd": "root:x:0:0::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64"}
_FOLDERS = ("run", "tmp", "var/lib/nginx", "var/log/nginx", "var/cache/nginx")


def ensure_nginx_image(docker_client: Any, cache: Cache) -> str:
    """The image in this daemon; returns its tag. Raises NotToBeHad."""
    root = nginx_of(RELEASE, cache).root
    assert root is not None
    repository, _, tag = TAG.partition(":")
    docker_client.api.import_image_from_data(_archive(root), repository=repository, tag=tag)
    return TAG


def _archive(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for top in ("usr", "etc"):
            if (root / top).exists():
                archive.add(root / top, arcname=top, filter=lambda each: None if "/share/" in each.name else each)
        for name, text in _FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
        for name, target in _LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return buffer.getvalue()
