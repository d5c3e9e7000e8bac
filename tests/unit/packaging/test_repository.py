"""What must never be in the repository: names of package registries' hosts and private keys."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
# In pieces, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org"), ("deb", "debian", "org"))
]
PRIVATE_KEY = "-----BEGIN " + r"[A-Z ]*PRIVATE KEY-----"


def tracked_files() -> dict[str, str]:
    """The text of every file under version control that is there."""
    # `sudo make test` reads a checkout of somebody else.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True
    )
    paths = [name for name in listing.stdout.decode().split("\0") if name and (REPOSITORY / name).is_file()]
    return {name: (REPOSITORY / name).read_bytes().decode(errors="replace") for name in paths}


def test_no_host_of_a_package_registry_is_named() -> None:
    pattern = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)), re.IGNORECASE)
    files = tracked_files()
    assert len(files) > 20
    assert {name: pattern.findall(text) for name, text in files.items() if pattern.search(text)} == {}


def test_no_private_key_is_kept() -> None:
    assert [name for name, text in tracked_files().items() if re.search(PRIVATE_KEY, text)] == []
