"""A configuration file to write and load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.config import Deployment, load_deployment

Load = Callable[[str], Deployment]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes its argument to onecat.yaml in an empty working directory and loads that by its relative name."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(text: str) -> Deployment:
        Path("onecat.yaml").write_text(text, encoding="utf-8")
        return load_deployment(Path("onecat.yaml"))

    return write_and_load
