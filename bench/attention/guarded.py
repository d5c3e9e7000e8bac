"""Claims of correctness.py between guard zones (bench/gpu/guard.py). run.py starts it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.gpu import guard  # noqa: E402
from bench.gpu.claims import Claim, try_claims  # noqa: E402


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--extension", type=Path, required=True)
    arguments.add_argument("--scratch", type=Path, required=True, help="where the allocator is built")
    arguments.add_argument("--seed", type=int, default=11)
    given = arguments.parse_args()

    def claims() -> Sequence[Claim]:
        import torch

        from bench.gpu import installation

        installation.use(given.extension)
        from bench.attention import correctness

        # Cases are made and looked at by the processor: each allocation between guard zones takes long.
        generator = torch.Generator().manual_seed(given.seed)
        bench = correctness.Bench(torch.device("cuda", 0), generator, quick=True, small=True)
        chosen = {name: correctness.PORTABLE[name] for name in correctness.GUARDED}
        return try_claims(bench, chosen, Claim, torch.cuda.synchronize)

    guard.inside(given.scratch, claims)
    return 0


if __name__ == "__main__":
    sys.exit(main())
