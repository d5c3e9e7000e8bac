"""Everything that is run with the real vLLM on a machine with GPUs: `python engine_runs.py GROUP...`.

Groups: prepare, texts, cut, attention, gpus, ranks, streams, triton; README.md says what each does. They run in one
call or in several, in this order; what an earlier call left in the work folder is used. At the end a table; logs and
results go to the folder that OUT names. The exit code is 1 when a step failed, a text was wrong, or an engine took
another attention backend than it was told.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from scheduling import Step, run_all
from steps import (
    CAPTURED,
    CLASSES,
    COMPILED,
    FORCED,
    GEMMA,
    HELD_OUT,
    HELPFUL,
    MODELS,
    OURS,
    QUAD_PAIRS,
    ROOT,
    SITE,
    SLOW,
    SPECULATIVE,
    TOOLS,
    TRITON,
    UPSTREAM,
    WORK,
    engine_environment,
    generating,
    gpus,
    needed,
    without_repetition,
    written,
)
from tables import table

PACKED = ROOT / ".gpu-run"
CAPACITY = max(8, 2 * (os.cpu_count() or 1) - 4)
"""Sum of the loads that run side by side. An engine takes 2: one core most of the time."""
TABLE_LINES = 70
NO_P2P = {"NCCL_P2P_DISABLE": "1"}
ONE_CONFIGURATION = {"H200_FIRST_CONFIGURATION": "1"}
ONE_GPU = {"H200_ONE_GPU": "1"}
RANDOM_MODELS = ("qwen3.6", "gemma4", "llama-w4a16")
COMPILE = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import vllm_volta._C
print(torch.ops.vllm_volta.attention_workspace(torch.zeros(1, device="cuda", dtype=torch.half), 8, 4, 128, 8, 8, 1))
"""
EAGER = {"eager": {"enforce_eager": True}}


def main() -> None:
    """Run the groups, compare, print the table, pack the logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--seconds", type=float, default=560, help="when what still runs is ended")
    parser.add_argument(
        "--only", nargs="+", metavar="PATTERN", help="steps by name, like 'qwen*'; all of prepare stays"
    )
    parser.add_argument("--list", action="store_true", help="only print the steps")
    options = parser.parse_args()
    steps = chosen(options.groups, options.only)
    if options.list:
        for step in steps:
            print(step.name, " ".join(step.argv), dict(step.environment), f"needs {step.needs}, after {step.after}")
        return
    for folder in ("jobs", "results", "logs"):
        (WORK / folder).mkdir(parents=True, exist_ok=True)
    (WORK / "texts-done").unlink(missing_ok=True)
    ended = run_all(steps, WORK / "logs", CAPACITY, time.monotonic() + options.seconds)
    found = table(ended, WORK)
    if "gpus" in options.groups and gpus() < 2:
        found.lines.insert(0, f"group gpus left out: it needs two GPUs, here is {gpus()}")
    print("\n".join(found.lines[:TABLE_LINES]))
    if out := os.environ.get("OUT"):
        pack(Path(out), found.lines)
    sys.exit(not found.is_good)


def chosen(groups: Sequence[str], patterns: Sequence[str] | None) -> list[Step]:
    """The steps of the groups, those of `prepare` and those whose name is like one of the patterns."""
    steps: list[Step] = []
    for group in GROUPS:
        if group not in groups:
            continue
        for step in STEPS_OF[group]():
            if group == "prepare" or patterns is None or any(fnmatch(step.name, each) for each in patterns):
                steps.append(step)
    return without_repetition(steps)


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
    build = [*shell, f"sh {TOOLS}/build_extension.sh {WORK}/extension {PACKED}/device.ptx {PACKED}/source.tar.gz"]
    yield Step("build", build, load=4, limit=240)
    install = f"rm -rf {SITE}/vllm_volta; cp -R {WORK}/extension/vllm_volta {SITE}/vllm_volta"
    yield Step("extension", [*shell, install], needs=["unpack", "build"], limit=60)
    # The driver takes half a minute of a core to compile the kernels' PTX, and keeps the result for other processes.
    yield Step(COMPILED, [sys.executable, "-c", COMPILE, f"{WORK}/extension"], needs=["build"], limit=240)
    small = f"{WORK}/models/small-w4a16 {WORK}/models/small-w4a4"
    unpack_models = (
        f"rm -rf {WORK}/models/small-* {GEMMA}; mkdir -p {WORK}/models {GEMMA}; tar -xf {PACKED}/models.tar"
        f" -C {WORK}/models; python3 {TOOLS}/activation_scales.py {small};"
        f" python3 -c \"import tarfile; tarfile.open('{PACKED}/gemma.tar').extractall('{GEMMA}', filter='data')\""
    )
    yield Step("small-models", [*shell, unpack_models], limit=60)
    inspect = [sys.executable, f"{TOOLS}/inspect_models.py", *CLASSES]
    inspected = engine_environment("inspected", 0) | {"PYTHONPATH": f"{GEMMA}:{SITE}"}
    yield Step("inspect", inspect, inspected, needs=["overlay", "small-models"], load=6, limit=180)
    for index, shape in enumerate(("llama-w4a16", "llama-w4a4", "qwen3.6", "gemma4")):
        path = str(GEMMA) if shape == "gemma4" else ""
        yield Step(
            f"make-{shape}",
            [sys.executable, f"{TOOLS}/checkpoints.py", shape, f"{ROOT}/models/small", f"{WORK}/models/{shape}"],
            {"CUDA_VISIBLE_DEVICES": str(index % max(1, gpus())), "PYTHONPATH": path},
            needs=["small-models"],
            load=4,
            limit=180,
        )


def with_our_matmuls(model: str) -> Step:
    """Our matmul kernels and upstream's Triton attention, beside the plain copy: the reference of our attention."""
    plain = {"small-fp8": "small-fp8-plain", "qwen3.6": "qwen3.6-plain", "gemma4": "gemma4-plain"}
    other = plain.get(model, "small-plain" if model.startswith("small") else "llama-plain")
    more = ONE_CONFIGURATION | ({"H200_TRITON_CAPTURE": str(CAPTURED)} if model in ("qwen3.6", "gemma4") else {})
    return generating(f"{model}-volta", model, FORCED | more, reference=other)


