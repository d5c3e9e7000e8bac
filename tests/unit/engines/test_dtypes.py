"""The type that the engine computes in: expected values follow _resolve_auto_dtype of vllm 0.27.1, case by case."""

from __future__ import annotations

import pytest

from onecat.engines.dtypes import ServedDtype, served_dtype

REFUSED = ("gemma2", "gemma3", "gemma3_text", "glm4")


@pytest.mark.parametrize(
    ("asked", "stored", "model_type", "capability", "dtype", "refusal"),
    [
        (None, "bfloat16", "llama", 80, "bfloat16", None),
        ("auto", "float16", "llama", 80, "float16", None),
        ("auto", "float32", "llama", 80, "bfloat16", None),
        ("auto", None, "llama", 80, "bfloat16", None),
        ("auto", "float16", "gemma2", 90, "bfloat16", None),
        ("auto", "float32", "gemma2", 90, "bfloat16", None),
        ("auto", "bfloat16", "llama", 70, "float16", None),
        ("auto", "float32", "llama", 75, "float16", None),
        ("auto", "bfloat16", "gemma3", 70, "float32", None),
        ("auto", "float16", "glm4", 70, "float32", None),
        ("bfloat16", "float16", "llama", 75, "bfloat16", "card"),
        ("half", "bfloat16", "llama", 70, "float16", None),
        ("half", "bfloat16", "gemma2", 90, "float16", "model"),
        ("float16", "bfloat16", "gemma2", 70, "float16", "model"),
        ("float", "bfloat16", "gemma2", 70, "float32", None),
    ],
)
def test_what_vllm_computes_in(
    asked: str | None, stored: str | None, model_type: str, capability: int, dtype: str, refusal: str | None
) -> None:
    assert served_dtype(asked, stored, model_type, capability, REFUSED) == ServedDtype(dtype, refusal)
