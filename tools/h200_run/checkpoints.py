"""Checkpoints with random weights, each beside a plain copy of the same values.

    python checkpoints.py SHAPE TOKENIZER TARGET

SHAPE: a name of `shapes.SHAPES`. TOKENIZER: the folder whose tokenizer is taken (models/small). Makes TARGET/quantised
and TARGET/plain. Names and sizes of tensors are those of the model's class in transformers.
"""

from __future__ import annotations

import json
import sys
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from number_formats import Fp8, Nvfp4, fp8_values, nvfp4_values, random_fp8, random_nvfp4
from safetensors.torch import save_file
from shapes import SHAPES, Shape

SEED = 8
# A row of 2048 to 21504 such values times activations of size 1 makes sums of size 0.5 to 4.
# Larger keys than that: attention's scores get a standard deviation of 3 (shapes.QWEN36_LEVELS says why).
NVFP4_SCALES = {"k_proj": 2.0**-6, "up_proj": 2.0**-8}
NVFP4_SCALE = 2.0**-7
FP8_SCALE = 2.0**-5
# Inputs up to 10 fit the range of NVFP4 with this scale; the kernels under test leave it aside.
INPUT_SCALE = 10.0 / (448 * 6)
FIRST_SPECIAL_TOKEN = 1024

Tensors = dict[str, torch.Tensor]


def main() -> None:
    """Write both checkpoints and print their sizes."""
    name, tokenizer, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    started = time.monotonic()
    shape = SHAPES[name]()
    quantised, plain, schemes = random_tensors(shape)
    write(target / "quantised", shape, tokenizer, quantised, quantisation(shape, schemes))
    write(target / "plain", shape, tokenizer, plain, None)
    sizes = [sum(tensor.nbytes for tensor in tensors.values()) / 1e6 for tensors in (quantised, plain)]
    print(f"{name}: {sizes[0]:.0f} MB quantised, {sizes[1]:.0f} MB plain, {time.monotonic() - started:.1f} s")


def random_tensors(shape: Shape) -> tuple[Tensors, Tensors, dict[str, str]]:
    """The tensors of the quantised and of the plain checkpoint, and the scheme of each quantised module."""
    generator = torch.Generator("cuda" if torch.cuda.is_available() else "cpu").manual_seed(SEED)
    quantised: Tensors = {}
    plain: Tensors = {}
    schemes: dict[str, str] = {}
    for name, outline in _outlines(shape).items():
        module = name.removesuffix(".weight")
        scheme = shape.scheme(module) if name.endswith(".weight") and outline.dim() == 2 else None
        if scheme is None:
            level = next((each for end, each in shape.levels.items() if _is_text(name) and name.endswith(end)), 1.0)
            quantised[name] = plain[name] = _plain(name, outline, level, generator).cpu()
            continue
        schemes[module] = scheme
        n, k = outline.shape
        matrix: Fp8 | Nvfp4
        if scheme == "fp8":
            matrix = random_fp8(n, k, FP8_SCALE, generator)
            values = fp8_values(matrix)
        else:
            matrix = random_nvfp4(n, k, NVFP4_SCALES.get(module.rsplit(".", 1)[-1], NVFP4_SCALE), generator)
            values = nvfp4_values(matrix)
        plain[name] = values.cpu()
        quantised |= _named(module, matrix, scheme, shape.naming)
    return quantised, plain, schemes


def _outlines(shape: Shape) -> Tensors:
    """Names and sizes of all tensors of the model, without memory."""
    kind = getattr(transformers, shape.config["architectures"][0])
    # The class writes into what it is given.
    config = kind.config_class(**{key: deepcopy(each) for key, each in shape.config.items() if key != "architectures"})
    with torch.device("meta"):
        model = kind(config)
    names = dict(model.state_dict())
    if shape.config["tie_word_embeddings"]:
        names.pop("lm_head.weight", None)
    return names


def _is_text(name: str) -> bool:
    """Whether a tensor belongs to the language model."""
    return ".visual." not in name and "vision" not in name


def _plain(name: str, outline: torch.Tensor, level: float, generator: torch.Generator) -> torch.Tensor:
    """Values for what is not quantised, times `level`; norms and scales are around 1, so that no layer dies away."""
    noise = torch.randn(outline.shape, device=generator.device, generator=generator)
    last = name.rsplit(".", 1)[-1]
    if last == "A_log":
        values = noise.abs().clamp(0.1, 2.5)
    elif last in ("layer_scalar", "std_scale"):
        values = torch.ones_like(noise)
    elif last in ("bias", "std_bias", "dt_bias"):
        values = 0.1 * noise
    elif outline.dim() == 1:
        values = 1 + 0.1 * noise
    elif "conv1d" in name:
        values = 0.3 * noise
    elif name == "lm_head.weight":
        values = 0.1 * noise
    else:
        values = 0.02 * noise
    return (level * values).to(torch.float16)


