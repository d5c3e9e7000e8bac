"""How long `onecat model inspect` takes for a checkpoint of 400 GB, and how much memory, next to `safe_open`.

The checkpoint is sparse: real headers of a mixture of experts in NVFP4, 100 shards with 2000 tensors each, and files
that are as long as they say without taking room on the disk. The peer opens each shard with `safe_open` and takes its
keys, which is less than what inspect tells. Both run in processes of their own, turn by turn. A second part hashes one
file next to `sha256sum`. Exit code 1 when inspect takes longer or more memory than the limits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from onecat.checkpoints.integrity.hash_state import HashState
from onecat.checkpoints.integrity.hashing import Task, hash_files

LIMIT_SECONDS = 1.0
LIMIT_MIB = 100
HIDDEN, INTERMEDIATE, EXPERTS, GROUP = 7168, 2048, 256, 16
PEER = (
    "import pathlib, sys\n"
    "from safetensors import safe_open\n"
    "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.safetensors')):\n"
    "    with safe_open(path, 'numpy') as file:\n"
    "        list(file.keys())\n"
)


def matrix(name: str, out: int, into: int) -> dict[str, tuple[str, list[int], int]]:
    """Type, shape and bytes of a weight in NVFP4 and of its scales, as ModelOpt stores them."""
    return {
        f"{name}.weight": ("U8", [out, into // 2], out * into // 2),
        f"{name}.weight_scale": ("F8_E4M3", [out, into // GROUP], out * into // GROUP),
        f"{name}.weight_scale_2": ("F32", [], 4),
        f"{name}.input_scale": ("F32", [], 4),
    }


def experts(layers: int) -> dict[str, tuple[str, list[int], int]]:
    """All experts of so many layers."""
    tensors = {}
    for layer in range(layers):
        for expert in range(EXPERTS):
            module = f"model.layers.{layer}.mlp.experts.{expert}"
            tensors |= matrix(f"{module}.gate_proj", INTERMEDIATE, HIDDEN)
            tensors |= matrix(f"{module}.up_proj", INTERMEDIATE, HIDDEN)
            tensors |= matrix(f"{module}.down_proj", HIDDEN, INTERMEDIATE)
    return tensors


def write_checkpoint(directory: Path, layers: int, shards: int) -> tuple[int, int]:
    """Write the sparse checkpoint. Returns how many tensors and bytes it has."""
    tensors = list(experts(layers).items())
    weight_map = {}
    total = 0
    size = -(-len(tensors) // shards)
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        position = 0
        for tensor, (dtype, shape, length) in tensors[number * size : (number + 1) * size]:
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + length]}
            position += length
            weight_map[tensor] = name
        text = json.dumps(header, separators=(",", ":")).encode()
        path = directory / name
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        os.truncate(path, 8 + len(text) + position)
        total += position
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": HIDDEN,
        "moe_intermediate_size": INTERMEDIATE,
        "intermediate_size": 18432,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_hidden_layers": layers,
        "first_k_dense_replace": 0,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 129280,
        "max_position_embeddings": 163840,
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "group_size": GROUP,
            "ignore": ["lm_head"],
        },
    }
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    for file, document in {"config.json": config, "model.safetensors.index.json": index, "tokenizer.json": {}}.items():
        (directory / file).write_text(json.dumps(document))
    return len(tensors), total


def run(argv: list[str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and the largest resident memory in MiB of one run."""
    begin = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(rounds: int, layers: int, shards: int) -> dict[str, dict[str, float]]:
    """Fewest seconds and most memory of each program over so many rounds."""
    with tempfile.TemporaryDirectory() as scratch:
        # Memory of this process would be counted as that of its children.
        written = [sys.executable, __file__, "--write", scratch, "--layers", str(layers), "--shards", str(shards)]
        tensors, size = json.loads(subprocess.run(written, check=True, stdout=subprocess.PIPE).stdout)
        onecat = str(Path(sys.executable).with_name("onecat"))
        programs = {
            "onecat": [onecat, "model", "inspect", scratch, "--json"],
            "safetensors": [sys.executable, "-c", PEER, scratch],
        }
        runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, argv in programs.items():
                runs[name].append(run(argv))
    return {"checkpoint": {"shards": shards, "tensors": tensors, "gigabytes": round(size / 1e9, 1)}} | {
        name: {
            "seconds": round(min(each[0] for each in those), 3),
            "processor_seconds": round(min(each[1] for each in those), 3),
            "mib": round(max(each[2] for each in those), 1),
        }
        for name, those in runs.items()
    }


def measure_hashing(megabytes: int, rounds: int) -> dict[str, float]:
    """Fewest seconds for one file in memory, and for two at once, next to sha256sum."""
    with tempfile.TemporaryDirectory() as scratch:
        block = os.urandom(1 << 20)
        names = ["a", "b"]
        for name in names:
            with Path(scratch, name).open("wb") as file:
                for _ in range(megabytes):
                    file.write(block)
        results: dict[str, list[float]] = {}
        for _ in range(rounds):
            for label, those in {"one_file": names[:1], "two_files": names}.items():
                begin = time.perf_counter()
                list(hash_files(Path(scratch), map(Task, those), HashState(None), jobs=2))
                results.setdefault(f"onecat_{label}_seconds", []).append(time.perf_counter() - begin)
            if shutil.which("sha256sum"):
                begin = time.perf_counter()
                subprocess.run(["sha256sum", names[0]], cwd=scratch, stdout=subprocess.DEVNULL, check=True)
                results.setdefault("sha256sum_one_file_seconds", []).append(time.perf_counter() - begin)
    return {"megabytes": megabytes} | {name: round(min(times), 3) for name, times in results.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--layers", type=int, default=64, help="layers of 256 experts (default: 64, 406 GB)")
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--hash-megabytes", type=int, default=256, help="0 leaves hashing out")
    parser.add_argument("--write", type=Path, metavar="DIRECTORY", help="only write the checkpoint there")
    options = parser.parse_args()
    if options.write is not None:
        options.write.mkdir(exist_ok=True)
        print(json.dumps(write_checkpoint(options.write, options.layers, options.shards)))
        return 0
    results: dict[str, dict[str, float]] = measure(options.rounds, options.layers, options.shards)
    if options.hash_megabytes:
        results["hashing"] = measure_hashing(options.hash_megabytes, options.rounds)
    print(json.dumps(results, indent=2))
    ours = results["onecat"]
    return int(ours["seconds"] > LIMIT_SECONDS or ours["mib"] > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
