"""Everything that is run with the real vLLM on a machine with two GPUs: `python engine_runs.py GROUP...`.

Groups: prepare, texts, cut, gpus, streams, triton; README.md says what each does. They can be run in one call or in
several, in this order; what an earlier call left in the work folder is used. At the end a table; logs and results go
to the folder that OUT names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from comparing import MODES, compare
from scheduling import Ended, Step, run_all

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parents[1]
WORK = Path(os.environ.get("H200_WORK", "/tmp/h200"))
SITE = Path("/tmp/site")
"""Where the bundle's own script unpacks the wheels of vLLM and of what it requires."""
GEMMA = WORK / "gemma"
PACKED = ROOT / ".gpu-run"
HELD_OUT = ROOT / "models" / "small" / "held_out.txt"
CAPTURED = WORK / "captured"
GROUPS = ("prepare", "texts", "cut", "gpus", "streams", "triton")
CAPACITY = 40
"""Sum of the loads that run side by side. An engine takes 2: one core most of the time; the machine has 32."""
TABLE_LINES = 60

FORCED = {"VLLM_VOLTA_FORCE": "1"}
QUAD_PAIRS = {**FORCED, "VLLM_VOLTA_FRAGMENTS": "quad-pairs"}
UPSTREAM = {"VLLM_VOLTA_DISABLE": "1"}
NO_P2P = {"NCCL_P2P_DISABLE": "1"}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "OMP_NUM_THREADS": "2",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # Symmetric memory may use NVLink multicast, which the machine's makers ask to leave off.
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_DEBUG": "INFO",
}
ENGINE = {
    "dtype": "float16",
    "max_model_len": 1024,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 2048,
    "attention_backend": "TRITON_ATTN",
    "gpu_memory_utilization": 0.08,
    "kv_cache_memory_bytes": 1 << 30,
    "enable_prefix_caching": False,
    "seed": 0,
}
GRAPHS = {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32]}}
CUT = {
    "max_model_len": 2048,
    "kv_cache_memory_bytes": 4 << 30,
    "limit_mm_per_prompt": {"image": 1, "video": 0},
    "mm_encoder_attn_backend": "TORCH_SDPA",
    "gdn_prefill_backend": "triton",
}
PLAIN_OF = {
    "small-w4a16": "small-plain",
    "small-w4a4": "small-plain",
    "small-fp8": "small-fp8-plain",
    "llama-w4a16": "llama-plain",
    "llama-w4a4": "llama-plain",
    "qwen3.6": "qwen3.6-plain",
    "gemma4": "gemma4-plain",
}
MODELS = {
    **{name: WORK / "models" / name for name in ("small-w4a16", "small-w4a4", "small-fp8")},
    **{name: WORK / "models" / name for name in ("small-plain", "small-fp8-plain")},
    **{name: WORK / "models" / name / "quantised" for name in ("llama-w4a16", "llama-w4a4", "qwen3.6", "gemma4")},
    "llama-plain": WORK / "models" / "llama-w4a16" / "plain",
    "qwen3.6-plain": WORK / "models" / "qwen3.6" / "plain",
    "gemma4-plain": WORK / "models" / "gemma4" / "plain",
}
SLOW = 220.0
"""Seconds that the emulated fragments get: the servers wait for them before they are measured."""
SMALL_TOKENS = 96
TOKENS = 64


