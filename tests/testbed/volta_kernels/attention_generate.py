"""Greedy answers of models by several attention backends: `python attention_generate.py DOCUMENT`, JSON as answer.

DOCUMENT: {"backends": [the path of a class, or null for the CPU's own], "models": [arguments of vllm.LLM], "prompts":
[[tokens]], "tokens": how many each answer has}. Each model gets the prompts twice, all at once; the second time, what
it has kept of their prefixes serves it. Answers, by backend and model: {"tokens": of both times, "cached": tokens of
prompts that were in the cache, "layers": class and head size of their implementations, "batches": what our builder made
of each, {"queries": tokens of each request, "decodes", "most"}}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

VOLTA = (7, 0)


def main() -> None:
    """Write the answers."""
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    request = json.loads(sys.argv[1])
    import vllm
    from vllm.platforms.cpu import CpuPlatform

    own = CpuPlatform.get_attn_backend_cls
    batches = watch_builder()
    found = []
    for backend in request["backends"]:
        CpuPlatform.get_attn_backend_cls = own if backend is None else choice_of(backend)
        found.append([answer(vllm, arguments, request, batches) for arguments in request["models"]])
    json.dump(found, output)


def choice_of(backend: str) -> Any:
    """How a platform chooses that has this backend alone, on compute capability 7.0."""
    from vllm.platforms.interface import DeviceCapability
    from vllm.utils.import_utils import resolve_obj_by_qualname

    def get_attn_backend_cls(cls: Any, selected: Any, attn_selector_config: Any, num_heads: Any = None) -> str:
        serving = resolve_obj_by_qualname(backend)
        wishes = attn_selector_config._asdict()
        reasons = serving.validate_configuration(device_capability=DeviceCapability(*VOLTA), **wishes)
        if reasons:
            raise ValueError(f"{backend}: {reasons}")
        return backend

    return classmethod(get_attn_backend_cls)


def watch_builder() -> list[dict[str, Any]]:
    """A list to which each batch that our builder describes is added."""
    from vllm_volta.attention import VoltaAttentionMetadataBuilder

    batches: list[dict[str, Any]] = []
    build = VoltaAttentionMetadataBuilder.build

    def watched(self: Any, *arguments: Any, **more: Any) -> Any:
        metadata = build(self, *arguments, **more)
        queries = metadata.query_start.diff().tolist()
        batches.append({"queries": queries, "decodes": metadata.decodes, "most": metadata.most_decode_queries})
        return metadata

    VoltaAttentionMetadataBuilder.build = watched
    return batches


def answer(vllm: Any, arguments: dict[str, Any], request: dict[str, Any], batches: list[Any]) -> dict[str, Any]:
    """What one model says by the backend that the platform chooses now."""
    from vllm.v1.attention import selector

    selector._cached_get_attn_backend.cache_clear()
    batches.clear()
    model = vllm.LLM(**{"dtype": "float16", "enforce_eager": True, "skip_tokenizer_init": True} | arguments)
    sampling = vllm.SamplingParams(temperature=0, max_tokens=request["tokens"], ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
    runs = [model.generate(prompts, sampling, use_tqdm=False) for _ in range(2)]
    layers = model.llm_engine.vllm_config.compilation_config.static_forward_context.values()
    return {
        "tokens": [[list(result.outputs[0].token_ids) for result in run] for run in runs],
        "cached": [sum(result.num_cached_tokens for result in run) for run in runs],
        "layers": sorted({f"{type(layer.impl).__name__} {layer.impl.head_size}" for layer in layers}),
        "batches": list(batches),
    }


if __name__ == "__main__":
    main()