def _named(module: str, matrix: Fp8 | Nvfp4, scheme: str, naming: str) -> Tensors:
    """A module's tensors as compressed-tensors or ModelOpt call them."""

    def number(value: float) -> torch.Tensor:
        return torch.tensor(value, dtype=torch.float32)

    if isinstance(matrix, Fp8):
        tensors = {"weight": matrix.codes, "weight_scale": number(matrix.scale), "input_scale": number(10.0 / 448)}
    elif naming == "modelopt":
        tensors = {
            "weight": matrix.codes,
            "weight_scale": matrix.block_scale,
            "weight_scale_2": number(matrix.scale),
        }
        if scheme == "nvfp4-activations":
            tensors["input_scale"] = number(INPUT_SCALE)
    else:
        tensors = {
            "weight_packed": matrix.codes,
            "weight_scale": matrix.block_scale,
            "weight_global_scale": number(1 / matrix.scale).reshape(1),
        }
        if scheme == "nvfp4-activations":
            tensors["input_global_scale"] = number(1 / INPUT_SCALE).reshape(1)
    return {f"{module}.{name}": tensor.cpu().contiguous() for name, tensor in tensors.items()}


def quantisation(shape: Shape, schemes: dict[str, str]) -> dict[str, Any]:
    """What config.json says of the quantised modules."""
    if shape.naming == "compressed-tensors":
        return compressed_tensors(activations="nvfp4-activations" in schemes.values())
    algorithms = {"fp8": "FP8", "nvfp4": "W4A16_NVFP4", "nvfp4-activations": "NVFP4"}
    if set(schemes.values()) == {"nvfp4-activations"}:
        ignore = ["lm_head", "model.embed_vision*", "model.vision_tower*", "model.language_model.layers.*.self_attn*"]
        numbers = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
        groups = {"group_0": {"input_activations": numbers, "weights": numbers, "targets": ["Linear"]}}
        return {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": groups, "ignore": ignore}
    layers = {
        module: {"quant_algo": algorithms[scheme]} | ({} if scheme == "fp8" else {"group_size": 16})
        for module, scheme in schemes.items()
    }
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "ignore": []}


def compressed_tensors(*, activations: bool) -> dict[str, Any]:
    """NVFP4 in all linear layers but the output head, with or without scales of activations."""
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
    group = {
        "targets": ["Linear"],
        "format": "nvfp4-pack-quantized",
        "weights": weights | {"dynamic": False},
        "input_activations": weights | {"dynamic": "local"} if activations else None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def write(folder: Path, shape: Shape, tokenizer: Path, tensors: Tensors, quantised: dict[str, Any] | None) -> None:
    """Write one checkpoint: weights, configuration, tokenizer, and what prepares images for a vision tower."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = shape.config | ({} if quantised is None else {"quantization_config": quantised})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 0}))
    loaded = transformers.PreTrainedTokenizerFast.from_pretrained(
        tokenizer, extra_special_tokens=dict(shape.vision_tokens)
    )
    ids = loaded.convert_tokens_to_ids(list(shape.vision_tokens.values()))
    if ids != list(range(FIRST_SPECIAL_TOKEN, FIRST_SPECIAL_TOKEN + len(ids))):
        raise ValueError(f"the special tokens did not get the ids from {FIRST_SPECIAL_TOKEN} on: {ids}")
    if shape.processor is None:
        loaded.save_pretrained(folder)
    else:
        _processor(shape, loaded).save_pretrained(folder)


def _processor(shape: Shape, tokenizer: Any) -> Any:
    if shape.processor == "Qwen3VLProcessor":
        size = {"shortest_edge": 56 * 56, "longest_edge": 256 * 256}
        images = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "size": size}
        return transformers.Qwen3VLProcessor(
            transformers.Qwen2VLImageProcessor(**images), tokenizer, transformers.Qwen3VLVideoProcessor(**images)
        )
    return transformers.Gemma4Processor(
        feature_extractor=transformers.Gemma4AudioFeatureExtractor(),
        image_processor=transformers.Gemma4ImageProcessor(),
        tokenizer=tokenizer,
        video_processor=transformers.Gemma4VideoProcessor(),
    )


if __name__ == "__main__":
    main()
