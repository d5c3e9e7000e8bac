"""Claims of correctness.py between guard zones (bench/gpu/guard.py). run.py starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.gpu import guard, installation  # noqa: E402
from bench.gpu.claims import Claim, try_claims  # noqa: E402


def claims(extension: Path, seed: int) -> Sequence[Claim]:
    import torch

    installation.use(extension)
    from bench.kernels import correctness
    from bench.kernels.findings import ProductClaim

    device = torch.device("cuda", 0)
    bench = correctness.Bench(device, torch.Generator(device).manual_seed(seed), quick=True)
    chosen = {name: correctness.PORTABLE[name] for name in correctness.GUARDED}
    return try_claims(bench, chosen, ProductClaim, torch.cuda.synchronize)


if __name__ == "__main__":
    guard.program(__doc__, claims)
