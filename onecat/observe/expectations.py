"""Whether an engine has chosen what was planned: pure."""

from __future__ import annotations

from dataclasses import dataclass

from onecat.observe.choices import EngineChoices, same_quantization

MOST_KV_DEVIATION = 0.1
"""Share of the planned KV tokens by which the engine's may differ."""
_DTYPES = {"half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class Expected:
    """What was planned; None where the plan leaves it to the engine.

    dtype, quantization: the engine's names. quantization_from: who says so, in words. eager: whether no CUDA graphs
    were asked for. kv_tokens: that the KV cache shall hold. tensor_parallel, pipeline_parallel: GPUs that share it.
    """

    dtype: str | None = None
    quantization: str | None = None
    quantization_from: str = "the plan"
    kv_cache_dtype: str | None = None
    eager: bool = False
    kv_tokens: int | None = None
    max_model_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None


@dataclass(frozen=True)
class Surprise:
    """Something that the engine has chosen otherwise than planned, or that makes it slow.

    what: in one sentence. line: of its log; None where it follows from several.
    """

    choice: str
    what: str
    why: str
    fix: tuple[str, ...] = ()
    line: str | None = None


def surprises(found: EngineChoices, expected: Expected) -> tuple[Surprise, ...]:
    """What differs from the plan in a way that matters; nothing for what the log does not tell."""
    seen: list[Surprise] = []

    def add(choice: str, what: str, why: str, *fix: str) -> None:
        seen.append(Surprise(choice, what, why, fix, found.line(choice)))

    for each in found.slow:
        add("slow", f"the engine calculates with {each.what}", each.why, *each.fix)
    if found.dtype is not None and expected.dtype not in (None, "auto"):
        assert expected.dtype is not None
        wanted = _DTYPES.get(expected.dtype, expected.dtype)
        if found.dtype != wanted:
            why = "answers, memory and speed are those of another number format"
            add("dtype", f"the engine calculates in {found.dtype}, planned was {wanted}", why, *_reconsider("dtype"))
    if found.quantization is not None and not _fits(expected.quantization, found.quantization):
        got = "no quantisation" if found.quantization == "None" else found.quantization
        add(
            "quantization",
            f"the engine loaded the weights with {got}, {expected.quantization_from} says {expected.quantization}",
            "weights that are read in another format than they are stored in take other memory, or mean nothing",
            "see the format of the checkpoint: onecat model inspect DIRECTORY",
            *_reconsider("quantization"),
        )
    wanted_cache = expected.kv_cache_dtype
    if found.kv_cache_dtype is not None and wanted_cache not in (None, "auto", found.kv_cache_dtype):
        why = "the KV cache takes other memory than planned, and holds other numbers"
        what = f"the KV cache is in {found.kv_cache_dtype}, planned was {wanted_cache}"
        add("kv_cache_dtype", what, why, *_reconsider("kv-cache-dtype"))
    # Without a GPU there are no graphs to lose.
    if found.device == "cuda" and not expected.eager and found.execution not in (None, "graphs"):
        add(
            "execution",
            f"the engine runs {_RUNS[found.execution]}, planned were CUDA graphs",
            "each step is launched kernel by kernel, which costs most with few requests at once",
            "read why in its log: onecat logs",
            "write serve.enforce-eager: true in onecat.yaml where that is meant",
        )
    if found.kv_tokens is not None and expected.kv_tokens:
        share = (found.kv_tokens - expected.kv_tokens) / expected.kv_tokens
        if abs(share) > MOST_KV_DEVIATION:
            what = f"the KV cache holds {found.kv_tokens:,} tokens, planned were {expected.kv_tokens:,} ({share:+.0%})"
            if share < 0:
                why = "fewer or shorter requests fit at once; they wait, or are put off and begun again"
                add("kv_tokens", what, why, "see what else uses the GPU: nvidia-smi", "onecat plan")
            else:
                add("kv_tokens", what, "the plan counts on less than there is: it allows too little", "onecat plan")
    for choice, name in (
        ("max_model_len", "context length"),
        ("tensor_parallel", "tensor parallel size"),
        ("pipeline_parallel", "pipeline parallel size"),
    ):
        wanted_number, number = getattr(expected, choice), getattr(found, choice)
        if None not in (wanted_number, number) and wanted_number != number:
            what = f"the {name} is {number}, planned was {wanted_number}"
            add(choice, what, "the plan's memory and speed are for another one", *_reconsider(choice.replace("_", "-")))
    return tuple(seen)


_RUNS = {"eager": "eagerly", "compiled": "compiled code without CUDA graphs", "without graphs": "without CUDA graphs"}


def _fits(expected: str | None, found: str) -> bool:
    # Where nobody asked for a method, the engine has found one in the checkpoint, perhaps by the rules of a plugin.
    return expected is None or same_quantization(expected, found)


def _reconsider(flag: str) -> tuple[str, ...]:
    return (f"see why the plan says so, and correct serve.{flag} in onecat.yaml: onecat plan",)
