"""What the machine code of our kernels lets a V100 do at best: bounds predicted by a model, never times of a V100.

Compiles the device code (NVRTC 12.6 -> compute_70 PTX -> ptxas), counts the instructions of each kernel's main loop and
prints them for each weight next to what a V100 can do at its memory's speed, then for each layer and number of tokens
the model's bound, what sets it, and its share of the memory's speed. `--arch sm_90` counts only.
Ends with 1 when a kernel for up to eight tokens exceeds the budget of integer, FP16 or issue at the memory's speed.
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

from bench.gpu import card as card_module  # noqa: E402
from bench.gpu.machine_code import MachineCode, MissingTool, find_nvdisasm, machine_code  # noqa: E402
from bench.gpu.text_table import figure, table  # noqa: E402
from bench.gpu.units import Unit  # noqa: E402
from bench.kernels import shapes, volta  # noqa: E402
from bench.kernels.plan import Planner, compiled_planner  # noqa: E402

SOURCES = REPOSITORY / "patches" / "vllm-0.27.1" / "add" / "vllm_volta" / "csrc"
TOKENS = (1, 8, 16, 32, 64)
LARGE = (256, 2048)
FEW_TOKENS = 8


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--arch", default="sm_70", help="count the machine code for this architecture (sm_70)")
    arguments.add_argument("--nvdisasm", type=Path, help="one that knows the architecture")
    arguments.add_argument("--card", default="Tesla V100-PCIE-32GB", help="its name in onecat/knowledge/gpus.yaml")
    arguments.add_argument("--layers", default="Qwen-27B", help="those whose model or name contains this; '' for all")
    arguments.add_argument("--out", type=Path, help="folder for model.jsonl, one line for each figure")
    given = arguments.parse_args()
    try:
        card = card_module.v100_named(given.card)
    except ValueError as reason:
        arguments.error(str(reason))
    with tempfile.TemporaryDirectory() as folder:
        try:
            code = machine_code(SOURCES, given.arch, find_nvdisasm(given.nvdisasm), Path(folder))
        except MissingTool as missing:
            print(missing, file=sys.stderr)
            return 2
        planner = compiled_planner(SOURCES, Path(folder))
        kernels = kernels_of(code)
        print("\n".join(counts(given.arch, card, kernels)))
        if given.arch != "sm_70":
            return 0
        print()
        print("\n".join(card_module.assumptions(card)))
        held, lines = budgets(card, kernels)
        print("\n".join(["", *lines]))
        records = predict(card, card.fp16_tflops, kernels, planner, shapes.matching(shapes.LAYERS, given.layers))
    print("\n".join(["", *predictions(records)]))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "model.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return int(not held)


def kernels_of(code: MachineCode) -> list[volta.Kernel]:
    """Those with a main loop in this machine code: quad pairs are emulated by a call from 8.0 on."""
    kinds = ("quad_pairs", "octets") if code.architecture == "sm_70" else ("octets",)
    names = [name for name in code.functions if (found := volta.NAME.fullmatch(name)) and found["kind"] in kinds]
    kernels = [volta.kernel_of(code, name) for name in names]
    return sorted(kernels, key=lambda kernel: (kernel.format != "nvfp4", kinds.index(kernel.kind), kernel.tokens))


def counts(architecture: str, card: card_module.Card, kernels: Sequence[volta.Kernel]) -> list[str]:
    rows = [
        [
            kernel.name + (" SPILLS" if kernel.spilled else ""),
            str(kernel.registers),
            str(card_module.resident_blocks(card, kernel.registers, kernel.warps) * kernel.warps),
            *(figure(kernel.per_weight(unit), 2) for unit in Unit),
            figure(kernel.per_weight(), 3),
        ]
        for kernel in kernels
    ]
    head = ["kernel", "registers", "warps", *(unit.value for unit in Unit), "all"]
    title = f"Instructions of a thread for one weight in the main loops, {architecture}; warps that fit"
    return [title, *table(head, rows)]


def budgets(card: card_module.Card, kernels: Sequence[volta.Kernel]) -> tuple[bool, list[str]]:
    """Whether the kernels for few tokens stay below what the card can do at its memory's speed, and the table."""
    held, rows = True, []
    for kernel in kernels:
        if kernel.tokens > FEW_TOKENS or kernel.kind != "quad_pairs":
            continue
        budget = volta.budget_per_weight(card, kernel.bytes_per_weight)
        for name, units in {"issue": tuple(Unit), **card_module.GROUPS}.items():
            used = sum(kernel.per_weight(unit) * card_module.CYCLES.get(unit, 2) / 2 for unit in units)
            allowed = budget["two cycles"]
            if name == "issue":
                used, allowed = kernel.per_weight(), budget["issue"]
            held = held and used <= allowed
            verdict = "within" if used <= allowed else "ABOVE"
            rows.append([kernel.name, name, figure(used), figure(allowed), f"{used / allowed:.0%}", verdict])
    title = (
        f"For each weight at {card.memory_rate / 1e9:.0f} GB/s, up to {FEW_TOKENS} tokens (conversions count fourfold)"
    )
    return held, [title, *table(["kernel", "unit", "needs", "budget", "share", ""], rows, left=2)]