def main() -> None:
    """Run the groups, compare, print the table, pack the logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--seconds", type=float, default=560, help="when what still runs is ended")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="of the groups' steps, only these")
    parser.add_argument("--list", action="store_true", help="only print the steps")
    options = parser.parse_args()
    steps = [step for group in GROUPS if group in options.groups for step in STEPS_OF[group]()]
    steps = [step for step in steps if options.only is None or step.name in options.only]
    if options.list:
        for step in steps:
            print(step.name, " ".join(step.argv), dict(step.environment), f"needs {step.needs}, after {step.after}")
        return
    for folder in ("jobs", "results", "logs"):
        (WORK / folder).mkdir(parents=True, exist_ok=True)
    (WORK / "texts-done").unlink(missing_ok=True)
    ended = run_all(steps, WORK / "logs", CAPACITY, time.monotonic() + options.seconds)
    lines = list(table(ended))
    print("\n".join(lines[:TABLE_LINES]))
    if out := os.environ.get("OUT"):
        pack(Path(out), lines)


def prepare() -> Iterator[Step]:
    """Unpack, lay the series over vLLM, build the extension, make the checkpoints."""
    shell = ["sh", "-ec"]
    yield Step("unpack", [*shell, f"test -d {SITE}/vllm || bash {PACKED}/s/up.sh"], limit=120)
    overlay = (
        f"tar -xf {PACKED}/overlay.tar -C {SITE}; python3 {TOOLS}/registering.py {SITE} {TOOLS};"
        # Each process would compile these files by itself; those that are no Python 3 may fail.
        f" python3 -m compileall -q -j 0 {SITE} >/dev/null 2>&1 || true"
    )
    yield Step("overlay", [*shell, overlay], needs=["unpack"], limit=120)
    build = (
        f"sh {TOOLS}/build_extension.sh {WORK}/extension {PACKED}/device.ptx {PACKED}/source.tar.gz;"
        f" rm -rf {SITE}/vllm_volta; cp -R {WORK}/extension/vllm_volta {SITE}/vllm_volta"
    )
    yield Step("extension", [*shell, build], needs=["unpack"], load=4, limit=240)
    small = f"{WORK}/models/small-w4a16 {WORK}/models/small-w4a4"
    unpack_models = (
        f"rm -rf {WORK}/models/small-* {GEMMA}; mkdir -p {WORK}/models {GEMMA}; tar -xf {PACKED}/models.tar"
        f" -C {WORK}/models; python3 {TOOLS}/activation_scales.py {small};"
        f" python3 -c \"import tarfile; tarfile.open('{PACKED}/gemma.tar').extractall('{GEMMA}', filter='data')\""
    )
    yield Step("small-models", [*shell, unpack_models], limit=60)
    for index, shape in enumerate(("llama-w4a16", "llama-w4a4", "qwen3.6", "gemma4")):
        path = str(GEMMA) if shape == "gemma4" else ""
        yield Step(
            f"make-{shape}",
            [sys.executable, f"{TOOLS}/checkpoints.py", shape, f"{ROOT}/models/small", f"{WORK}/models/{shape}"],
            {"CUDA_VISIBLE_DEVICES": str(index % 2), "PYTHONPATH": path},
            needs=["small-models"],
            load=4,
            limit=180,
        )


READY = ("overlay", "extension", "small-models")
MADE_BY = {"llama-plain": "make-llama-w4a16", "qwen3.6-plain": "make-qwen3.6", "gemma4-plain": "make-gemma4"}


def needed(model: str) -> list[str]:
    """The steps of `prepare` that a run of the model needs."""
    return [*READY] if model.startswith("small") else [*READY, MADE_BY.get(model, f"make-{model}")]


def texts() -> Iterator[Step]:
    """The small and the random model: our kernels, the V100's own fragments, and the plain copies."""
    for model in ("small-w4a16", "small-w4a4", "small-fp8", "llama-w4a16", "llama-w4a4"):
        yield generating(f"{model}-volta", model, FORCED, gpu=0 if model.startswith("small") else 1)
    for model in ("small-plain", "small-fp8-plain", "llama-plain"):
        yield generating(model, model, UPSTREAM, gpu=1)
    for model in ("small-w4a16", "llama-w4a16"):
        yield generating(f"{model}-quad-pairs", model, QUAD_PAIRS, gpu=0, kinds=("eager",), limit=SLOW)


def cut() -> Iterator[Step]:
    """Models of today, one layer of each kind: our kernels beside the plain copies, and the V100's own fragments."""
    for index, model in enumerate(("qwen3.6", "gemma4")):
        more = {"PYTHONPATH": f"{GEMMA}:{SITE}"} if model == "gemma4" else {}
        capture = {**more, "H200_TRITON_CAPTURE": str(CAPTURED)}
        yield generating(f"{model}-volta", model, {**FORCED, **capture}, gpu=index, arguments=CUT)
        yield generating(f"{model}-plain", f"{model}-plain", {**UPSTREAM, **more}, gpu=1 - index, arguments=CUT)
        name, environment = f"{model}-quad-pairs", {**QUAD_PAIRS, **more}
        yield generating(name, model, environment, gpu=1 - index, arguments=CUT, kinds=("eager",), limit=SLOW)


def gpus() -> Iterator[Step]:
    """Tensor and pipeline parallel on two GPUs, with NCCL's peer-to-peer copies and without."""
    for model in ("small-w4a16", "llama-w4a16"):
        for way, size in (("tp2", "tensor_parallel_size"), ("pp2", "pipeline_parallel_size")):
            arguments: dict[str, Any] = {size: 2}
            yield generating(f"{model}-{way}", model, FORCED, gpu=None, arguments=arguments)
            # vLLM's own all-reduce uses peer-to-peer copies too.
            name, without = f"{model}-{way}-no-p2p", {**arguments, "disable_custom_all_reduce": True}
            yield generating(name, model, {**FORCED, **NO_P2P}, gpu=None, arguments=without)


