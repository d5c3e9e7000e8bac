"""The pinned source of the patched engine: downloaded through pip by its hash, kept between runs."""

from __future__ import annotations

from pathlib import Path

from onecat.images.sources import fetch_source
from onecat.patching import Series, load_series
from onecat.paths import Home
from tests.testbed.cache import Cache


def vllm_series() -> Series:
    """The series that ships for the pinned engine."""
    return load_series("vllm-0.27.1")


def fetch_vllm_archive(cache: Cache) -> Path:
    """The archive of vLLM's source that the series is made for, verified."""
    home = Home(data=cache.folder("engine"), cache=cache.folder("onecat"))
    return fetch_source(vllm_series().upstream, home, print)
