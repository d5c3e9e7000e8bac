"""Is attention right, and how fast is it? One command on a machine with a GPU.

    python3 bench/attention/run.py --extension DIR [--out OUT] [--quick] [--seconds N] [--peers .gpu-run/triton70.tar]

DIR holds the built extension, vllm_volta/_C*.so, at any depth; vLLM is not needed. Claims against float64, errors next
to SDPA's and Triton's, then times next to theirs. --peers: vLLM's Triton attention (pack_peers.py); without it those
columns are missing. Everything goes to --out too: claims.jsonl, errors.jsonl, performance.jsonl, machine.json.
Without --correctness, --accuracy or --performance all three are done. Ends with 1 when a result is wrong, never for
being slow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.attention import shapes  # noqa: E402
from bench.gpu import guard, installation  # noqa: E402
from bench.gpu.claims import Claim, claims_table, try_claims  # noqa: E402
from bench.gpu.machine import machine_record, write_lines  # noqa: E402

if TYPE_CHECKING:
    import torch

    from bench.attention.peers import Triton

PEERS = REPOSITORY / ".gpu-run" / "triton70.tar"
GUARDED_SECONDS = 120
WARM_SECONDS = 120
WARM_PROCESSES = 8
CLAIM_FIGURES = {"error": ".2e", "worst row": ".2f"}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--extension", type=Path, required=True, help="folder with vllm_volta/_C*.so below")
    arguments.add_argument("--correctness", action="store_true")
    arguments.add_argument("--accuracy", action="store_true")
    arguments.add_argument("--performance", action="store_true")
    arguments.add_argument("--quick", action="store_true", help="some of the cases and layers")
    arguments.add_argument("--out", type=Path, default=Path("bench-attention"), help="folder for all figures")
    arguments.add_argument("--peers", type=Path, default=PEERS, help=f"archive of Triton kernels ({PEERS.name})")
    arguments.add_argument("--layers", default="", help="only layers whose name contains this")
    arguments.add_argument("--claims", default="", help="only claims whose name contains this")
    arguments.add_argument("--fragments", choices=["quad-pairs", "octets"], help="those of another GPU, for timing")
    arguments.add_argument("--seconds", type=float, help="begin no further batch after so many (80, quick 12)")
    arguments.add_argument(
        "--no-guard", action="store_true", help="leave out the run between guard zones, as --quick does"
    )
    arguments.add_argument("--seed", type=int, default=11)
    arguments.add_argument("--warm", type=int, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if not (given.correctness or given.accuracy or given.performance):
        given.correctness = given.accuracy = given.performance = True
    given.out.mkdir(parents=True, exist_ok=True)
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
    warnings.filterwarnings("ignore", module="torch.nn.attention|torch.nn.functional|bench.attention.peers")
    if given.warm is not None:
        return warm(given, device)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor() as pool:
        compiling = start_warming(given) if given.accuracy or given.performance else []
        guarding = pool.submit(guarded, given) if given.correctness and not (given.no_guard or given.quick) else None
        own = int(torch.ops.vllm_volta.panel_fragments(torch.zeros(1, device=device)))
        machine = {**machine_record(built), "fragments": own, "peers": given.peers.is_file()}
        print(" ".join(f"{key}={value}" for key, value in machine.items()), flush=True)
        write_lines(given.out / "machine.json", [machine])
        wrong = correctness(given, device) if given.correctness else 0
        if guarding is not None:
            wrong += print_guarded(given, *guarding.result())
        if given.accuracy or given.performance:
            for process in compiling:
                process.wait()
            print(f"{time.monotonic() - begun:.0f} s so far", flush=True)
            triton = load_peers(given, Path(scratch))
            if given.accuracy:
                wrong += accuracy(given, device, triton)
            if given.performance:
                performance(given, device, own, triton)
    print(f"\n{time.monotonic() - begun:.0f} s in all; {'ALL RIGHT' if not wrong else f'{wrong} WRONG'}")
    return int(wrong > 0)


def layers(given: argparse.Namespace) -> tuple[shapes.Heads, ...]:
    chosen = shapes.QUICK if given.quick and not given.layers else shapes.ALL
    return tuple(each for each in chosen if given.layers.lower() in each.name.lower())


def load_peers(given: argparse.Namespace, scratch: Path) -> Triton | None:
    from bench.attention import peers

    if not given.peers.is_file():
        print(f"{given.peers} is not there: no Triton (bench/attention/pack_peers.py makes it)", flush=True)
        return None
    return peers.load_triton(given.peers, scratch)


def start_warming(given: argparse.Namespace) -> list[subprocess.Popen[bytes]]:
    """Processes that compile the peers' kernels, so that Triton's and the driver's disk caches have them: one after the
    other they would take minutes. While claims are tried nothing is timed."""
    if not given.peers.is_file():
        return []
    count = min(WARM_PROCESSES, max(1, (os.cpu_count() or 2) // 2), len(layers(given)))
    command = [sys.executable, __file__, "--extension", str(given.extension), "--peers", str(given.peers)]
    command += ["--out", str(given.out), "--layers", given.layers] + (["--quick"] if given.quick else [])
    with (given.out / "warm.log").open("wb") as log:
        return [
            subprocess.Popen([*command, "--warm", str(index * 100 + count)], stdout=log, stderr=subprocess.STDOUT)
            for index in range(count)
        ]


def warm(given: argparse.Namespace, device: torch.device) -> int:
    """Start each of the peers' kernels of some layers once. given.warm: which of how many shares, share * 100 + all."""
    import torch

    from bench.attention import accuracy, peers
    from bench.attention.shapes import Batch

    share, shares = divmod(given.warm, 100)
    generator = torch.Generator(device).manual_seed(given.seed)
    with tempfile.TemporaryDirectory() as scratch:
        triton = peers.load_triton(given.peers, Path(scratch))
        for heads in layers(given)[share::shares]:
            for requests in shapes.REQUESTS:
                accuracy.errors_of(Batch(heads, requests, 1, 40), 1.0, triton, generator)
            accuracy.errors_of(Batch(heads, 1, 40, 40), 1.0, triton, generator)
            torch.cuda.synchronize()
            print(f"{heads.name} is compiled", flush=True)
    return 0


