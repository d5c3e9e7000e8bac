"""Are our kernels right on this machine's GPU, and how fast are they next to cuBLAS? One command, short tables.

    python3 bench/kernels/run.py --extension DIR [--quick] [--correctness] [--performance] [--out DIR]

DIR holds the built extension, vllm_volta/_C*.so, at any depth. Without --correctness or --performance both are done.
Everything goes to --out too: correctness.jsonl, performance.jsonl, crossover.jsonl, machine.json. --quick takes some of
the cases and layers (under a minute), otherwise all (under four). Ends with 1 when a result is wrong, never for being
slow.

--sweep NAME=VALUE,VALUE runs the performance part once more for each value of an environment variable that the launcher
reads, in a process of its own, into OUT/NAME=VALUE.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.gpu import guard, installation  # noqa: E402
from bench.gpu.claims import try_claims  # noqa: E402
from bench.gpu.machine import machine_record, write_lines  # noqa: E402
from bench.kernels import report, shapes  # noqa: E402
from bench.kernels.findings import ProductClaim  # noqa: E402

GUARDED_SECONDS = 120
QUICK_TOKENS = (1, 8, 16, 64, 1024)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--extension", type=Path, required=True, help="folder with vllm_volta/_C*.so below")
    arguments.add_argument("--correctness", action="store_true")
    arguments.add_argument("--performance", action="store_true")
    arguments.add_argument("--quick", action="store_true", help="some of the cases and layers")
    arguments.add_argument("--out", type=Path, default=Path("bench-kernels"), help="folder for all figures")
    arguments.add_argument("--layers", default="", help="only layers whose model or name contains this")
    arguments.add_argument("--tokens", default="", help="numbers of tokens, as 1,8,64")
    arguments.add_argument("--formats", default="", help="of nvfp4, fp8 block, fp8 channel, with commas between")
    arguments.add_argument("--claims", default="", help="only claims whose name contains this")
    arguments.add_argument("--fragments", choices=["quad-pairs", "octets"], help="those of another GPU, for timing")
    arguments.add_argument("--seconds", type=float, help="begin no further layer after so many (150, quick 25)")
    arguments.add_argument("--no-guard", action="store_true", help="leave out the run between guard zones")
    arguments.add_argument("--no-crossover", action="store_true")
    arguments.add_argument("--sweep", metavar="NAME=VALUE,VALUE", help="an environment variable of the launcher")
    arguments.add_argument("--seed", type=int, default=11)
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.sweep:
        return sweep(given)
    both = not given.correctness and not given.performance
    begun = time.monotonic()
    try:
        built = installation.use(given.extension)
    except installation.NotBuilt as reason:
        print(reason, file=sys.stderr)
        return 2

    import torch

    if not torch.cuda.is_available():
        print("torch sees no GPU here", file=sys.stderr)
        return 2
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    probe = torch.zeros(1, device=device)
    own = int(torch.ops.vllm_volta.panel_fragments(probe))
    machine = {**machine_record(built), "fragments": own}
    loading = time.monotonic()
    first_call(own)
    machine["first_kernel_seconds"] = round(time.monotonic() - loading, 2)
    print(" ".join(f"{key}={value}" for key, value in machine.items()), flush=True)
    write_lines(given.out / "machine.json", [machine])
    wrong = 0
    if both or given.correctness:
        wrong = correctness(given, device)
    if both or given.performance:
        performance(given, device, own)
    print(f"\n{time.monotonic() - begun:.0f} s in all; {'ALL RIGHT' if not wrong else f'{wrong} WRONG'}")
    return int(wrong > 0)


def first_call(fragments: int) -> None:
    """Starts one kernel: the driver compiles PTX for this GPU when the first is started."""
    import torch

    from bench.kernels.weights import random_panels

    weight = random_panels("nvfp4", 32, 64, fragments, torch.Generator("cuda"))
    weight.panels(torch.zeros(1, 64, dtype=torch.float16, device="cuda"))
    torch.cuda.synchronize()


def correctness(given: argparse.Namespace, device: object) -> int:
    """Tries the claims, prints them; returns how many things were wrong."""
    import torch

    from bench.kernels import correctness as claims_module

    assert isinstance(device, torch.device)
    bench = claims_module.Bench(device, torch.Generator(device).manual_seed(given.seed), given.quick)
    every = {**claims_module.PORTABLE, **claims_module.ON_A_GPU}
    chosen = {name: each for name, each in every.items() if given.claims in name}
    claims = try_claims(bench, chosen, ProductClaim, torch.cuda.synchronize)
    print("\n".join(["", *report.claims_table("Against float64", claims)]), flush=True)
    wrong = sum(len(claim.wrong) for claim in claims)
    lines: list[dict[str, object]] = [{"guarded": False, **asdict(claim)} for claim in claims]
    if not given.no_guard:
        again, broken, said = guarded(given)
        print("\n".join(["", *report.claims_table("Between guard zones, in memory full of NaN", again)]))
        print(f"guard zones written to: {broken}" + (f"\n{said}" if broken or said else ""), flush=True)
        wrong += broken + sum(len(claim.wrong) for claim in again)
        lines += [{"guarded": True, **asdict(claim)} for claim in again]
    write_lines(given.out / "correctness.jsonl", lines)
    return wrong


def guarded(given: argparse.Namespace) -> tuple[list[ProductClaim], int, str]:
    """The claims, the number of broken zones and what the process said."""
    program = Path(__file__).with_name("guarded.py")
    arguments = ["--extension", str(given.extension)]
    return guard.outside(program, arguments, given.out / "guarded.log", GUARDED_SECONDS, ProductClaim)


def performance(given: argparse.Namespace, device: object, own: int) -> None:
    import torch

    from bench.gpu.timing import copy_rate
    from bench.kernels import performance as measuring

    assert isinstance(device, torch.device)
    generator = torch.Generator(device).manual_seed(given.seed)
    fragments = {"quad-pairs": 0, "octets": 1}.get(given.fragments, own)
    seconds = given.seconds or (25 if given.quick else 150)
    layers = shapes.QUICK_LAYERS if given.quick else shapes.LAYERS
    layers = shapes.matching(shapes.LAYERS if given.layers else layers, given.layers)
    tokens = (
        [int(m) for m in given.tokens.split(",")]
        if given.tokens
        else list(QUICK_TOKENS if given.quick else shapes.TOKENS)
    )
    formats = given.formats.split(",") if given.formats else ["nvfp4"] if given.quick else ["nvfp4", "fp8 block"]
    rate = copy_rate()
    print(f"\ncopying: {rate / 1e9:.0f} GB/s; weights rotated past the L2 cache, random data, median of graph replays")
    until = time.monotonic() + seconds
    rows = list(measuring.rows(layers, formats, tokens, rate, fragments, generator, until))
    write_lines(given.out / "performance.jsonl", [row.record for row in rows])
    print("\n".join(report.performance_tables(rows)))
    print("\n".join(["", *report.targets(rows)]))
    missing = len(layers) - len({row.layer for row in rows})
    if missing:
        print(f"{missing} of {len(layers)} layers left out after {seconds:.0f} s")
    if given.no_crossover:
        return
    chosen = shapes.CROSSOVER_LAYERS[-1:] if given.quick else shapes.CROSSOVER_LAYERS
    until = time.monotonic() + seconds / 3
    found = list(measuring.crossings(chosen, formats, shapes.CROSSOVER_TOKENS, fragments, generator, until))
    write_lines(given.out / "crossover.jsonl", [asdict(each) for each in found])
    print("\n".join(report.crossings_table(found)), flush=True)


def sweep(given: argparse.Namespace) -> int:
    """The performance part again in a process for each value; its arguments are this one's."""
    name, _, values = given.sweep.partition("=")
    skipped = False
    arguments = []
    for argument in sys.argv[1:]:
        if skipped or argument.startswith("--sweep="):
            skipped = False
        elif argument == "--sweep":
            skipped = True
        else:
            arguments.append(argument)
    code = 0
    for value in values.split(","):
        print(f"\n=== {name}={value}", flush=True)
        command = [sys.executable, __file__, *arguments, "--performance", "--out", str(given.out / f"{name}={value}")]
        code = max(code, subprocess.run(command, env={**os.environ, name: value}, check=False).returncode)
    return code


if __name__ == "__main__":
    sys.exit(main())
