"""What the installed nvidia-modelopt makes of the weights in a file: run by hand, its answers are kept as a fixture.

`python modelopt_answers.py ORIGINALS FOUND` reads NAME.weight and NAME.largest (what else shares the tensor scale) and
writes them with NAME.packed, NAME.weight_scale, NAME.weight_scale_2 and NAME.values (float32), for weights in float32.
tests/fixtures/nvfp4/modelopt-0.47.0.safetensors was made so with PyTorch 2.13 for the CPU, from `modelopt_cases` of
tests/nvfp4_weights.py. To make it anew for another version, install nvidia-modelopt beside a PyTorch for the CPU.
"""

from __future__ import annotations

import sys


def main() -> None:
    import torch
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
    from safetensors.torch import load_file, save_file

    tensors = load_file(sys.argv[1])
    found = dict(tensors)
    for name, weight in tensors.items():
        case, _, kind = name.rpartition(".")
        if kind != "weight":
            continue
        values = weight.float()
        scale_2 = NVFP4QTensor.get_weights_scaling_factor_2(values)
        if f"{case}.largest" in tensors:
            scale_2 = torch.maximum(scale_2, tensors[f"{case}.largest"].max() / (6.0 * 448))
        made, scale, scale_2 = NVFP4QTensor.quantize(values.clone(), 16, None, scale_2)
        found[f"{case}.packed"], found[f"{case}.weight_scale"] = made._quantized_data, scale.contiguous()
        found[f"{case}.weight_scale_2"] = scale_2.reshape(1)
        found[f"{case}.values"] = made.dequantize(
            dtype=torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16}
        )
    save_file(found, sys.argv[2])


if __name__ == "__main__":
    main()