def correctness(given: argparse.Namespace, device: torch.device) -> int:
    """Tries the claims, prints them; returns how many things were wrong."""
    import torch

    from bench.attention import correctness as claims_module

    bench = claims_module.Bench(device, torch.Generator(device).manual_seed(given.seed), given.quick)
    every = {**claims_module.PORTABLE, **claims_module.ON_A_GPU}
    chosen = {name: each for name, each in every.items() if given.claims in name}
    claims = try_claims(bench, chosen, Claim, torch.cuda.synchronize)
    print("\n".join(["", *claims_table("Against float64", claims, CLAIM_FIGURES)]), flush=True)
    write_lines(given.out / "claims.jsonl", [asdict(claim) for claim in claims])
    return sum(len(claim.wrong) for claim in claims)


def guarded(given: argparse.Namespace) -> tuple[list[Claim], int, str]:
    """The claims, the number of broken zones and what the process said."""
    program = Path(__file__).with_name("guarded.py")
    arguments = ["--extension", str(given.extension)]
    return guard.outside(program, arguments, given.out / "guarded.log", GUARDED_SECONDS, Claim)


def print_guarded(given: argparse.Namespace, claims: list[Claim], broken: int, said: str) -> int:
    title = "Between guard zones, in memory full of NaN"
    print("\n".join(["", *claims_table(title, claims, CLAIM_FIGURES)]))
    print(f"guard zones written to: {broken}" + (f"\n{said}" if broken or said else ""), flush=True)
    write_lines(given.out / "guarded.jsonl", [asdict(claim) for claim in claims])
    return broken + sum(len(claim.wrong) for claim in claims)


def accuracy(given: argparse.Namespace, device: torch.device, triton: Triton | None) -> int:
    """Prints the errors; returns how many are none of rounding."""
    import torch

    from bench.attention import accuracy as measuring
    from bench.attention import report

    generator = torch.Generator(device).manual_seed(given.seed)
    until = time.monotonic() + (10 if given.quick else 30)
    found = list(measuring.errors(measuring.batches(layers(given), given.quick), triton, generator, until))
    write_lines(given.out / "errors.jsonl", [asdict(each) for each in found])
    print("\n".join(["", *report.errors_table(found)]), flush=True)
    return sum(len(each.disagreeing) for each in found)


def performance(given: argparse.Namespace, device: torch.device, own: int, triton: Triton | None) -> None:
    import torch

    from bench.attention import performance as measuring
    from bench.attention import report
    from bench.attention.findings import FRAGMENTS
    from bench.gpu.timing import copy_rate

    generator = torch.Generator(device).manual_seed(given.seed)
    fragments = {"quad-pairs": 0, "octets": 1}.get(given.fragments, own)
    seconds = given.seconds or (12 if given.quick else 80)
    chosen = layers(given)
    contexts, requests = (
        (shapes.QUICK_CONTEXTS, shapes.QUICK_REQUESTS) if given.quick else (shapes.CONTEXTS, shapes.REQUESTS)
    )
    prompts = shapes.QUICK_PROMPTS if given.quick else shapes.PROMPTS
    batches = [
        batch
        for heads in chosen
        for batch in (
            *shapes.decode_batches([heads], contexts, requests, measuring.MOST_CACHE_BYTES),
            *shapes.prefill_batches([heads], prompts),
        )
    ]
    copying, half = copy_rate(), measuring.half_rate()
    print(
        f"\ncopying: {copying / 1e9:.0f} GB/s, cuBLAS fp16: {half / 1e12:.0f} TFLOP/s; "
        f"{FRAGMENTS[fragments]}; random data, median of graph replays, decoding past the L2 cache"
    )
    pool = measuring.new_pool(max(256 << 20, *(measuring.numbers_of(batch) for batch in batches)), generator)
    until = time.monotonic() + seconds
    rows = list(measuring.rows(batches, pool, fragments, triton, copying, half, until))
    write_lines(given.out / "performance.jsonl", [row.record for row in rows])
    print("\n".join(report.performance_tables(rows)))
    print("\n".join(["", *report.targets(rows), *report.left_out(chosen, len(batches), rows)]), flush=True)
    if triton is not None:
        used = {each.target for each in triton.kernels.variants if each.file in triton.kernels.used}
        print(f"Triton sm_70: {len(triton.kernels.used)} kernels, {', '.join(sorted(used))}, compiled by the driver")


if __name__ == "__main__":
    sys.exit(main())
