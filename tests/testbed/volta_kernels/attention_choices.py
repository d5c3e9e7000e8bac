"""Which attention backend vLLM chooses on a CUDA device of compute capability 7.0 (fake_cuda of ../volta), and why.

`python attention_choices.py '{"models": {"name": folder}}'` writes {circumstance: answer} as JSON. The compiled kernels
are not there; the plugin is told that they are, or why they are not, as it is by `load_extension`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "volta"), str(Path(__file__).parent)]

import fake_cuda  # type: ignore[import-not-found]  # noqa: E402

LINES: list[str] = []


def main() -> None:
    """Write the answers."""
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    request = json.loads(sys.argv[1])
    fake_cuda.install(fake_cuda.DEVICES[7, 0], flash_attention=False)
    handler = logging.Handler()
    handler.emit = lambda record: LINES.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger("vllm").addHandler(handler)
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    from vllm_volta import plugin

    custom, found = AttentionBackendEnum.CUSTOM, {}
    os.environ[plugin.ATTENTION] = "0"
    found["switched off"] = registering(None) | {"head size 128": chosen(head_size=128)}
    del os.environ[plugin.ATTENTION]
    found["not built"] = registering("they were not built") | {"head size 128": chosen(head_size=128)}
    register_backend(custom, "someone.elses.Backend")
    found["taken"] = registering(None) | {"path": custom.get_path()}
    custom.clear_override()

    found["registered"] = registering(None) | {"path": custom.get_path()} | choices()
    found["asked for Triton"] = chosen("TRITON_ATTN", head_size=128)
    found["asked for it"] = chosen("CUSTOM", head_size=128)
    found["asked for what it lacks"] = chosen("CUSTOM", head_size=100)
    for name, folder in request["models"].items():
        found[name] = of_model(folder)
    json.dump(found, output)


def registering(missing: str | None) -> dict[str, Any]:
    """What the plugin says and whether there is a CUSTOM backend then. missing: why there are no compiled kernels."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm_volta import plugin

    LINES.clear()
    plugin._register_attention(missing, logging.getLogger("vllm.vllm_volta.plugin"))
    return {"log": list(LINES), "is registered": AttentionBackendEnum.CUSTOM.is_overridden()}


def choices() -> dict[str, str]:
    """What is chosen for layers of many kinds."""
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config

    found = {f"head size {size}": chosen(head_size=size) for size in (8, 64, 80, 96, 128, 192, 256, 512, 100, 576)}
    for name, wishes in {
        "sinks": {"has_sink": True},
        "sliding window": {"has_sliding_window": True},
        "multimodal prefix": {"use_mm_prefix": True},
        "block size 784": {"block_size": 784},
        "cache float16": {"kv_cache_dtype": "float16"},
        "float32": {"dtype": torch.float32},
        "cache fp8": {"kv_cache_dtype": "fp8"},
        "encoder only": {"attn_type": "encoder_only"},
        "not causal": {"use_non_causal": True},
        "batch invariance": {"use_batch_invariant": True},
        "KV connector": {"use_kv_connector": True},
        "MLA": {"use_mla": True},
    }.items():
        found[name] = chosen(**wishes)
    config = VllmConfig()
    config.parallel_config.decode_context_parallel_size = 2
    with set_current_vllm_config(config):
        found["decode context parallelism"] = chosen()
    return found


def chosen(backend: str | None = None, **wishes: Any) -> str:
    """The name of the backend that the platform chooses for a layer, or why there is none."""
    import torch
    from vllm.platforms import cuda, current_platform
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    usual = {"head_size": 128, "dtype": torch.float16, "kv_cache_dtype": "auto", "block_size": None}
    cuda._get_backend_priorities.cache_clear()
    selected = None if backend is None else AttentionBackendEnum[backend]

    def choose() -> str:
        path = current_platform.get_attn_backend_cls(selected, AttentionSelectorConfig(**usual | wishes), 32)
        return str(resolve_obj_by_qualname(path).get_name())

    return answer(choose)


def of_model(folder: str) -> dict[str, str]:
    """What layers of a model's head sizes get, by the configuration that vLLM makes of it."""
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.attention import selector

    overrides = json.loads((Path(folder) / "overrides.json").read_text(encoding="utf-8"))
    config = EngineArgs(folder, hf_overrides=overrides, skip_tokenizer_init=True).create_engine_config()
    found = {"asked": str(config.attention_config.backend)}
    with set_current_vllm_config(config):
        for size in (128, 256, 512):
            selector._cached_get_attn_backend.cache_clear()
            found[str(size)] = answer(
                lambda size=size: selector.get_attn_backend(size, config.model_config.dtype, "auto").get_name()
            )
        # As --enable-sleep-mode sets it on CUDA.
        config.model_config.enable_cumem_allocator = True
        selector._cached_get_attn_backend.cache_clear()
        found["sleep mode"] = answer(
            lambda: selector.get_attn_backend(128, config.model_config.dtype, "auto").get_name()
        )
    return found


def answer(choose: Callable[[], str]) -> str:
    try:
        return choose()
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    main()
