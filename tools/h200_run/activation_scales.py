"""A copy of an NVFP4 checkpoint of compressed-tensors with scales of activations: `activation_scales.py SOURCE TARGET`.

The weights stay the same (W4A4 instead of W4A16): kernels that leave activations alone answer as before.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SCALE = torch.tensor([448 * 6 / 10.0])
"""Divides what the codes times the largest block scale can hold: activations up to 10 fit."""


def main() -> None:
    """Copy the folder, add a scale to each quantised module, and say so in config.json."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(source, target)
    tensors = load_file(target / "model.safetensors")
    modules = [name.removesuffix(".weight_packed") for name in tensors if name.endswith(".weight_packed")]
    tensors |= {f"{module}.input_global_scale": SCALE.clone() for module in modules}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    for group in config["quantization_config"]["config_groups"].values():
        group["input_activations"] = {
            "num_bits": 4,
            "type": "float",
            "strategy": "tensor_group",
            "group_size": 16,
            "symmetric": True,
            "dynamic": "local",
        }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    print(f"{target}: {len(modules)} modules with scales of activations")


if __name__ == "__main__":
    main()
