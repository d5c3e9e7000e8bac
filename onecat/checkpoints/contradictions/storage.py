"""Weights that are stored otherwise than the configuration claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from onecat.checkpoints.contradictions.differences import NOT_COMPARED, differs
from onecat.checkpoints.contradictions.situation import Matrix, Situation, several
from onecat.checkpoints.observation import FLOATS
from onecat.checkpoints.quantization.flavours.fp8 import NEVER as ENGINE_LEAVES
from onecat.checkpoints.quantization.matching import FUSED, names_of
from onecat.checkpoints.records import Problem, Severity
from onecat.checkpoints.sources import CONFIG

LISTS_NO_MODULES = frozenset(
    {"awq", "gptq", "bitsandbytes", "auto-round", "quasar_nvfp4", "torchao", "packed", "gemma"}
)
"""Containers whose engines see from the tensors which modules are packed, or whose own layout is not looked into."""

NAMES_OF = {
    "compressed-tensors": {"compressed-tensors"},
    "modelopt": {"modelopt"},
    "quark": {"modelopt"},
    "fp8": {"fp8"},
    "fbgemm_fp8": set(),
    "quasar_nvfp4": {"compressed-tensors"},
    "awq": {"awq"},
    "gptq": {"gptq"},
    "auto-round": {"awq", "gptq", "compressed-tensors"},
    "mxfp4": {"mxfp4"},
    "bitsandbytes": {"bitsandbytes"},
}
"""Whose names of tensors each container has."""

FUSED_ALWAYS = ("qkv_proj", "gate_up_proj")
"""Modules that the engine joins in all models, and refuses when their parts are stored in different ways
(should_ignore_layer and is_layer_skipped in vllm/model_executor/layers/quantization)."""


def not_stored(at: Situation) -> Iterator[Problem]:
    """Claimed to be quantised, and stored as they were."""
    claim = at.checkpoint.quantization
    if claim is None or claim.container in NOT_COMPARED:
        return
    plain = [
        each
        for each in at.matrices
        if each.claimed and each.observed.name is None and _float(each) and each.part != "draft"
    ]
    packed = [each for each in at.matrices if each.observed.name is not None]
    if not plain or (packed and claim.container in LISTS_NO_MODULES):
        return
    severity: Severity = "fail" if len(plain) > len(packed) else "warn"
    yield Problem(
        "claimed-not-stored",
        f"claims {_claimed(plain)} for {several(each.stem for each in plain)}, stored as {_dtypes(plain)}",
        at.config,
        "remove quantization_config from config.json, or download the quantised weights"
        if not packed
        else "list these modules as ignored in config.json, or download the weights again",
        severity,
    )


def not_claimed(at: Situation) -> Iterator[Problem]:
    """Stored quantised, and not claimed to be. Mixed precision that says nothing of its modules is told elsewhere."""
    if not at.source.documents.get(CONFIG):  # missing or empty, which is told by itself
        return
    claim = at.checkpoint.quantization
    if claim is not None and (claim.container in NOT_COMPARED or claim.scheme == "unknown"):
        return
    if claim is not None and claim.method == "modelopt_mixed" and not claim.schemes:
        return
    stored = [
        each for each in at.matrices
        if each.claimed is None and each.observed.name not in (None, "packed") and each.part != "draft"
    ]  # fmt: skip
    if not stored:
        return
    kinds = ", ".join(sorted({str(each.observed.name) for each in stored}))
    if claim is None or not claim.schemes:
        yield Problem(
            "stored-not-claimed",
            f"claims no quantisation; stored as {kinds}: {several(each.stem for each in stored)}",
            at.config,
            "copy config.json (with its quantization_config) from the checkpoint's publisher",
        )
        return
    yield Problem(
        "ignored-but-quantized",
        f"leaves {several(each.stem for each in stored)} as it was; stored as {kinds}",
        at.config,
        "take these modules from the list of ignored ones in config.json",
        "fail" if any(each.part == "language" for each in stored) else "warn",
    )


def other_names(at: Situation) -> Iterator[Problem]:
    """Tensors named as another tool does."""
    claim = at.checkpoint.quantization
    if claim is None or claim.container not in NAMES_OF:
        return
    foreign: dict[str, list[str]] = defaultdict(list)
    for each in at.matrices:
        if each.observed.container not in (None, *NAMES_OF[claim.container]) and each.claimed is not None:
            foreign[str(each.observed.container)].append(each.stem)
    for container, stems in foreign.items():
        yield Problem(
            "container-differs",
            f"claims {claim.container}; named as {container} names them: the tensors of {several(stems)}",
            at.config,
            f"copy config.json from the {container} checkpoint that these tensors are of",
        )


def missing_scales(at: Situation) -> Iterator[Problem]:
    """Codes without what turns them into numbers."""
    claim = at.checkpoint.quantization
    if claim is not None and claim.container in NOT_COMPARED:
        return
    missing: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for each in at.matrices:
        if each.observed.missing and (each.claimed is not None or each.observed.name != "packed"):
            missing[each.observed.missing].append(each.stem)
    for names, stems in missing.items():
        yield Problem(
            "missing-scales",
            f"has no {' and no '.join(names)} for {several(stems)}",
            at.place,
            "download the weight files again: tensors are missing",
        )


def fused_differ(at: Situation) -> Iterator[Problem]:
    """Parts of a module that the engine joins, stored in different ways."""
    claim = at.checkpoint.quantization
    if claim is None or claim.container not in ("compressed-tensors", "modelopt", "fp8"):
        return
    by_stem = {each.stem: each.observed for each in at.matrices if each.part == "language"}
    broken = []
    for fused in FUSED_ALWAYS:
        first, *others = FUSED[fused]
        for stem in by_stem:
            parent, _, last = stem.rpartition(".")
            names = {by_stem[f"{parent}.{shard}"].name for shard in others if f"{parent}.{shard}" in by_stem}
            if last == first and names and names != {by_stem[stem].name}:
                broken.append(f"{parent}.{fused}")
    if broken:
        yield Problem(
            "fused-modules-differ",
            f"stores the parts of {several(broken)} in different ways; engines join them and refuse that",
            at.config,
            "quantise all parts of such a module, or none: ignore q_proj, k_proj and v_proj together",
        )


def ignored_by_parent(at: Situation) -> Iterator[Problem]:
    """Modules that a list of `fp8` leaves out by the name of what they are in: transformers does, the engine does not.

    Source: vllm 0.27.1, vllm/model_executor/layers/quantization/utils/quant_utils.py (is_layer_skipped compares whole
    names; of experts, whether theirs is in a name of the list).
    """
    claim = at.checkpoint.quantization
    if claim is None or claim.container != "fp8" or not claim.ignored:
        return
    listed = {each.removesuffix(".weight") for each in claim.ignored}
    experts = [each for each in listed if "experts" in each]
    left = [
        each.stem
        for each in at.matrices
        if each.claimed is None and each.observed.name is None and _float(each)
        and each.kind == "linear" and each.part == "language" and not each.stem.endswith(ENGINE_LEAVES)
        and not listed & set(names_of(each.stem))
        and not any(f"{each.stem.partition('experts')[0]}experts" in name for name in experts)
    ]  # fmt: skip
    if left:
        yield Problem(
            "ignored-by-parent",
            f"leaves {several(left)} as stored by the name of what is around; vLLM 0.27.1 compares whole names and "
            "takes them for FP8",
            at.config,
            "list the full name of each such module in modules_to_not_convert",
            "warn",
        )


def _float(each: Matrix) -> bool:
    return each.observed.dtype in FLOATS


def _claimed(matrices: Iterable[Matrix]) -> str:
    return ", ".join(sorted({each.claimed.name for each in matrices if each.claimed}))


def _dtypes(matrices: Iterable[Matrix]) -> str:
    return ", ".join(sorted({each.observed.dtype for each in matrices}))


RULES: tuple[Callable[[Situation], Iterator[Problem]], ...] = (
    not_stored,
    not_claimed,
    differs,
    other_names,
    missing_scales,
    fused_differ,
    ignored_by_parent,
)
