"""All kernels on small shapes under compute-sanitizer's memcheck and racecheck, in bounded time.

    python3 bench/kernels/sanitize.py --extension DIR [--out DIR] [--seconds 150]

Prints a line for each tool; its whole output goes to OUT/TOOL.log. Where the machine's kernel lets compute-sanitizer
attach to nothing (gVisor), the line says what it said. Ends with 1 when a tool found something, 2 when one could not
run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.gpu.sanitizer import FINISHED, TOOLS, sanitize  # noqa: E402

# (n, k): one panel and less; several groups with a rest; a block of rows that thread blocks share; several chunks.
SHAPES = ((1, 16), (161, 80), (40, 2048))
TOKENS = (1, 9, 17, 64)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--extension", type=Path, required=True, help="folder with vllm_volta/_C*.so below")
    arguments.add_argument("--out", type=Path, default=Path("bench-kernels"))
    arguments.add_argument("--seconds", type=float, default=150, help="for each tool")
    arguments.add_argument("--tools", default=",".join(TOOLS))
    arguments.add_argument("--child", action="store_true", help="start the kernels, under no tool")
    given = arguments.parse_args()
    if given.child:
        start_every_kernel(given.extension)
        return 0
    program = [__file__, "--extension", str(given.extension), "--child"]
    return sanitize(program, given.tools.split(","), given.out, given.seconds)


def start_every_kernel(extension: Path) -> None:
    import torch

    from bench.gpu import installation

    installation.use(extension)
    from bench.kernels.correctness import FRAGMENTS
    from bench.kernels.weights import FORMATS, random_weight

    # Everything but the kernels is done by the processor: each kernel of torch would be looked at too.
    generator = torch.Generator().manual_seed(11)
    gpu = torch.device("cuda", 0)

    def activations(m: int, k: int) -> torch.Tensor:
        return torch.randn(m, k, generator=generator).half().to(gpu)

    def random_bytes(*shape: int) -> torch.Tensor:
        return torch.randint(0, 126, shape, dtype=torch.uint8, generator=generator).to(gpu)

    for fragments in FRAGMENTS:
        for format_ in FORMATS:
            for n, k in SHAPES:
                weight = random_weight(format_, n, k, fragments, generator).on(gpu)
                for m in TOKENS:
                    out = weight.panels(activations(m, k))
                    assert torch.isfinite(out.cpu()).all() and not weight.arrivals.cpu().any()
                weight.dequantized(0, n)
                weight.linear(activations(70, k))
    ones = torch.ones(33).to(gpu)
    torch.ops.vllm_volta.dequantize_nvfp4(random_bytes(33, 40), random_bytes(33, 5), ones[:1], 33, 80)
    for columns in (80, 77):
        torch.ops.vllm_volta.dequantize_fp8(random_bytes(33, columns), ones, 0, 0)
    torch.cuda.synchronize()
    print(FINISHED, flush=True)


if __name__ == "__main__":
    sys.exit(main())
