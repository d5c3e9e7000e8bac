"""The first two layers of the small real model, converted once for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.nvfp4.conversion import Request, convert
from onecat.resources import small_model
from tests.unit.nvfp4.comparison.variants import variant

SCHEMES = {
    "nvfp4": {},
    "nvfp4-mse": {"search": "mse"},
    "nvfp4-modelopt": {"naming": "modelopt"},
    "fp8-block": {"scheme": "fp8-block"},
    "fp8-deepseek": {"scheme": "fp8-block", "naming": "deepseek"},
}
"""All that `onecat model convert` writes, by options."""


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, embedding, norm and head: 14 matrices that are converted, 7 tensors that are not."""
    directory = tmp_path_factory.mktemp("original") / "two-layers"
    variant(
        small_model(),
        directory,
        lambda name, values: None if name.startswith(("model.layers.2.", "model.layers.3.")) else values,
    )
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}), encoding="utf-8")
    (directory / "SHA256SUMS").unlink()
    return directory


@pytest.fixture(scope="session")
def converted(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives `original` in one of SCHEMES; read it, do not change it."""
    folder, made = tmp_path_factory.mktemp("converted"), dict[str, Path]()

    def give(scheme: str) -> Path:
        if scheme not in made:
            made[scheme] = folder / scheme
            convert(Request(original, made[scheme], jobs=1, **SCHEMES[scheme]))  # type: ignore[arg-type]
        return made[scheme]

    return give
