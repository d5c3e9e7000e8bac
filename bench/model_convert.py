"""How fast onecat quantises and dequantises next to compressed-tensors, and how much memory `model convert` takes.

Random BF16 tensors of a model of 7 billion parameters. Each codec that is installed here (numpy; numba with
onecat[fast]) and compressed-tensors' own compressor, in the interpreter of an engine environment with PyTorch for
the CPU, take them turn by turn on two threads; the best of some rounds counts, as processor seconds too: those tell
more on a machine that does other things besides. A first call of each is not measured: both compile then. Then the
whole command `onecat model convert` on a checkpoint of such tensors, in a process of its own, and llm-compressor's
data-free `model_free_ptq` on the same, if --llm-compressor names an interpreter that has it (llm-compressor 0.14 wants
a newer compressed-tensors than the engine environment has: 0.20). Ends with 1 when onecat
is not as much faster than compressed-tensors as LIMITS says, in wall seconds and with the codec in numpy, or takes
more memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from onecat.nvfp4.codec import Codec, compiled, interpreted, is_numba_there  # noqa: E402
from tests.nvfp4_weights import write_tensors  # noqa: E402

LIMITS = {"nvfp4": 10.0, "nvfp4 mse": 3.0, "nvfp4 back": 5.0}
"""How many times as fast as compressed-tensors; it has no search, so that with `mse` is held to its plain packing."""
MEMORY = 300 * 10**6
"""What the command may take besides three times the largest tensor."""
SHAPES = {"q_proj": (4096, 4096), "down_proj": (4096, 11008)}
LAYERS = 6

Seconds = tuple[float, float]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--engine-python", type=Path, default=found_engine(), help="has compressed-tensors")
    arguments.add_argument("--llm-compressor", type=Path, help="interpreter that has llm-compressor")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    if given.engine_python is None:
        arguments.error("no engine environment with compressed-tensors is kept by the tests: name --engine-python")
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecat-bench-")))
        weights = random_weights()
        write_tensors(scratch / "tensors.safetensors", weights)
        peer = stack.enter_context(Peer.running(given.engine_python, scratch / "tensors.safetensors"))
        codecs = [interpreted(2), *([compiled(2)] if is_numba_there() else [])]
        rows = compare(given.rounds, weights, codecs, peer)
        command = measured_command(scratch, weights, given.llm_compressor)
    report = {"rounds": given.rounds, "peer": peer.versions, "codecs": rows, "command": command}
    print(json.dumps(report, indent=2) if given.json else "\n".join(lines(report)))
    held = all(row["times"] >= LIMITS[row["what"]] for row in rows if row["codec"] == "numpy" and row["what"] in LIMITS)
    return int(not held or command["onecat"]["peak_bytes"] > command["allowed_bytes"])


def found_engine() -> Path | None:
    """The interpreter of the engine environment that the tests keep."""
    kept = Path(os.environ.get("ONECAT_TEST_CACHE") or Path.home() / ".cache" / "onecat-tests")
    return next(iter(sorted(kept.glob("engine/runtimes/*/bin/python"))), None)


def random_weights() -> dict[str, Any]:
    source = numpy.random.default_rng(7)
    return {
        name: (source.standard_normal(shape, numpy.float32) * numpy.float32(0.02)).astype(ml_dtypes.bfloat16)
        for name, shape in SHAPES.items()
    }


class Peer:
    """A process that compresses with compressed-tensors."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.versions = self._answer()

    @staticmethod
    @contextlib.contextmanager
    def running(python: Path, tensors: Path) -> Iterator[Peer]:
        argv = [python, Path(__file__).with_name("model_convert_peer.py"), tensors]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield Peer(process)
            assert process.stdin is not None
            process.stdin.close()

    def __call__(self, what: str, name: str) -> Seconds:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, "name": name}) + "\n")
        self.process.stdin.flush()
        found = self._answer()
        return found["seconds"], found["processor_seconds"]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the peer ended"
        return json.loads(line)


