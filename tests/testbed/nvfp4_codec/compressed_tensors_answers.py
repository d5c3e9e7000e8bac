"""What the installed compressed-tensors makes of the weights in a file, and of the tensors that our codec made of them.

`python compressed_tensors_answers.py FOLDER` reads originals.safetensors (NAME.SCHEME.weight, of which SCHEME is nvfp4,
block, channel or tensor; NAME.SCHEME.largest: what else shares the tensor's global scale) and ours.safetensors, and
writes theirs.safetensors: the same names as ours; `.decompressed` (bfloat16) and `.decompressed32` (float32) are made
of ours; those with `.narrow` of the weight in its own type instead of float32.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Tensors = dict[str, Any]


def main() -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(sys.argv[1])
    originals, ours = load_file(folder / "originals.safetensors"), load_file(folder / "ours.safetensors")
    theirs: Tensors = {}
    for name, weight in originals.items():
        case, _, kind = name.rpartition(".")
        if kind != "weight":
            continue
        scheme = case.rpartition(".")[2]
        made = {each[len(case) + 1 :]: tensor for each, tensor in ours.items() if each.startswith(f"{case}.")}
        if scheme == "nvfp4":
            found = nvfp4(weight, originals.get(f"{case}.largest"), made)
        else:
            found = fp8(weight, scheme, made)
        theirs.update({f"{case}.{each}": tensor.contiguous() for each, tensor in found.items()})
    save_file(theirs, folder / "theirs.safetensors")


def nvfp4(weight: torch.Tensor, largest: torch.Tensor | None, ours: Tensors) -> Tensors:
    import torch
    from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.quantization.quant_scheme import NVFP4A16
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    scheme = QuantizationScheme(targets=["Linear"], **NVFP4A16)

    def compress(weight: torch.Tensor) -> Tensors:
        blocks = weight.unflatten(-1, (-1, 16))
        low, high = blocks.amin(-1), blocks.amax(-1)
        top = high.max() if largest is None else torch.maximum(high.max(), largest.max().to(high.dtype))
        global_scale = generate_gparam(low.min(), top)
        scale, _ = calculate_qparams(low, high, scheme.weights, global_scale)
        return NVFP4PackedCompressor.compress(
            {"weight": weight, "weight_scale": scale, "weight_global_scale": global_scale}, scheme
        )

    answers = compress(weight.float())
    # With one block in a row it takes block scales for those of channels, and rounds later.
    answers["decompressed"] = NVFP4PackedCompressor.decompress(ours, scheme)["weight"].to(torch.bfloat16)
    values = unpack_fp4_from_uint8(ours["weight_packed"], *weight.shape, dtype=torch.float32)
    scale = ours["weight_scale"].float()
    answers["decompressed32"] = dequantize(x_q=values, scale=scale, global_scale=ours["weight_global_scale"])
    if weight.dtype != torch.float32:
        answers.update({f"{name}.narrow": tensor for name, tensor in compress(weight).items()})
    return answers


def fp8(weight: torch.Tensor, strategy: str, ours: Tensors) -> Tensors:
    import torch
    from compressed_tensors.compressors import FloatQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, maybe_pad_tensor_for_block_quant

    block = {"block_structure": [128, 128]} if strategy == "block" else {}
    arguments = QuantizationArgs(num_bits=8, type="float", strategy=strategy, **block)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    values = weight.float()
    if strategy == "block":
        padded = maybe_pad_tensor_for_block_quant(values, (128, 128))
        blocks = padded.unflatten(0, (-1, 128)).unflatten(-1, (-1, 128))
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    elif strategy == "channel":
        low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    else:
        low, high = values.min(), values.max()
    scale, _ = calculate_qparams(low, high, arguments)
    answers = dict(FloatQuantizationCompressor.compress({"weight": values, "weight_scale": scale}, scheme))
    # For sizes that blocks do not divide compressed-tensors guesses other blocks than those it made.
    if strategy != "block" or not (weight.shape[0] % 128 or weight.shape[1] % 128):
        answers["decompressed32"] = FloatQuantizationCompressor.decompress(ours, scheme)["weight"]
    assert answers["weight_scale"].dtype == torch.float32
    return answers


if __name__ == "__main__":
    main()