def generating(
    name: str,
    model: str,
    environment: dict[str, str],
    *,
    gpu: int | None,
    arguments: dict[str, Any] | None = None,
    kinds: Sequence[str] = ("eager", "graphs"),
    limit: float = 300.0,
) -> Step:
    """A step of generate.py: a model without and with CUDA graphs, on one GPU or (None) on both."""
    base = {"model": str(MODELS[model]), **ENGINE, **(arguments or {})}
    engines = {kind: {**base, **({"enforce_eager": True} if kind == "eager" else GRAPHS)} for kind in kinds}
    small = model.startswith("small")
    job = {
        "engines": engines,
        "held_out": str(HELD_OUT),
        "long": not model.startswith(("small", "llama")),
        "tokens": SMALL_TOKENS if small else TOKENS,
    }
    return Step(
        name,
        [sys.executable, f"{TOOLS}/generate.py", written(name, job), str(WORK / "results" / f"{name}.json")],
        engine_environment(name, gpu) | environment,
        needs=needed(model),
        load=2 if gpu is not None else 4,
        limit=limit,
    )


def engine_environment(name: str, gpu: int | None) -> dict[str, str]:
    """What a process of vLLM needs; caches are its own, so that each engine compiles what it launches."""
    place = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}
    return ENVIRONMENT | {"PYTHONPATH": str(SITE), "VLLM_CACHE_ROOT": f"{WORK}/caches/{name}"} | place


def written(name: str, job: dict[str, Any]) -> str:
    """Write a job's file; its path."""
    path = WORK / "jobs" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job, indent=1))
    return str(path)


def streams() -> Iterator[Step]:
    """Servers of the random model with our kernels, upstream's, and FP16, measured side by side; texts of the small."""
    common = ["--dtype", "float16", "--max-model-len", "1024", "--max-num-seqs", "32", "--seed", "0"]
    common += ["--attention-backend", "TRITON_ATTN", "--gpu-memory-utilization", "0.08", "--no-enable-prefix-caching"]
    common += ["--kv-cache-memory-bytes", str(2 << 30), "--max-num-batched-tokens", "2048"]

    def server(name: str, model: str, environment: dict[str, str], gpu: int) -> dict[str, Any]:
        more = ["--enforce-eager"] if name.endswith("eager") else []
        return {
            "name": name,
            "model": str(MODELS[model]),
            "environment": engine_environment(f"server-{name}", gpu) | environment,
            "arguments": [*common, *more],
            "measured": model.startswith("llama"),
        }

    lanes = [
        [
            server("volta-graphs", "llama-w4a16", FORCED, 0),
            server("volta-eager", "llama-w4a16", FORCED, 0),
            server("volta-w4a4-graphs", "llama-w4a4", FORCED, 0),
            server("small-volta-graphs", "small-w4a16", FORCED, 0),
        ],
        [
            server("marlin-graphs", "llama-w4a16", UPSTREAM, 1),
            server("marlin-eager", "llama-w4a16", UPSTREAM, 1),
            server("fp16-graphs", "llama-plain", UPSTREAM, 1),
            server("small-fp16-graphs", "small-plain", UPSTREAM, 1),
        ],
    ]
    gate = WORK / "texts-done"
    job = {"lanes": lanes, "held_out": str(HELD_OUT), "logs": f"{WORK}/logs", "ready": 240, "wait_for": str(gate)}
    argv = [sys.executable, f"{TOOLS}/streams.py", written("streams", job), f"{WORK}/results/streams.json"]
    models = ("small-w4a16", "llama-w4a16", "llama-w4a4")
    needs = sorted({name for model in models for name in needed(model)})
    yield Step("streams", argv, needs=needs, load=12, limit=420)
    others = [step.name for group in ("texts", "cut", "gpus") for step in STEPS_OF[group]()]
    yield Step("gpus-are-free", ["touch", str(gate)], after=others, load=0)


def triton() -> Iterator[Step]:
    """Compile for sm_70 what Triton compiled for the cut models."""
    argv = [sys.executable, f"{TOOLS}/triton_sm70.py", str(CAPTURED), f"{WORK}/results/triton_sm70.json"]
    environment = {"PYTHONPATH": str(SITE), "TRITON_CACHE_DIR": f"{WORK}/caches/sm70", "CUDA_VISIBLE_DEVICES": "0"}
    yield Step("triton-sm70", argv, environment, after=["qwen3.6-volta", "gemma4-volta"], load=8)