def texts() -> Iterator[Step]:
    """The small and the random model: our kernels, the V100's own fragments, and the plain copies."""
    for model in ("small-w4a16", "small-w4a4", "small-fp8", "llama-w4a16", "llama-w4a4"):
        yield with_our_matmuls(model)
    for model in ("small-plain", "small-fp8-plain", "llama-plain"):
        yield generating(model, model, UPSTREAM, gpu=1)
    for model, other in (("small-w4a16", "small-plain"), ("llama-w4a16", "llama-plain")):
        yield slow(f"{model}-quad-pairs", model, other)


def cut() -> Iterator[Step]:
    """Models of today, one layer of each kind: our kernels beside the plain copies, and the V100's own fragments."""
    for model in ("qwen3.6", "gemma4"):
        yield with_our_matmuls(model)
        yield generating(f"{model}-plain", f"{model}-plain", UPSTREAM | ONE_CONFIGURATION, gpu=1)
        yield slow(f"{model}-quad-pairs", model, f"{model}-plain")


def slow(name: str, model: str, reference: str, arguments: dict[str, Any] | None = None) -> Step:
    """The V100's own fragments, which other GPUs emulate: short prompts, eager."""
    return generating(
        name,
        model,
        QUAD_PAIRS | ONE_CONFIGURATION,
        reference=reference,
        gpu=1,
        arguments=arguments,
        kinds=EAGER,
        is_short=True,
        limit=SLOW,
    )


def attention() -> Iterator[Step]:
    """Our attention beside upstream's, with the same weights and the same matmul kernels."""
    ours = {"attention_backend": OURS}
    models = (*RANDOM_MODELS, "small-w4a16")
    for model in models:
        environment = FORCED | ONE_CONFIGURATION
        yield generating(f"{model}-attention", model, environment, reference=f"{model}-volta", arguments=ours)
        yield with_our_matmuls(model)
    for model in ("llama-w4a16", "small-w4a16"):
        yield generating(
            f"{model}-attention-ngram",
            model,
            FORCED,
            reference=f"{model}-attention",
            arguments=ours,
            kinds={"graphs": SPECULATIVE},
        )
    for model in models:
        yield slow(f"{model}-attention-quad-pairs", model, f"{model}-volta", ours)


def several_gpus() -> Iterator[Step]:
    """Tensor and pipeline parallel on two GPUs, with NCCL's peer-to-peer copies and without, beside one GPU."""
    if gpus() < 2:
        return
    for backend, reference in ((TRITON, "volta"), (OURS, "attention")):
        for model in ("small-w4a16", "llama-w4a16", *(("qwen3.6", "gemma4") if backend == OURS else ())):
            for way, size in (("tp2", "tensor_parallel_size"), ("pp2", "pipeline_parallel_size")):
                arguments: dict[str, Any] = {size: 2, "attention_backend": backend}
                name, base = f"{model}-{reference}-{way}", f"{model}-{reference}"
                environment = FORCED | ONE_CONFIGURATION
                yield generating(name, model, environment, reference=base, gpu=None, arguments=arguments)
                # vLLM's own all-reduce uses peer-to-peer copies too.
                without = {**arguments, "disable_custom_all_reduce": True}
                yield generating(
                    f"{name}-no-p2p", model, environment | NO_P2P, reference=base, gpu=None, arguments=without
                )


