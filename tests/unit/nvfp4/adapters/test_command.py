"""`onecat model repack` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onecat.nvfp4.conversion import Request, convert
from tests.unit.cli.in_process import run_onecat
from tests.unit.nvfp4.adapters.lora_files import factors, write_adapter

SMALL = Path(__file__).parents[4] / "models" / "small"
MODULE = "model.layers.2.mlp.down_proj"


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder with a base and an adapter of small updates."""
    convert(Request(SMALL, tmp_path / "base"))
    tensors = factors(MODULE, 256, 512, 0.0003)
    write_adapter(tmp_path / "adapter", tensors, target_modules=["down_proj"], base_model_name_or_path="org/other")
    return tmp_path


def test_tells_what_the_rounding_has_cost(places: Path) -> None:
    done = run_onecat("model", "repack", "base", "adapter", "out", "--rounding", "nearest", directory=places)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["errors", "update", "error", "converted", "kept"]
    assert lines[1].startswith(MODULE)
    assert "changed 1 module (1 nvfp4)" in lines
    assert "--rounding dithered" in done.stdout
    assert "trained on org/other" in done.stderr
    assert run_onecat("model", "verify", "out", directory=places).returncode == 0
    again = run_onecat("model", "repack", "base", "adapter", "out", directory=places)
    assert again.returncode == 1
    assert "--replace" in again.stderr


def test_reports_as_json_and_writes_nothing_in_a_dry_run(places: Path) -> None:
    options = ("--json", "--search", "mse")
    dry = run_onecat("model", "repack", "base", "adapter", "out", "--dry-run", "--json", directory=places)
    assert not (places / "out").exists()
    planned = json.loads(dry.stdout)
    done = run_onecat("model", "repack", "base", "adapter", "out", *options, directory=places)
    document = json.loads(done.stdout)
    assert planned["schema"] == document["schema"] == "onecat.model-repack/1"
    assert (planned["dry_run"], document["dry_run"]) == (True, False)
    [module] = document["modules"]
    assert {name: module[name] for name in planned["modules"][0]} == planned["modules"][0]
    assert (module["name"], module["scheme"], module["rank"], module["scaling"]) == (MODULE, "nvfp4", 4, 2.0)
    assert module["update_kept"] == pytest.approx(1, abs=0.2)
    assert document["total"]["relative_error"] == module["relative_error"] > module["conversion_error"]
    assert (document["touched"], document["untouched_tensors"]) == (1, planned["untouched_tensors"])


def test_says_what_is_wrong_with_what_it_is_given(places: Path) -> None:
    for arguments, told in (
        (("nowhere", "adapter", "out"), "nowhere does not exist"),
        (("base", "nowhere", "out"), "nowhere does not exist"),
        (("adapter", "base", "out"), "the base first, then the adapter"),
        (("base", "adapter", "base"), "is a directory that is read"),
    ):
        done = run_onecat("model", "repack", *arguments, directory=places)
        assert done.returncode == 2, arguments
        assert told in done.stderr
        assert "Traceback" not in done.stderr
    assert not (places / "out").exists()
