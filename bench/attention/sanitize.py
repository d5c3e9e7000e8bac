"""All kernels for attention on small shapes under compute-sanitizer's memcheck and racecheck, in bounded time.

    python3 bench/attention/sanitize.py --extension DIR [--out DIR] [--seconds 60]

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

# Head size and query heads of a KV head: each padded head size, and both heights of tiles of rows of split attention.
HEADS = ((64, 4), (80, 12), (128, 8), (256, 6), (256, 12), (512, 8))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--extension", type=Path, required=True, help="folder with vllm_volta/_C*.so below")
    arguments.add_argument("--out", type=Path, default=Path("bench-attention"))
    arguments.add_argument("--seconds", type=float, default=60, help="for each tool")
    arguments.add_argument("--tools", default=",".join(TOOLS))
    arguments.add_argument("--child", action="store_true", help="start the kernels, under no tool")
    given = arguments.parse_args()
    if given.child:
        start_every_kernel(given.extension)
        return 0
    program = [__file__, "--extension", str(given.extension), "--child"]
    return sanitize(program, given.tools.split(","), given.out, given.seconds)


def start_every_kernel(extension: Path) -> None:
    """Decoding whose keys thread blocks share, prompts, both at once; results are looked at too."""
    import torch

    from bench.gpu import installation

    installation.use(extension)
    from bench.attention import operators
    from bench.attention.cases import random_case
    from bench.attention.comparison import compare
    from bench.attention.findings import FRAGMENTS
    from bench.attention.reference import exact
    from bench.attention.shapes import Heads

    # Everything but the kernels is done by the processor: each kernel of torch would be looked at too.
    generator = torch.Generator().manual_seed(11)
    gpu = torch.device("cuda", 0)
    for head_size, group in HEADS:
        heads = Heads("sanitized", group, 1, head_size)
        case = random_case(heads, (700, 33, 1, 60), (1, 2, 1, 45), generator).with_options(window=600)
        expected = exact(case)
        for fragments, kind in FRAGMENTS.items():
            for decodes in (3, 0):
                found, space = operators.answer(case, fragments, decodes, gpu)
                comparison = compare(found, expected)
                assert comparison.holds, f"D{head_size}, {kind}, {decodes} decoding: {comparison}"
                assert not space.arrivals.cpu().any(), f"D{head_size}, {kind}: counts of arrivals"
    torch.cuda.synchronize()
    print(FINISHED, flush=True)


if __name__ == "__main__":
    sys.exit(main())
