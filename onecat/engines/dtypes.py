"""The data type that an engine computes in, by what is asked for, what the checkpoint states and what the card can."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onecat.engines.capabilities import BFLOAT16_CAPABILITY

_SAME = {"half": "float16", "float": "float32"}


@dataclass(frozen=True)
class ServedDtype:
    """dtype: the type. refusal: why the engine ends its start with it; None where it does not: `card` that the card
    lacks it, `model` that the engine refuses it for this type of model."""

    dtype: str
    refusal: str | None = None


def served_dtype(
    asked: object, stored: str | None, model_type: str | None, capability: int, float16_refused: Collection[str]
) -> ServedDtype:
    """The type that vLLM computes in on an NVIDIA card.

    Parameters:
        asked: the flag `dtype`; None is `auto`. stored: what config.json states; None is float32, as for the engine
            where the weights tell nothing either. capability: ten times the compute capability, from 6.0 on.
        float16_refused: types of models for which the engine refuses float16.

    Source: vllm 0.27.1, config/model.py (_resolve_auto_dtype, _get_and_verify_dtype), platforms/cuda.py
    (supported_dtypes, check_if_supports_dtype).
    """
    supported = ("bfloat16", "float16", "float32")[0 if capability >= BFLOAT16_CAPABILITY else 1 :]
    is_refused = model_type in float16_refused
    wanted = str(asked).lower() if asked is not None else "auto"
    wanted = _SAME.get(wanted, wanted)
    if wanted != "auto":
        if wanted == "float16" and is_refused:
            return ServedDtype(wanted, "model")
        return ServedDtype(wanted, None if wanted in supported else "card")
    usable = [each for each in supported if each != "float16" or not is_refused]
    return ServedDtype(stored if stored in usable and stored != "float32" else usable[0])
