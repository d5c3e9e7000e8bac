"""Asks a real vLLM what it holds and how it divides its KV cache. Runs in the engine's own Python, in one process.

Reads one JSON document from its standard input:
  models: checkpoints, each {"path", "arguments" (of EngineArgs), "environment"};
  layers: made-up models, each {"workers": [{name: {"class", **its fields}}], "available": [bytes], "settings"}.
Prints one JSON document: {"models": [...], "layers": [...]}.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import fields
from types import SimpleNamespace
from typing import Any


def main() -> None:
    request = json.load(sys.stdin)
    answers = {
        "models": [of_model(each) for each in request["models"]],
        "layers": [of_layers(each) for each in request["layers"]],
    }
    print(json.dumps(answers), file=ANSWERS)


def of_model(request: dict[str, Any]) -> dict[str, Any]:
    """What the engine core does at its start, up to the division of the KV cache."""
    from vllm import _custom_ops
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.executor.abstract import Executor

    # Where the processor has instructions for it, oneDNN packs a copy of each matrix and its parameter becomes empty:
    # the bytes are the same, but nothing could count them.
    _custom_ops._supports_onednn = False
    os.environ.update(request["environment"])
    configuration = EngineArgs(model=request["path"], **request["arguments"]).create_engine_config()
    executor = Executor.get_class(configuration)(configuration)
    worker = executor.driver_worker.worker
    weights, tables = held(worker.get_model())
    specs, available = executor.get_kv_cache_specs(), executor.determine_available_memory()
    answer = {
        "weights": weights,
        "tables": tables,
        "max_num_batched_tokens": configuration.scheduler_config.max_num_batched_tokens,
        "prefix_caching": configuration.cache_config.enable_prefix_caching,
        "available": available,
        **divided(configuration, specs, available),
    }
    executor.shutdown()
    del executor, worker
    for name in request["environment"]:
        del os.environ[name]
    cleanup_dist_env_and_memory()
    gc.collect()
    return answer


def held(model: Any) -> tuple[int, int]:
    """Bytes of all parameters, and of the tables of sines, each once."""
    parameters = {each.data_ptr(): each.nbytes for each in model.parameters()}
    tables = {
        each.data_ptr(): each.nbytes
        for name, each in model.named_buffers()
        if name.endswith("rotary_emb.cos_sin_cache")
    }
    return sum(parameters.values()), sum(tables.values())


def of_layers(request: dict[str, Any]) -> dict[str, Any]:
    settings = request["settings"]
    configuration = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=settings["max_model_len"], original_max_model_len=None),
        cache_config=SimpleNamespace(num_gpu_blocks_override=None, mamba_cache_mode=settings["state_mode"]),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=not settings["hybrid_manager"],
            max_num_encoder_input_tokens=settings["encoder"],
        ),
        max_in_flight_tokens=settings["in_flight"],
        kv_transfer_config=None,
        speculative_config=None,
    )
    workers = [{name: spec_of(each) for name, each in worker.items()} for worker in request["workers"]]
    return divided(configuration, workers, request["available"])


def spec_of(given: dict[str, Any]) -> Any:
    import torch
    from vllm.v1 import kv_cache_interface

    kind = getattr(kv_cache_interface, given.pop("class"))
    if "dtypes" in given:
        given["dtypes"] = tuple(getattr(torch, each) for each in given["dtypes"])
        given["shapes"] = tuple(tuple(each) for each in given["shapes"])
    else:
        given["dtype"] = getattr(torch, given["dtype"])
        quantised = kv_cache_interface.get_kv_quant_mode(given.pop("kv_cache_dtype"))
        given["kv_quant_mode"] = quantised
    known = {each.name for each in fields(kind)}
    if "indexes_kv_by_block_stride" in known:
        given["indexes_kv_by_block_stride"] = True
    return kind(**given)


def divided(configuration: Any, workers: Any, available: list[int]) -> dict[str, Any]:
    """The engine's own division. needed: bytes for one request of max_model_len, by worker; largest: tokens."""
    from vllm.v1.core import kv_cache_utils as manager

    merged = {name: spec for worker in workers for name, spec in worker.items()}
    groups = manager.get_kv_cache_groups(configuration, dict(merged))
    staged = [manager._project_kv_cache_groups_to_worker(groups, each) for each in workers]
    needed = [manager._max_memory_usage_bytes_from_groups(configuration, each) for each in staged]
    largest = [
        manager._estimate_max_model_len_from_groups(configuration, each, memory)
        for each, memory in zip(staged, available, strict=True)
    ]
    answer = {"groups": len(groups), "needed": needed, "largest": min(largest), "tokens": None}
    if all(want <= have for want, have in zip(needed, available, strict=True)):
        scheduled = manager.generate_scheduler_kv_cache_config(
            manager.get_kv_cache_configs(configuration, workers, available)
        )
        tokens, concurrency = manager.get_kv_cache_capacity(configuration, scheduled)
        answer |= {"blocks": scheduled.num_blocks, "tokens": tokens, "concurrency": concurrency}
    return answer


if __name__ == "__main__":
    # The engine prints as it likes; the answer alone goes to where the tests read.
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
        TORCH_COMPILE_DISABLE="1",
    )  # fmt: skip
    from vllm.model_executor.models import registry

    # The engine looks at a model's class in a process of its own, which takes as long again as importing vLLM.
    registry._run_in_subprocess = lambda look: look()
    main()
