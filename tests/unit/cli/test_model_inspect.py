"""onecat model inspect, as a person types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import inspect, write_tiny_checkpoint
from onecat.cli.model_inspect import inspection_of
from onecat.render.models import model_document
from tests.testbed import quantised_checkpoints
from tests.unit.cli.in_process import run_onecat

CONFIGS = Path(__file__).parents[4] / "shared" / "fixtures" / "config"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_onecat("model", "inspect", *arguments)


def document(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_document_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    path = quantised_checkpoints.write(tmp_path, "nvfp4")
    told, seen = document(str(path)), inspect(path)
    assert told["schema"] == "onecat.model/1"
    assert (told["architecture"], told["layers"]) == ("LlamaForCausalLM", seen.architecture.layers)
    assert (told["parameters"], told["weight_bytes"]) == (seen.parameters, seen.weight_bytes)
    assert told["quantization"] == {
        "scheme": "nvfp4",
        "container": "compressed-tensors",
        "group_size": 16,
        "ignored": list(quantised_checkpoints.IGNORED),
        "method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "kv_cache": None,
        "activations": None,
    }
    described = seen.architecture
    assert described.layers and described.key_value_heads and described.head_size
    assert told["kv_bytes_per_token"] == 2 * described.layers * described.key_value_heads * described.head_size * 4
    assert told["max_position_embeddings"] == described.max_position_embeddings
    assert told["problems"] == []
    assert sum(share["bytes"] for share in told["schemes"]) == told["weight_bytes"]
    assert sum(share["parameters"] for share in told["schemes"]) == told["parameters"]


def test_weights_as_they_were_have_their_type_as_scheme(tmp_path: Path) -> None:
    told = document(str(write_tiny_checkpoint(tmp_path / "tiny") / "config.json"))
    assert told["quantization"]["scheme"] == "fp32"
    assert (told["quantization"]["container"], told["quantization"]["ignored"]) == (None, [])
    assert (told["measured"], told["estimated"], told["files"]) == (False, None, [])


def test_people_read_it_in_80_columns_and_are_told_what_to_do(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "tiny")
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 64}
    (path / "config.json").write_text(json.dumps(config))
    done = run(str(path))
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 or str(tmp_path) in line for line in lines)
    assert "  fail  claimed-not-stored" in lines
    assert "        fix: remove quantization_config from config.json, or download the" in lines
    assert "layers      4, hidden size 128; 4 query heads, 2 of keys and values, of 32" in lines


def test_a_whole_checkpoint_is_fine(tmp_path: Path) -> None:
    done = run(str(write_tiny_checkpoint(tmp_path / "tiny")))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "No problem found.")


def test_what_is_not_there_is_said_in_one_message(tmp_path: Path) -> None:
    done = run(str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the shared fixtures are not here")
@pytest.mark.parametrize(
    ("name", "scheme", "weight_gb", "per_token"),
    [
        # Sizes: what onecat computed from shapes and claimed formats when this was written; they hold it there and were
        # looked up nowhere. Bytes per token: layers x heads x 2 x size x 2.
        ("config_openai--gpt-oss-120b.json", "mxfp4", 65.25, 18 * 8 * 2 * 64 * 2),
        ("config_Qwen--Qwen3-30B-A3B-FP8.json", "fp8-block", 31.17, 48 * 4 * 2 * 128 * 2),
        ("config_nvidia--DeepSeek-V3.1-NVFP4.json", "nvfp4", 413.3, 61 * 576 * 2),
    ],
)
def test_a_published_config_alone_tells_what_the_weights_take(
    name: str, scheme: str, weight_gb: float, per_token: int
) -> None:
    told = model_document(inspection_of(inspect(CONFIGS / name)))
    assert told["quantization"]["scheme"] == scheme
    assert told["weight_bytes"] == pytest.approx(weight_gb * 1e9, rel=0.005)
    assert told["kv_bytes_per_token"] == per_token


def test_the_group_alone_shows_its_help_as_other_groups_do() -> None:
    for group in ("model", "profile"):
        done = run_onecat(group)
        asked = run_onecat(group, "--help")
        assert (done.returncode, done.stdout, done.stderr) == (0, asked.stdout, "")
        assert not [line for line in done.stdout.splitlines() if line.endswith("...") and "[OPTIONS]" not in line]


def test_small_sizes_have_digits_and_nothing_is_said_of_what_is_not_known(tmp_path: Path) -> None:
    lines = run(str(write_tiny_checkpoint(tmp_path / "tiny"))).stdout.splitlines()
    # 853,632 parameters of 4 bytes
    assert "LlamaForCausalLM (llama), 854 K parameters, 0.0034 GB (0.0032 GiB) of weights" in " ".join(lines)
    assert "F32                    853,632     0.0034     0.0032" in lines
    (tmp_path / "empty").mkdir()
    assert "stored as   not known" in run(str(tmp_path / "empty")).stdout.splitlines()
