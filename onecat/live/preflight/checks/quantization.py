"""How the weights are stored, and what the engine made of it."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.checks.checksums import is_about_scales
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.choices import Chosen
from onecat.live.preflight.observing.model import ModelSeen


@check(
    "preflight.quantization",
    title="The engine calculates with the weights as they are stored",
    why="An engine that takes another format than the checkpoint's answers nonsense; one that falls back is slow; "
    "scales that do not fit their weights do either.",
    fix=("onecat model inspect DIRECTORY", "onecat status shows what the engine has chosen"),
    source=("https://docs.vllm.ai/en/latest/features/quantization/",),
    requires=needs(ModelSeen, Chosen),
    group="model",
    place=2,
)
def quantization(look: Look) -> Iterator[Verdict]:
    """The quantisation that the checkpoint's files name, against what the engine wrote into its log when it started
    (kept by `up`), and the shapes of all scales against their weights."""
    seen, kept = look.of(ModelSeen), look.of(Chosen)
    wrong = [each for each in seen.faults if is_about_scales(each.code) and each.severity != "info"]
    for each in wrong:
        yield Verdict(
            "fail" if each.severity == "fail" else "warn",
            f"{each.where}: {each.text}",
            evidence=(f"model verify: {each.code}",),
            fix=(each.fix or "download it again",),
            why=each.why,
            source=(each.source,),
        )
    other = [each for each in kept.surprises if each.choice in ("quantization", "dtype", "slow", "kv_cache_dtype")]
    for surprise in other:
        yield Verdict(
            "warn",
            surprise.what,
            evidence=(surprise.line or kept.planned,),
            fix=surprise.fix or (f"onecat logs {look.name}{look.host_option}",),
            why=surprise.why,
        )
    if wrong or other:
        return
    if kept.is_silent:
        yield Verdict("skip", "Not checked: the engine's log does not say what it has chosen", evidence=(kept.planned,))
        return
    yield Verdict("pass", f"{kept.stored}; engine: {kept.chosen}", evidence=(kept.planned,))
