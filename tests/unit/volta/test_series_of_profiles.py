"""Which patches of the series for Volta a profile's build gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.config import load_profile
from onecat.patching import load_series

EVERYWHERE = [
    *("0002-import", "0003-honesty", "0004-admission", "0005-selection", "0007-null-block", "0008-pipeline-eager")
]
SOURCE = sorted(["0001-build", *EVERYWHERE, "0006-requirements"])


def patches_of(profile: str) -> list[str]:
    loaded = load_profile(profile)
    assert loaded.image.patches == "vllm-0.27.1"
    return [patch.name for patch in load_series(loaded.image.patches).for_profile(loaded).patches]


@pytest.mark.parametrize("profile", ["v100x2-pcie", "v100x2-pcie-longctx", "v100x4-sxm2", "v100-16g"])
def test_builds_for_volta_get_the_whole_series(profile: str) -> None:
    assert patches_of(profile) == SOURCE


def test_the_engine_for_cpus_gets_what_python_reads() -> None:
    assert patches_of("cpu") == EVERYWHERE


@pytest.mark.parametrize(("below", "wanted"), [("v100x2-pcie", SOURCE), ("cpu", EVERYWHERE)])
def test_a_profile_of_ones_own_gets_those_of_the_profile_below_it(
    below: str, wanted: list[str], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"name: mine\nextends: [{below}]\n", encoding="utf-8")
    assert patches_of(str(mine)) == wanted
