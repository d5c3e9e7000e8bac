"""What the engine chose when it started, as `up` has kept it."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.live.preflight.look import Unknown
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject
from onecat.observe.expectations import Surprise


@dataclass(frozen=True)
class Chosen:
    """stored: how the checkpoint says that its weights are stored; planned, chosen: in words. surprises: what was not
    planned. is_silent: whether the engine's log told nothing."""

    stored: str
    planned: str
    chosen: str
    surprises: tuple[Surprise, ...]
    is_silent: bool


@observer(Chosen, place=78)
def observe_choices(subject: Subject) -> Chosen | Unknown:
    """engine.json of the release."""
    from onecat.deploy.engine import kept_choices

    kept = kept_choices(subject.machine, subject.look.release)
    if kept is None:
        return Unknown("nothing was kept of what the engine has chosen (releases of an older onecat)")
    planned, chosen = kept.planned, kept.chosen
    quantization = planned.quantization or "not quantised"
    words = [
        chosen.dtype,
        None if chosen.quantization in (None, "None") else f"quantisation {chosen.quantization}",
        None if chosen.kv_cache_dtype is None else f"KV cache {chosen.kv_cache_dtype}",
    ]
    return Chosen(
        f"{quantization} by {planned.quantization_from}" if planned.quantization else "Not quantised",
        f"planned: dtype {planned.dtype or 'auto'}, {quantization}, KV cache {planned.kv_cache_dtype or 'auto'}",
        ", ".join(word for word in words if word) or "says nothing of it",
        kept.surprises,
        chosen.empty,
    )
