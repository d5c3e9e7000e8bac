"""Whose cache volume it is, and which ones nobody needs any more."""

from __future__ import annotations

import re

import pytest

from onecat.deploy.cache_volume import IMAGE_LABEL, is_unused, keeps_caches, volume_labels, volume_name

HOME, IMAGE = "0123456789ab", "sha256:" + "0" * 64


def test_a_volume_is_of_one_image_one_deployment_and_one_home() -> None:
    name = volume_name(IMAGE, "chat", HOME)
    assert re.fullmatch("onecat-cache-[0-9a-f]{12}", name) and volume_name(IMAGE, "chat", HOME) == name
    others = {volume_name("sha256:1", "chat", HOME), volume_name(IMAGE, "other", HOME), volume_name(IMAGE, "chat", "b")}
    assert name not in others and len(others) == 3
    assert volume_labels(IMAGE, "chat", HOME) == {
        "io.onecat.home": HOME,
        "io.onecat.deployment": "chat",
        "io.onecat.image": IMAGE,
    }


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        (["PATH=/bin", "TRITON_CACHE_DIR=/var/cache/onecat/triton"], True),
        (["TRITON_CACHE_DIR=/root/.triton"], False),
        (["A=/var/cache/onecat-other/x"], False),
        ([], False),
    ],
)
def test_an_image_says_that_it_keeps_caches(variables: list[str], kept: bool) -> None:
    assert keeps_caches(variables) is kept


@pytest.mark.parametrize(
    ("name", "labels", "unused"),
    [
        ("onecat-cache-0", {IMAGE_LABEL: IMAGE}, True),
        ("onecat-cache-1", {IMAGE_LABEL: IMAGE}, False),
        ("onecat-cache-0", {}, False),
        ("onecat-cache-0", None, False),
        ("somebodys-data", {IMAGE_LABEL: IMAGE}, False),
    ],
)
def test_only_our_own_volumes_that_no_release_names_are_unused(
    name: str, labels: dict[str, str] | None, unused: bool
) -> None:
    assert is_unused(name, {"Labels": labels}, ["onecat-cache-1"]) is unused
