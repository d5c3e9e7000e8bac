"""`onecat plan` for cards alone: exit codes, JSON, comparisons, and what options do not go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.in_process import run_onecat
from tests.unit.planner import examples

CONFIG = {**examples.CONFIG, "max_position_embeddings": 8192}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A model of which only the config.json is here."""
    directory = tmp_path / "llama-8b"
    directory.mkdir()
    path = directory / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def run(directory: Path, *arguments: str, code: int = 0) -> str:
    done = run_onecat("plan", *arguments, directory=directory, environment={"ONECAT_HOME": str(directory / "home")})
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout if code < 2 else done.stderr


def document(directory: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    return json.loads(run(directory, *arguments, "--json", code=code))  # type: ignore[no-any-return]


def test_a_config_and_a_card_are_enough(tmp_path: Path, config: Path) -> None:
    arguments = ("--model", str(config), "--gpu", "Tesla V100-PCIE-32GB", "--gpus", "2", "--max-model-len", "4096")
    found = document(tmp_path, *arguments)
    assert (found["schema"], found["fits"], found["profile"]) == ("onecat.plan/1", True, None)
    assert found["layout"] == {"tensor_parallel": 1, "pipeline_parallel": 1, "replicas": 2}
    assert found["kv_tokens"] > 4096 and found["max_concurrency"] > 1
    assert found["largest_max_model_len"] == 8192
    names = {"weights_gib", "kv_cache_gib", "activations_gib", "overhead_gib", "free_gib"}
    assert names <= found["per_gpu"][0].keys()
    assert found["server_args"][0] == str(config.parent)
    assert run(tmp_path, "--model", str(config.parent), *arguments[2:]).startswith(
        "llama-8b: vllm-patched 0.27.1 on 2 x"
    )


def test_what_does_not_fit_exits_with_1_and_names_the_nearest_change(tmp_path: Path, config: Path) -> None:
    found = document(tmp_path, "--model", str(config), "--gpu", "t4", code=1)
    assert found["fits"] is False and found["short_of_gib"] > 0
    assert [each["code"] for each in found["refusals"]] == ["memory-weights"]
    assert found["refusals"][0]["fix"]


def test_cases_are_compared_in_one_table(tmp_path: Path, config: Path) -> None:
    arguments = ("--model", str(config), "--what-if", "gpu=h100,t4", "--what-if", "gpus=1,2")
    rows = document(tmp_path, *arguments)["what_if"]
    assert [(each["case"], each["fits"]) for each in rows] == [
        ("gpu=h100 gpus=1", True),
        ("gpu=h100 gpus=2", True),
        ("gpu=t4 gpus=1", False),
        ("gpu=t4 gpus=2", True),
    ]
    text = run(tmp_path, *arguments)
    assert max(map(len, text.splitlines())) <= 80 and "refused: memory-weights" in text
    run(tmp_path, "--model", str(config), "--what-if", "gpu=t4", code=1)


def test_a_profile_can_be_compared_with_other_cards(tmp_path: Path, config: Path) -> None:
    rows = document(tmp_path, "--model", str(config), "--profile", "v100x2-pcie", "--what-if", "tp=1,2,4")["what_if"]
    assert [each["layout"]["tensor_parallel"] for each in rows] == [1, 2, 4]
    others = ("--profile", "v100x2-pcie", "--what-if", "gpu=a100,h100")
    assert [each["gpu"] for each in document(tmp_path, "--model", str(config), *others)["what_if"]] == [
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA H100 80GB HBM3",
    ]


def test_prompts_may_be_a_file(tmp_path: Path, config: Path) -> None:
    (tmp_path / "lengths.jsonl").write_text('{"prompt_tokens": 100, "output_tokens": 20}\n200\n')
    found = document(tmp_path, "--model", str(config), "--gpu", "l4", "--prompts", "lengths.jsonl")
    [reason] = [each for each in found["reasons"] if each["arg"] == "--max-num-seqs"]
    assert reason["origin"] == "planner" and "2 requests of lengths.jsonl" in reason["why"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--gpu", "h100", "--profile", "h200"), "--gpu and --profile are both given"),
        (("--profile", "h200", "--gpus", "2"), "--gpus without --gpu"),
        (("--gpu", "nonesuch"), "onecat knows no GPU `nonesuch`"),
        (("--gpu", "h100", "--gpus", "0"), "0"),
        (("--gpu", "h100", "--engine", "nonesuch"), "there is no engine `nonesuch`"),
        (("--gpu", "h100", "--engine-version", "newest"), "--engine-version newest"),
        (("--gpu", "h100", "--prompts", "half"), "is no share with a length"),
        (("--gpu", "h100", "--what-if", "gpus=no"), "--what-if gpus=no"),
        (("--gpu", "h100", "--what-if", "nonesuch=1"), "has no flag `nonesuch`"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path: Path, config: Path, arguments: tuple[str, ...], text: str) -> None:
    assert text in run(tmp_path, "--model", str(config), *arguments, code=2)


def test_cards_alone_need_a_model(tmp_path: Path) -> None:
    assert "no model is named" in run(tmp_path, "--gpu", "h100", code=2)