def compare(rounds: int, weights: dict[str, Any], codecs: list[Codec], peer: Peer) -> list[dict[str, Any]]:
    best: dict[tuple[str, str], list[Seconds]] = {}
    for turn in range(rounds + 1):
        for name, weight in weights.items():
            works = {("compressed-tensors", what): _bound(peer, what, name) for what in ("nvfp4", "nvfp4 back")}
            works |= {("compressed-tensors", what): _bound(peer, what, name) for what in ("fp8", "fp8 back")}
            for codec in codecs:
                works |= {(codec.name, what): work for what, work in our_works(codec, weight).items()}
            for key, work in works.items():
                seconds = work()
                if turn:
                    best.setdefault((*key, name), []).append(seconds)  # type: ignore[arg-type]
    sums: dict[tuple[str, str], list[float]] = {}
    for (who, what, _), found in best.items():  # type: ignore[misc]
        total = sums.setdefault((who, what), [0.0, 0.0])
        total[0] += min(each[0] for each in found)
        total[1] += min(each[1] for each in found)
    size = sum(weight.nbytes for weight in weights.values())
    rows = []
    for (who, what), (wall, processor) in sums.items():
        theirs = sums.get(("compressed-tensors", what.removesuffix(" mse")))
        row = {
            "codec": who,
            "what": what,
            "seconds": wall,
            "processor_seconds": processor,
            "gb_per_s": size / wall / 1e9,
        }
        if theirs is not None:
            row |= {"times": theirs[0] / wall, "times_processor": theirs[1] / processor}
        rows.append(row)
    return rows


def _bound(peer: Peer, what: str, name: str) -> Callable[[], Seconds]:
    return lambda: peer(what, name)


def our_works(codec: Codec, weight: Any) -> dict[str, Callable[[], Seconds]]:
    """What to measure: from a weight to all that is stored, its scales included, and back."""
    scale = codec.global_scale(codec.largest(weight))
    made, coded = codec.nvfp4(weight, scale), codec.fp8_block(weight)
    works: dict[str, Callable[[], object]] = {
        "nvfp4": lambda: codec.nvfp4(weight, codec.global_scale(codec.largest(weight))),
        "nvfp4 mse": lambda: codec.nvfp4(weight, codec.best_global_scale(weight, "mse"), "mse"),
        "nvfp4 back": lambda: codec.nvfp4_values(made, 1.0, "BF16", scale),
        "nvfp4 deviation": lambda: codec.nvfp4_deviation(weight, made, 1.0, scale),
        "fp8": lambda: codec.fp8_block(weight),
        "fp8 back": lambda: codec.fp8_values(coded, (128, 128), "BF16"),
        "fp8 deviation": lambda: codec.fp8_deviation(weight, coded, (128, 128)),
    }
    return {what: _timed(work) for what, work in works.items()}


def _timed(work: Callable[[], object]) -> Callable[[], Seconds]:
    def timed() -> Seconds:
        began, used = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - began, time.process_time() - used

    return timed


