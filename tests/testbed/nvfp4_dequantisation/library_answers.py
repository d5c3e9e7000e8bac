"""What libraries make of a quantised checkpoint, beside what a plain one of it holds.

`python library_answers.py '{"loaded": [[QUANTISED, PLAIN, DTYPE], ...], "decompressed": [[QUANTISED, PLAIN], ...],
"tokens": [...]}'` prints, for each pair, the names of weights that differ and how many were compared. `loaded`:
transformers loads both, and tells the logits of both for the last token. `decompressed`: compressed-tensors computes
each module of QUANTISED in float32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    asked = json.loads(sys.argv[1])
    loaded = [load(*each, asked["tokens"]) for each in asked["loaded"]]
    print(json.dumps({"loaded": loaded, "decompressed": [decompress(*each) for each in asked["decompressed"]]}))


def load(quantised: str, plain: str, dtype: str, tokens: list[int]) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    models = [
        AutoModelForCausalLM.from_pretrained(each, dtype=getattr(torch, dtype)).eval() for each in (quantised, plain)
    ]
    with torch.no_grad():
        # A compressed model decompresses its weights when it first runs.
        logits = [model(torch.tensor([tokens])).logits[0, -1].tolist() for model in models]
    held = [dict(model.named_parameters()) for model in models]
    both = [name for name, weight in held[0].items() if name in held[1] and held[1][name].shape == weight.shape]
    return {**differences(held[0], held[1], both), "logits": logits}


def decompress(quantised: str, plain: str) -> dict[str, Any]:
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from safetensors.torch import load_file

    tensors, ours = (load_file(Path(each) / "model.safetensors") for each in (quantised, plain))
    theirs = {}
    for name, stored in tensors.items():
        stem, _, part = name.rpartition(".")
        scale = tensors.get(f"{stem}.weight_scale")
        if scale is None or part not in ("weight", "weight_packed"):
            continue
        if part == "weight_packed":
            codes = unpack_fp4_from_uint8(stored, stored.shape[0], stored.shape[1] * 2, torch.float32)
        else:
            codes = stored.to(torch.float32)
        shared = tensors.get(f"{stem}.weight_global_scale")
        theirs[f"{stem}.weight"] = dequantize(codes, scale.to(torch.float32), global_scale=shared, dtype=torch.float32)
    return differences(theirs, ours, list(theirs))


def differences(first: dict[str, Any], second: dict[str, Any], names: list[str]) -> dict[str, Any]:
    import torch

    different = [name for name in names if not torch.equal(first[name].float(), second[name].float())]
    return {"compared": len(names), "different": different}


if __name__ == "__main__":
    main()