def predict(
    card: card_module.Card,
    fp16_tflops: float,
    kernels: Sequence[volta.Kernel],
    planner: Planner,
    layers: Sequence[shapes.Layer],
) -> list[dict[str, object]]:
    """A record for each format, layer and number of tokens; all seconds are bounds of the model."""
    records: list[dict[str, object]] = []
    for form, size in volta.BYTES_PER_WEIGHT.items():
        own = [kernel for kernel in kernels if kernel.format == form and kernel.kind == "quad_pairs"]
        for layer in layers:
            for m in TOKENS:
                parts = [volta.bound(card, kernel, planner, layer, rows) for kernel, rows in volta.slices(own, m)]
                found = parts[0]
                half = volta.half_seconds(card, fp16_tflops, layer, m)
                records.append(
                    {
                        "format": form,
                        "layer": asdict(layer),
                        "m": m,
                        "kernel": volta.slices(own, m)[0][0].name,
                        "blocks": found.blocks,
                        "resident_blocks": found.resident,
                        "model_seconds_of_first": found.seconds,
                        "launches": len(parts),
                        "model_bound": sum(part.longest for part in parts),
                        "limiter": found.limiter,
                        "fp16_model_bound": half,
                    }
                )
            for m in LARGE:
                records.append(
                    {
                        "format": form,
                        "layer": asdict(layer),
                        "m": m,
                        "kernel": "dequantise + FP16",
                        "model_bound": volta.dequantised_seconds(card, size, fp16_tflops, layer, m),
                        "limiter": "dequantise + FP16",
                        "fp16_model_bound": volta.half_seconds(card, fp16_tflops, layer, m),
                    }
                )
    return records


def predictions(records: Sequence[dict[str, object]]) -> list[str]:
    short = {"memory": "mem", "shared memory": "smem", "FP16 + tensor": "tensor", "FP32 + IMAD": "fp32"}
    cells: dict[tuple[str, str], list[str]] = {}
    for record in records:
        layer = record["layer"]
        assert isinstance(layer, dict)
        key = (f"{record['format']} {layer['model']} {layer['name']}", f"{layer['n']} x {layer['k']}")
        bound, half = record["model_bound"], record["fp16_model_bound"]
        assert isinstance(bound, float) and isinstance(half, float)
        limiter = str(record["limiter"])
        mark = "" if limiter == "dequantise + FP16" else " " + short.get(limiter, limiter)
        cells.setdefault(key, []).append(f"{figure(bound * 1e6)}{mark} {half / bound:.1f}x")
    head = ["bound predicted by the model", "n x k", *(f"m={m}" for m in (*TOKENS, *LARGE))]
    return [
        "Least microseconds, what sets them, and how many times as fast as FP16 weights could be (no V100 was there)",
        *table(head, [[*key, *values] for key, values in cells.items()]),
    ]


if __name__ == "__main__":
    sys.exit(main())