def measured_command(scratch: Path, weights: dict[str, Any], llm_compressor: Path | None) -> dict[str, Any]:
    """The whole command, and the peer's where it is installed."""
    source = scratch / "model"
    source.mkdir()
    shutil.copyfile(REPOSITORY / "models" / "small" / "config.json", source / "config.json")
    config = json.loads((source / "config.json").read_text())
    config |= {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": LAYERS, "vocab_size": 32000}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "tie_word_embeddings": False}
    config |= {"torch_dtype": "bfloat16", "dtype": "bfloat16"}
    (source / "config.json").write_text(json.dumps(config))
    write_layers(source, weights)
    size = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    largest = 32000 * 4096 * 2
    onecat = str(Path(sys.executable).with_name("onecat"))
    found: dict[str, Any] = {"checkpoint_bytes": size, "allowed_bytes": 3 * largest + MEMORY}
    for search in ("minmax", "mse"):
        argv = [onecat, "-q", "model", "convert", str(source), str(scratch / search), "--search", search]
        found["onecat" if search == "minmax" else "onecat mse"] = process_of(argv, size)
        shutil.rmtree(scratch / search)
    program = (
        "import sys; from llmcompressor.entrypoints.model_free import model_free_ptq; "
        "model_free_ptq(sys.argv[1], sys.argv[2], scheme='NVFP4A16', ignore=['lm_head', 're:.*embed.*'], device='cpu')"
    )
    if llm_compressor is None:
        found["llm-compressor"] = "not measured: name an interpreter that has it by --llm-compressor"
    else:
        argv = [str(llm_compressor), "-c", program, str(source), str(scratch / "llm-compressor")]
        found["llm-compressor"] = process_of(argv, size)
    return found


def write_layers(source: Path, weights: dict[str, Any]) -> None:
    """A checkpoint like Llama's, one file for each layer; all of them hold the same numbers."""
    square, wide = weights["q_proj"], weights["down_proj"]
    embedding = numpy.resize(square, (32000, 4096))
    files: dict[str, dict[str, Any]] = {
        "model-embeddings.safetensors": {
            "model.embed_tokens.weight": embedding,
            "lm_head.weight": embedding,
            "model.norm.weight": square[0],
        }
    }
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        tensors = {f"{stem}.self_attn.{name}_proj.weight": square for name in "qkvo"}
        tensors |= {f"{stem}.mlp.{name}_proj.weight": wide.reshape(11008, 4096) for name in ("gate", "up")}
        tensors[f"{stem}.mlp.down_proj.weight"] = wide
        tensors |= {f"{stem}.{name}_layernorm.weight": square[0] for name in ("input", "post_attention")}
        files[f"model-{layer}.safetensors"] = tensors
    for file, tensors in files.items():
        write_tensors(source / file, tensors)
    index = {name: file for file, tensors in files.items() for name in tensors}
    size = sum(each.nbytes for tensors in files.values() for each in tensors.values())
    (source / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": index})
    )


MEASURED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))
"""
"""Starts a command from a small process: Linux counts into a child's peak what its parent held when it was started."""


def process_of(argv: list[str], size: int) -> dict[str, float]:
    """Seconds and the peak of memory of one command."""
    starter = [sys.executable, "-I", "-S", "-c", MEASURED, *argv]
    done = subprocess.run(starter, stdout=subprocess.PIPE, check=True)
    seconds, processor_seconds, peak = json.loads(done.stdout)
    return {
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "gb_per_s": size / seconds / 1e9,
        "peak_bytes": peak,
    }


def lines(report: dict[str, Any]) -> Iterator[str]:
    versions = report["peer"]
    peer = f"compressed-tensors {versions['version']} with PyTorch {versions['torch']}"
    yield f"{peer}; best of {report['rounds']} rounds"
    yield f"{'':20} {'':16} {'seconds':>8} {'CPU s':>8} {'GB/s':>6} {'times as fast':>14} {'by CPU s':>9}"
    for row in sorted(report["codecs"], key=lambda each: each["what"]):
        times = f"{row['times']:14.1f} {row['times_processor']:9.1f}" if "times" in row else ""
        figures = f"{row['seconds']:8.3f} {row['processor_seconds']:8.3f} {row['gb_per_s']:6.2f}"
        yield f"{row['codec']:20} {row['what']:16} {figures} {times}"
    command = report["command"]
    allowed = f"at most {command['allowed_bytes'] / 1e6:.0f} MB of memory"
    yield f"model convert of {command['checkpoint_bytes'] / 1e9:.2f} GB, {allowed}"
    for who in ("onecat", "onecat mse", "llm-compressor"):
        found = command[who]
        if isinstance(found, str):
            yield f"{who}: {found}"
        else:
            figures = f"{found['seconds']:8.1f} {found['processor_seconds']:8.1f} {found['gb_per_s']:6.2f}"
            yield f"{who:37} {figures}   peak {found['peak_bytes'] / 1e6:.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
