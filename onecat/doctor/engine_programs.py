"""Which programs are an inference engine's, by the name that the kernel has for them."""

from __future__ import annotations

import re

_ENGINE = re.compile(r"python|vllm|sglang|ray::|pt_main_thread|EngineCore|llama|text-generation|triton", re.IGNORECASE)


def is_engine(process: str | None) -> bool:
    """Whether a program's name is one that inference engines run under; the kernel keeps 15 letters of it."""
    return process is not None and _ENGINE.search(process) is not None
