"""`onecat model verify` on converted checkpoints: what onecat writes is fine, and what would not serve is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.in_process import run_onecat
from tests.unit.nvfp4.adapters.lora_files import factors, write_adapter
from tests.unit.nvfp4.comparison.conftest import SCHEMES
from tests.unit.nvfp4.comparison.variants import Array, Change, swap_nibbles, variant

Converted = Callable[[str], Path]


def verify(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_onecat("model", "verify", *map(str, arguments), environment={"ONECAT_HOME": "/nonexistent/onecat"})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_onecat_writes_is_fine(original: Path, converted: Converted, scheme: str) -> None:
    done = verify(converted(scheme), "--against", original, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["fine"], document["problems"]) == (0, True, [])
    compared = document["comparison"]
    assert [len(compared["modules"]), compared["plain_equal"], compared["plain_rounded"]] == [14, 7, 0]
    usual = 0.0265 if scheme.startswith("fp8") else 0.08 if scheme.endswith("mse") else 0.095
    assert compared["relative_error"] == pytest.approx(usual, rel=0.03)
    assert {row["verdict"] for row in compared["modules"]} == {"usual"}
    assert document["perplexity"] is None
    told = any(text.startswith("order of nibbles: channels of 16 tensors fit") for text in document["checked"])
    assert told == scheme.startswith("nvfp4")


def test_so_is_what_was_turned_back(original: Path, converted: Converted, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    assert run_onecat("model", "dequantize", str(converted("nvfp4")), str(plain)).returncode == 0
    document = json.loads(verify(plain, "--against", converted("nvfp4"), "--json").stdout)
    assert (document["fine"], document["problems"]) == (True, [])
    assert (document["comparison"]["modules"], document["comparison"]["plain_rounded"]) == ([], 14)
    document = json.loads(verify(plain, "--against", original, "--json").stdout)
    assert (document["fine"], document["problems"]) == (True, [])
    assert document["comparison"]["relative_error"] == pytest.approx(0.095, rel=0.03)


def without(name: str) -> Change:
    return lambda each, values: None if each == name else values


def in_groups_of_32(name: str, values: Array) -> Array:
    return values[:, ::2] if name.endswith("weight_scale") else values


SCALE = "model.layers.1.mlp.up_proj.weight_scale"
BAD = {
    "scale": (
        without(SCALE),
        16,
        ["model.safetensors: 4-bit weights have no weight_scale", "1.mlp.up_proj", "download"],
    ),
    "global": (
        without(SCALE.replace("_scale", "_global_scale")),
        16,
        ["no scale of the whole tensor", "1.mlp.up_proj", "fix: download"],
    ),
    "claimed": (
        lambda name, values: values,
        32,
        ["config.json: claims groups of 32, stored is 16", "[group-size-differs]", "fix:"],
    ),
    "stored": (
        in_groups_of_32,
        16,
        ["have scales of [512, 8], expected [512, 16]", "model.layers.0.mlp.gate_proj", "fix: download"],
    ),
    "nibbles": (swap_nibbles, 16, ["the nibbles are swapped", "[nibbles-swapped]", "onecat model convert"]),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_would_not_serve_is_refused_with_what_to_do(converted: Converted, tmp_path: Path, fault: str) -> None:
    change, group, words = BAD[fault]
    bad = variant(converted("nvfp4"), tmp_path / "bad", change)
    config = (bad / "config.json").read_text(encoding="utf-8")
    (bad / "config.json").write_text(config.replace('"group_size": 16', f'"group_size": {group}'), encoding="utf-8")
    done = verify(bad)
    text = " ".join(done.stdout.split())
    assert (done.returncode, [word for word in words if word not in text]) == (1, []), done.stdout
    assert "FAIL" in done.stdout and "is not whole" in text
    assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 80


def test_what_cannot_be_read_is_not_compared_and_said_to_be_left_out(converted: Converted, tmp_path: Path) -> None:
    done = verify(variant(converted("nvfp4"), tmp_path / "bad", without(SCALE)), "--against", converted("nvfp4"))
    assert done.returncode == 1
    assert "left out the weights themselves, which cannot be read" in " ".join(done.stdout.split())


def test_a_person_sees_the_largest_errors_in_80_columns(original: Path, converted: Converted, tmp_path: Path) -> None:
    done = verify(variant(converted("nvfp4"), tmp_path / "bad", swap_nibbles), "--against", original)
    assert done.returncode == 1
    lines = done.stdout.replace(str(tmp_path), "").replace(str(original), "").splitlines()
    assert lines[0].split() == ["largest", "errors", "relative", "SQNR", "limit"]
    assert lines[1].endswith("25.0%") and lines[6].startswith("all 14 modules as one")
    assert max(map(len, lines)) <= 80
    assert "14 modules of nvfp4: the nibbles are swapped" in " ".join(done.stdout.split())


def test_what_cannot_be_done_is_refused_before_anything_is_read(
    original: Path, converted: Converted, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff\xfe\x00 no text")
    for arguments, words in (
        (["--against", "/nonexistent"], "/nonexistent"),
        (["--against", str(text)], "is not a directory"),
        (["--against", str(converted("nvfp4").parent)], "is no model itself"),
        (["--window", "256"], "are for --perplexity"),
        (["--perplexity", str(text)], "is no text in UTF-8"),
        (["--perplexity", str(tmp_path / "none")], "none"),
        (["--perplexity", str(original / "held_out.txt"), "--limit", "5"], "--limit is for two perplexities"),
        (["--perplexity", str(original / "held_out.txt"), "--python", str(text)], "is no Python that has torch"),
    ):
        done = verify(converted("nvfp4"), *arguments)
        assert (done.returncode, words in done.stderr, done.stdout) == (2, True, ""), (arguments, done.stderr)


def test_without_torch_it_says_how_to_get_it(converted: Converted, original: Path) -> None:
    if shutil.which("python3") is not None:
        found = [sys.executable, shutil.which("python3") or ""]
        code = "import importlib.util as u, sys; sys.exit(bool(u.find_spec('torch') and u.find_spec('transformers')))"
        if any(subprocess.run([each, "-c", code], check=False).returncode for each in found):
            pytest.skip("a Python of this machine has torch and transformers")
    done = verify(converted("nvfp4"), "--perplexity", original / "held_out.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no Python with torch and transformers was found" in done.stderr
    assert "onecat build --profile cpu --runtime native" in done.stderr and "--python" in done.stderr


def test_so_is_what_an_adapter_was_merged_into(original: Path, converted: Converted, tmp_path: Path) -> None:
    update = factors("model.layers.1.mlp.down_proj", 256, 512, 0.0003)
    write_adapter(tmp_path / "adapter", update, target_modules=["down_proj"])
    merged = tmp_path / "merged"
    done = run_onecat("model", "repack", str(converted("nvfp4")), str(tmp_path / "adapter"), str(merged))
    assert done.returncode == 0, done.stderr
    document = json.loads(verify(merged, "--against", original, "--json").stdout)
    assert (document["fine"], document["problems"]) == (True, [])
    errors = {row["name"]: row["relative_error"] for row in document["comparison"]["modules"]}
    # What is rounded at random is further away than what is rounded to the nearest.
    assert max(errors, key=lambda name: errors[name]) == "model.layers.1.mlp.down_proj"