STEPS_OF = {"prepare": prepare, "texts": texts, "cut": cut, "gpus": gpus, "streams": streams, "triton": triton}


def table(ended: Sequence[Ended]) -> Iterator[str]:
    """What came of it: steps, comparisons, throughput, Triton's kernels."""
    good = [each for each in ended if each.result == "ok"]
    yield f"{len(good)} of {len(ended)} steps ok, the longest {max((each.seconds for each in ended), default=0):.0f} s"
    yield from (f"  {each.result}: {each.name}, {each.seconds:.0f} s" for each in ended if each.result != "ok")
    results = {path.stem: json.loads(path.read_text()) for path in sorted((WORK / "results").glob("*.json"))}
    for name, result in results.items():
        base, way = split(name)
        if base is None or not isinstance(result, dict):
            continue
        reference = f"{base}-volta" if way.startswith(("tp2", "pp2")) else PLAIN_OF[base]
        for kind, answers in result.items():
            yield from compared(f"{name} {kind}", answers, reference, results.get(reference, {}).get(kind))
    yield from throughput(results.get("streams", {}))
    log = WORK / "logs" / "triton-sm70.log"
    if log.exists():
        yield f"Triton: {log.read_text().strip().splitlines()[-1]} (table in logs/triton-sm70.log)"


def split(name: str) -> tuple[str | None, str]:
    """A result's name as model and way; None for the model of what is no run of a quantised model."""
    for model in PLAIN_OF:
        if name.startswith(f"{model}-") and not name.endswith("plain"):
            return model, name.removeprefix(f"{model}-")
    return None, ""


def compared(name: str, answers: dict[str, Any], reference: str, expected: dict[str, Any] | None) -> Iterator[str]:
    """A line for each way in which the prompts were given."""
    if "failed" in answers:
        yield f"{name}: FAILED {answers['failed'].strip().splitlines()[-1][:110]}"
        return
    seconds = answers["seconds"]
    if expected is None or "failed" in expected:
        yield f"{name}: nothing to compare with ({reference}); start {seconds['start']:.0f} s"
        return
    alone, together = (compare(answers[mode], expected[mode]) for mode in MODES)
    with_kernels = kernels(name.rsplit(" ", 1)[0])
    yield f"{name} = {reference}: alone {alone}; together {together}; start {seconds['start']:.0f} s; {with_kernels}"


def kernels(name: str) -> str:
    """Which linear kernels a step's engines chose, by its log, and whether ours were there only as PyTorch."""
    log = WORK / "logs" / f"{name}.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    chosen = sorted(set(re.findall(r"(?:Using|Selected) (\w+Kernel)\b", text)))
    return " ".join(chosen + (["WITHOUT COMPILED KERNELS"] if "compiled kernels are not there" in text else []))


def throughput(servers: dict[str, Any]) -> Iterator[str]:
    """Tokens a second of each server, and whether its texts are those of the plain server."""
    for name, server in servers.items():
        if "failed" in server:
            yield f"server {name}: FAILED {server['failed'].strip().splitlines()[-1][:110]}"
            continue
        rates = server.get("tokens_per_second", {})
        figures = ", ".join(f"{rate:.0f} tok/s at {streams}" for streams, rate in rates.items())
        other = servers.get("small-fp16-graphs" if name.startswith("small") else "fp16-graphs", {})
        pairs = list(zip(server["texts"], other.get("texts", []), strict=False))
        same = f"{sum(a == b for a, b in pairs)}/{len(pairs)} texts as the FP16 server"
        yield f"server {name}: {figures or 'not measured'}; {same}; healthy after {server['ready']:.0f} s"


def pack(out: Path, lines: Sequence[str]) -> None:
    """The whole table, and all logs, jobs, results and captured kernels in one archive."""
    (out / "table.txt").write_text("\n".join(lines) + "\n")
    with tarfile.open(out / "engine_runs.tar.xz", "w:xz", preset=1) as archive:
        for name in ("logs", "jobs", "results", "captured"):
            if (WORK / name).exists():
                archive.add(WORK / name, name)
    if (WORK / "extension" / "build.log").exists():
        shutil.copy(WORK / "extension" / "build.log", out / "extension_build.log")


if __name__ == "__main__":
    main()
