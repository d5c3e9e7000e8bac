"""What the machine code of attention lets a V100 do at best: bounds predicted by a model, never times of a V100.

Compiles the device code (NVRTC 12.6 -> compute_70 PTX -> ptxas), or takes PTX that is there (--ptx), counts the
instructions of a round of each kernel's main loop, and prints them, then for each layer and batch the model's bound,
what sets it, and how busy the busiest unit is while the memory works, or the TFLOP/s that the bound leaves.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.attention import shapes, volta  # noqa: E402
from bench.gpu.card import Card, assumptions, v100_named  # noqa: E402
from bench.gpu.machine_code import MissingTool, assembled, find_nvdisasm, machine_code  # noqa: E402
from bench.gpu.text_table import figure, table  # noqa: E402
from bench.gpu.units import Unit  # noqa: E402

SOURCES = REPOSITORY / "patches" / "vllm-0.27.1" / "add" / "vllm_volta" / "csrc"
CONTEXTS, REQUESTS = (2048, 8192, 32768), (1, 8)
MOST_CACHE_BYTES = 16 << 30
SHORT = {"memory": "mem", "shared memory": "smem", "FP16 + tensor": "tensor", "FP32 + IMAD": "fp32"}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nvdisasm", type=Path, help="one that knows sm_70")
    arguments.add_argument("--sources", type=Path, default=SOURCES, help="the folder of device_code.cu")
    arguments.add_argument("--ptx", type=Path, help="its PTX, where it is compiled already")
    arguments.add_argument("--card", default="Tesla V100-PCIE-32GB", help="its name in onecat/knowledge/gpus.yaml")
    arguments.add_argument("--layers", default="", help="those whose name contains this")
    arguments.add_argument("--out", type=Path, help="folder for model.jsonl, one line for each bound")
    given = arguments.parse_args()
    try:
        card = v100_named(given.card)
    except ValueError as reason:
        arguments.error(str(reason))
    with tempfile.TemporaryDirectory() as folder:
        try:
            nvdisasm = find_nvdisasm(given.nvdisasm)
            if given.ptx is None:
                code = machine_code(given.sources, "sm_70", nvdisasm, Path(folder))
            else:
                code = assembled(given.ptx.read_text(encoding="utf-8"), "sm_70", nvdisasm, Path(folder))
        except MissingTool as missing:
            print(missing, file=sys.stderr)
            return 2
    names = [name for name in code.functions if (found := volta.NAME.fullmatch(name)) and found["kind"] == "quad_pairs"]
    kernels = sorted((volta.kernel_of(code, name) for name in names), key=lambda each: (each.path, each.head_size))
    layers = [each for each in shapes.ALL if given.layers.lower() in each.name.lower()]
    bounds = predict(card, kernels, layers)
    print("\n".join([*counts(card, kernels), "", *assumptions(card), *volta.__doc__.strip().splitlines()[2:]]))
    print("\n".join(predictions(bounds)))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(record(batch, found)) + "\n" for batch, found in bounds]
        (given.out / "model.jsonl").write_text("".join(lines), encoding="utf-8")
    return 0


def counts(card: Card, kernels: Sequence[volta.Kernel]) -> list[str]:
    """A line for each kernel."""
    rows = [
        [
            kernel.name.removeprefix("attention_").replace("quad_pairs_", "D"),
            str(kernel.rows),
            str(kernel.registers) + (f" +{kernel.spilled_bytes}" if kernel.spilled_bytes else ""),
            str(volta.resident_warps(card, kernel)),
            *(str(kernel.counts[unit]) for unit in Unit),
            str(kernel.counts.total()),
            f"{min(1.0, 2 * kernel.least_steps / kernel.counts.total()):.0%}",
        ]
        for kernel in kernels
    ]
    head = ["kernel", "rows", "registers", "warps", *(unit.value for unit in Unit), "all", "tensor at best"]
    title = (
        "Warp instructions of a round (32 keys of a warp's rows), sm_70; registers + bytes spilled; warps that fit; "
        "share of the tensor cores' peak that issuing leaves"
    )
    return [title, *table(head, rows)]


def predict(
    card: Card, kernels: list[volta.Kernel], layers: Sequence[shapes.Heads]
) -> list[tuple[shapes.Batch, volta.Bound]]:
    """Decoding and prompts of each layer; all seconds are bounds of the model."""
    batches = [
        *shapes.decode_batches(layers, CONTEXTS, REQUESTS, MOST_CACHE_BYTES),
        *shapes.prefill_batches(layers, shapes.PROMPTS),
    ]
    return [(batch, volta.bound(card, volta.chosen(kernels, batch), batch)) for batch in batches]


def record(batch: shapes.Batch, found: volta.Bound) -> dict[str, object]:
    return {
        "batch": asdict(batch),
        "kernel": found.kernel.name,
        "busy_multiprocessors": found.busy,
        "model_seconds": found.seconds,
        "model_bound": found.longest,
        "limiter": found.limiter,
    }


def predictions(bounds: Sequence[tuple[shapes.Batch, volta.Bound]]) -> list[str]:
    """Decoding with the busiest unit of the multiprocessors, as a share of the memory's time; prompts with TFLOP/s."""
    lines: list[str] = []
    for title, decodes in (
        ("Decoding: least microseconds, what sets them, busiest unit next to the memory (no V100 was there)", True),
        ("Prompts: least microseconds, what sets them, TFLOP/s (no V100 was there)", False),
    ):
        chosen = [(batch, found) for batch, found in bounds if batch.decodes == decodes]
        columns = list(dict.fromkeys(batch.name for batch, _ in chosen))
        cells = {(batch.heads, batch.name): _cell(batch, found) for batch, found in chosen}
        heads = list(dict.fromkeys(batch.heads for batch, _ in chosen))
        body = [[each.name, *(cells.get((each, name), "") for name in columns)] for each in heads]
        lines += ["", title, *table(["bound predicted by the model", *columns], body)]
    return lines


def _cell(batch: shapes.Batch, found: volta.Bound) -> str:
    limiter = SHORT.get(found.limiter, found.limiter)
    if batch.decodes:
        others = {name: seconds for name, seconds in found.seconds.items() if name not in ("memory", "L2")}
        busiest = max(others, key=lambda name: others[name])
        left = f"{SHORT.get(busiest, busiest)} {others[busiest] / found.seconds['memory']:.0%}"
    else:
        left = f"{batch.operations / found.longest / 1e12:.0f}"
    return f"{figure(found.longest * 1e6)} {limiter} {left}"


if __name__ == "__main__":
    sys.exit(main())