def ranks() -> Iterator[Step]:
    """Tensor and pipeline parallel by two ranks that share one GPU, beside one rank; eager."""
    environment = FORCED | ONE_CONFIGURATION
    for backend, reference in ((OURS, "attention"), (TRITON, "volta")):
        for model in ("small-w4a16", "llama-w4a16", "qwen3.6", "gemma4"):
            base = f"{model}-{reference}"
            common: dict[str, Any] = {"attention_backend": backend}
            yield generating(base, model, environment, arguments=common, kinds=EAGER)
            for way, size in (("tp2", "tensor_parallel_size"), ("pp2", "pipeline_parallel_size")):
                more = {**common, size: 2, "disable_custom_all_reduce": True}
                shared = environment | ONE_GPU
                yield generating(f"{base}-{way}-shared", model, shared, reference=base, arguments=more, kinds=EAGER)


def streams() -> Iterator[Step]:
    """Servers, measured one after the other on each GPU: our attention beside upstream's, our matmuls beside theirs."""
    common = ["--dtype", "float16", "--max-num-seqs", "32", "--seed", "0", "--gpu-memory-utilization", "0.08"]
    common += ["--no-enable-prefix-caching", "--max-num-batched-tokens", "2048"]

    def server(name: str, model: str, environment: dict[str, str], gpu: int, backend: str = TRITON) -> dict[str, Any]:
        is_small = model.startswith("small")
        more = ["--enforce-eager"] if name.endswith("eager") else []
        length, cache = ("1024", 1 << 30) if is_small else ("8448", 4 << 30)
        more += ["--max-model-len", length, "--kv-cache-memory-bytes", str(cache), "--attention-backend", backend]
        return {
            "name": name,
            "model": str(MODELS[model]),
            "environment": engine_environment(f"server-{name}", gpu) | environment,
            "arguments": [*common, *more],
            "measured": not is_small,
            "reference": "small-fp16-graphs" if is_small else "fp16-graphs",
            "attention_backend": backend,
        }

    servers = [
        server("attention-graphs", "llama-w4a16", FORCED, 0, OURS),
        server("volta-graphs", "llama-w4a16", FORCED, 0),
        server("attention-eager", "llama-w4a16", FORCED, 0, OURS),
        server("volta-eager", "llama-w4a16", FORCED, 0),
        server("fp16-graphs", "llama-plain", UPSTREAM, 1),
        server("marlin-graphs", "llama-w4a16", UPSTREAM, 1),
        server("small-attention-graphs", "small-w4a16", FORCED, 0, OURS),
        server("small-fp16-graphs", "small-plain", UPSTREAM, 1),
    ]
    places = sorted({server["environment"]["CUDA_VISIBLE_DEVICES"] for server in servers})
    lanes = [[each for each in servers if each["environment"]["CUDA_VISIBLE_DEVICES"] == place] for place in places]
    gate = WORK / "texts-done"
    job = {"lanes": lanes, "held_out": str(HELD_OUT), "logs": f"{WORK}/logs", "ready": 240, "wait_for": str(gate)}
    argv = [sys.executable, f"{TOOLS}/streams.py", written("streams", job), f"{WORK}/results/streams.json"]
    needs = sorted({name for model in ("small-w4a16", "llama-w4a16") for name in needed(model)})
    yield Step("streams", argv, needs=needs, after=HELPFUL, load=min(12, CAPACITY - 2), limit=500)
    others = [step.name for group in ("texts", "cut", "attention", "gpus") for step in STEPS_OF[group]()]
    yield Step("gpus-are-free", ["touch", str(gate)], after=others, load=0)


def triton() -> Iterator[Step]:
    """Compile for sm_70 what Triton compiled for the cut models."""
    argv = [sys.executable, f"{TOOLS}/triton_sm70.py", str(CAPTURED), f"{WORK}/results/triton_sm70.json"]
    environment = {"PYTHONPATH": str(SITE), "TRITON_CACHE_DIR": f"{WORK}/caches/sm70", "CUDA_VISIBLE_DEVICES": "0"}
    yield Step("triton-sm70", argv, environment, after=["qwen3.6-volta", "gemma4-volta"], load=8)


STEPS_OF: dict[str, Callable[[], Iterator[Step]]] = {
    "prepare": prepare,
    "texts": texts,
    "cut": cut,
    "attention": attention,
    "gpus": several_gpus,
    "ranks": ranks,
    "streams": streams,
    "triton": triton,
}
GROUPS = tuple(STEPS_OF)


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
