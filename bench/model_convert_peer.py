"""compressed-tensors' own compressor, for bench/model_convert.py: runs in the interpreter of an engine environment.

`python model_convert_peer.py TENSORS` loads a safetensors file and answers requests, a line of JSON each: what to do
and with which tensor, `{"do": "nvfp4", "name": "..."}`. The answers are lines too: wall and processor seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    import compressed_tensors
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(2)
    tensors = load_file(sys.argv[1])
    print(json.dumps({"version": compressed_tensors.__version__, "torch": torch.__version__}), flush=True)
    made: dict[tuple[str, str], Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name, what = request["name"], request["do"]
        work = prepared(what, tensors[name], made.get((what.removesuffix(" back"), name)))
        began, used = time.perf_counter(), time.process_time()
        with torch.no_grad():
            made[what, name] = work()
        found = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - used}
        print(json.dumps(found), flush=True)


def prepared(what: str, weight: Any, made: Any) -> Callable[[], Any]:
    from compressed_tensors.compressors import FloatQuantizationCompressor
    from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.quant_scheme import FP8_BLOCK, NVFP4A16
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    kind = what.removesuffix(" back")
    scheme = QuantizationScheme(targets=["Linear"], **(NVFP4A16 if kind == "nvfp4" else FP8_BLOCK))
    compressor = NVFP4PackedCompressor if kind == "nvfp4" else FloatQuantizationCompressor

    def nvfp4() -> Any:
        blocks = weight.unflatten(-1, (-1, 16))
        low, high = blocks.amin(-1), blocks.amax(-1)
        global_scale = generate_gparam(low.min(), high.max())
        scale, _ = calculate_qparams(low, high, scheme.weights, global_scale)
        tensors = {"weight": weight, "weight_scale": scale, "weight_global_scale": global_scale}
        return compressor.compress(tensors, scheme)

    def fp8() -> Any:
        blocks = weight.unflatten(0, (-1, 128)).unflatten(-1, (-1, 128))
        scale, _ = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), scheme.weights)
        return compressor.compress({"weight": weight, "weight_scale": scale}, scheme)

    if what.endswith(" back"):
        return lambda: compressor.decompress(made, scheme)
    return nvfp4 if kind == "nvfp4" else fp8


if __name__ == "__main__":
    main()
