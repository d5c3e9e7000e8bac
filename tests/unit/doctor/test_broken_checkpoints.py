"""`doctor --model` and `model verify` say the same of a directory, each thing once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onecat.checkpoints import write_tiny_checkpoint
from onecat.checkpoints.integrity import Request, assess, verify
from onecat.doctor import Settings, examine
from tests.unit.checkpoints.checkpoint_files import write_checkpoint, write_weights
from tests.unit.doctor.examples import HEALTHY

CHECKS = ("model.checkpoint", "model.scales", "model.configuration")


def change(directory: Path, **fields: Any) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **fields}))


def tied(directory: Path) -> None:
    change(directory, tie_word_embeddings=True)


def one_of_two(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "model-1-of-2.safetensors")


def headers_alone(directory: Path) -> None:
    path = directory / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: 8 + int.from_bytes(data[:8], "little")])


def broken_side_file(directory: Path) -> None:
    (directory / "hf_quant_config.json").write_text("{")


def broken_side_file_beside_a_claim(directory: Path) -> None:
    change(directory, quantization_config={"quant_method": "fp8"})
    broken_side_file(directory)


def no_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()


def awq_of_another_group(directory: Path) -> None:
    write_weights(
        directory / "model.safetensors",
        {
            "model.layers.0.mlp.down_proj.qweight": ("I32", [128, 2], None),
            "model.layers.0.mlp.down_proj.scales": ("F16", [2, 16], None),
            "model.layers.0.mlp.down_proj.qzeros": ("I32", [2, 2], None),
        },
    )
    change(directory, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128})


def without_scales(directory: Path) -> None:
    write_checkpoint(
        directory,
        {"model.layers.0.mlp.down_proj.weight_packed": ("U8", [4, 16], None)},
        {
            "architectures": ["LlamaForCausalLM"],
            "quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
        },
    )


def other_layers(directory: Path) -> None:
    change(directory, num_hidden_layers=7)


BROKEN: dict[Callable[[Path], None], str] = {
    tied: "head-beside-tied",
    one_of_two: "missing-shard",
    headers_alone: "truncated",
    broken_side_file: "bad-json",
    broken_side_file_beside_a_claim: "bad-json",
    no_tokenizer: "missing-tokenizer",
    awq_of_another_group: "group-size-differs",
    without_scales: "missing-scale",
    other_layers: "layers-differ",
}


@pytest.mark.parametrize("harm", BROKEN, ids=lambda harm: harm.__name__)
def test_doctor_and_verify_tell_the_same_each_thing_once(harm: Callable[[Path], None], tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    harm(directory)
    verified = verify(Request(directory)).faults
    settings = Settings(model=str(directory), assessment=assess(directory))
    findings = [each for each in examine(HEALTHY, None, settings, only=CHECKS) if each.status not in ("pass", "skip")]
    told = sorted((each.status, each.title) for each in findings)
    without_lists = [each for each in verified if each.code != "no-checksum"]
    assert told == sorted((each.severity, f"{each.where} {each.text}") for each in without_lists)
    assert [each.code for each in verified].count(BROKEN[harm]) == 1
    assert len({each.code for each in without_lists}) == len(without_lists)


def test_a_configuration_alone_beside_a_broken_file_does_not_pass(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    broken_side_file(directory)
    path = directory / "config.json"
    settings = Settings(model=str(path), assessment=assess(path))
    (finding,) = examine(HEALTHY, None, settings, only=["model.configuration"])
    assert finding.status == "fail" and "hf_quant_config.json is not valid JSON" in finding.title
