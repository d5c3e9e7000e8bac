"""An attention backend that a plugin could register; Triton's under another name."""

from __future__ import annotations

from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend


class CustomAttentionBackend(TritonAttentionBackend):  # type: ignore[misc]
    @staticmethod
    def get_name() -> str:
        return "CUSTOM"
