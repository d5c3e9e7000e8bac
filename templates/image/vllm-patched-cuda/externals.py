"""Gets the sources that vLLM's build would clone by itself: `externals.py SOURCE PACKAGES TARGET`.

They are what SOURCE names in its CMake files. An archive NAME-VERSION.tar.gz in PACKAGES is taken where there is one,
else git clones the tag. TARGET/externals.json says what was taken.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

DECLARED_IN = {"cutlass": "CMakeLists.txt"}
"""Name in CMake and of archives -> the file that declares it: what builds below 8.0 need after our patches."""


def refuse(found: str, expected: str, following: str) -> None:
    sys.exit(f"onecat: found: {found}\nonecat: expected: {expected}\nonecat: next: {following}")


def declared(text: str, name: str) -> tuple[str, str]:
    """Address and tag of a FetchContent_Declare with GIT_REPOSITORY; variables have the value that was set last."""
    values = dict(re.findall(r'set\((\w+) "([^"]*)"\)', text))
    for block in re.findall(r"FetchContent_Declare\(\s*(\w+)(.*?)\n\s*\)", text, re.DOTALL):
        repository = re.search(r"GIT_REPOSITORY\s+(\S+)", block[1])
        tag = re.search(r"GIT_TAG\s+(\S+)", block[1])
        if block[0] == name and repository and tag:
            address, revision = (
                re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], found[0]), each[1])
                for each in (repository, tag)
            )
            return address, revision
    refuse(
        f"the source declares no {name} as this onecat expects it",
        "FetchContent_Declare with GIT_REPOSITORY",
        "use the onecat that was made for this release of vLLM",
    )
    raise AssertionError


def unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(target.parent, filter="data")
        top = opened.getnames()[0].split("/")[0]
    (target.parent / top).rename(target)


def clone(address: str, tag: str, target: Path) -> str:
    """Clone one tag; its commit. The history goes: equal sources shall be equal files."""
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, address, str(target)]
    if subprocess.run(command, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}).returncode != 0:
        refuse(
            f"{address} {tag} cannot be cloned",
            "a network, a proxy (--proxy URL), or the tag's archive",
            f"put {target.name}-{tag.removeprefix('v')}.tar.gz into the folder of --find-links",
        )
    commit = subprocess.run(["git", "-C", str(target), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    shutil.rmtree(target / ".git")
    return commit.stdout.strip()


def main(source: Path, packages: Path, target: Path) -> None:
    target.mkdir(parents=True)
    taken = []
    for name, file in DECLARED_IN.items():
        if not (source / file).is_file():
            continue
        address, tag = declared((source / file).read_text(encoding="utf-8"), name)
        archive = packages / f"{name}-{tag.removeprefix('v')}.tar.gz"
        row = {"name": name, "tag": tag}
        if archive.is_file():
            unpack(archive, target / name)
            row["sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
        elif os.environ.get("ONECAT_OFFLINE"):
            refuse(
                f"there is no {archive.name}, and this build may not use a network",
                f"the archive of {name} {tag}",
                "put it into the folder of --find-links",
            )
        else:
            row["commit"] = clone(address, tag, target / name)
        print(f"onecat: {name} {tag}: {row.get('commit') or archive.name}")
        taken.append(row)
    (target / "externals.json").write_text(json.dumps(taken, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
