"""Run by the engine's interpreter: what its own libraries make of converted checkpoints, as one JSON document.

Standard input: {"load": [[converted, plain], ...], "lists": [arguments of wrongly_read, ...]}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def loaded(converted: Path, plain: Path) -> dict[str, Any]:
    """How transformers reads a checkpoint, against the values that onecat says its codes mean."""
    import torch
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    from transformers.utils.quantization_config import CompressedTensorsConfig

    stated = json.loads((converted / "config.json").read_text())["quantization_config"]
    parsed = QuantizationConfig.model_validate(stated)
    model = AutoModelForCausalLM.from_pretrained(
        converted, dtype=torch.float32, quantization_config=CompressedTensorsConfig(dequantize=True)
    )
    seen, expected = model.state_dict(), load_file(plain / "model.safetensors")
    errors = {
        name: float(((seen[name].float() - value.float()).abs() / value.float().abs().clamp(min=1e-30)).max())
        for name, value in expected.items()
    }
    return {
        "format": parsed.format,
        "status": parsed.quantization_status.value,
        "names": seen.keys() == expected.keys(),
        "worst": max(errors.values()),
        "of": max(errors, key=lambda name: errors[name]),
    }


def wrongly_read(
    flavour: str, config: dict[str, Any], fused: dict[str, list[str]], quantised: list[str], left: list[str]
) -> list[str]:
    """Modules, by vLLM's names, of which its own configuration classes say the wrong thing.

    fused: packed_modules_mapping of the model.
    """
    ignored = _ignored(flavour, config, fused)
    return [name for name in quantised if ignored(name)] + [name for name in left if not ignored(name)]


def _ignored(flavour: str, config: dict[str, Any], fused: dict[str, list[str]]) -> Any:
    if flavour == "compressed-tensors":
        from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors, utils

        read = compressed_tensors.CompressedTensorsConfig.from_config(config)
        return lambda name: utils.should_ignore_layer(name, read.ignore, fused)
    if flavour == "modelopt":
        from vllm.model_executor.layers.quantization import modelopt

        method = modelopt.ModelOptNvFp4Config.override_quantization_method(config, None)
        assert method == "modelopt_fp4", method
        stated = modelopt.ModelOptNvFp4Config.from_config(config)
        stated.packed_modules_mapping = fused
        return stated.is_layer_excluded
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config
    from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped

    layers = Fp8Config.from_config(config).ignored_layers
    return lambda name: is_layer_skipped(name, layers, fused)


def main() -> None:
    asked = json.load(sys.stdin)
    told = os.dup(1)
    os.dup2(2, 1)  # libraries print
    answer = {
        "load": [loaded(Path(converted), Path(plain)) for converted, plain in asked["load"]],
        "lists": [wrongly_read(**each) for each in asked["lists"]],
    }
    os.write(told, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
