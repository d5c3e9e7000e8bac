"""What adapter_config.json says of an adapter, and what of it onecat cannot merge.

Source of the fields: peft 0.21.2, peft/tuners/lora/config.py (LoraConfig), peft/config.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onecat.checkpoints.quantization.claim import Claim
from onecat.errors import ExitCode, OnecatError

HARMLESS = frozenset({
    "auto_mapping", "base_model_name_or_path", "inference_mode", "lora_dropout", "megatron_core", "peft_type",
    "peft_version", "qalora_group_size", "revision", "runtime_config", "task_type",
    "corda_config", "eva_config", "loftq_config", "lora_ga_config",
})  # fmt: skip
"""Fields that say nothing about what the adapter's tensors mean. The four last only count with an `init_lora_weights`
of their name, and that is looked at."""

READ = frozenset({
    "alpha_pattern", "bias", "ensure_weight_tying", "exclude_modules", "fan_in_fan_out", "init_lora_weights",
    "layers_pattern", "layers_to_transform", "lora_alpha", "lora_bias", "modules_to_save", "r", "rank_pattern",
    "target_modules", "trainable_token_indices", "use_dora", "use_rslora",
})  # fmt: skip

REASONS = {
    "alora_invocation_tokens": "the adapter works only after certain tokens, so no fixed weight has its effect",
    "arrow_config": "a router chooses among adapters for each token, so no fixed weight has its effect",
    "kasa_config": "KaSA changes the base's weights before it trains",
    "layer_replication": "the model is deeper than its base: layers are repeated",
    "megatron_config": "its tensors are in Megatron's layout",
    "monteclora_config": "it samples its weights",
    "target_parameters": "it adapts parameters of joined experts, not modules",
    "use_bdlora": "its matrices are stored as blocks of a diagonal",
    "use_qalora": "its first matrix works on groups of columns",
    "velora_config": "VeLoRA is not known to onecat",
}
"""Why fields that are set cannot be merged."""

KEEPS_BASE = ("true", "false", "none", "gaussian", "eva", "orthogonal", "mica")
"""Values of `init_lora_weights` that leave the base's weights as they are (peft/tuners/lora/layer.py). The others
(pissa, olora, corda, lora_ga, loftq) subtract something from them before training."""


@dataclass(frozen=True)
class AdapterSettings:
    """How the tensors of an adapter are meant, in PEFT's notation for patterns.

    rank_stabilised: the scaling is alpha / sqrt(rank). magnitudes: rows have lengths of their own (DoRA).
    factor_bias: the second matrix has a bias. token_rows: for modules, which of their rows are trained; by "" for the
    model's input embedding. targets: a text is a regular expression (or `all-linear`), None where they do not say.
    """

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)
    rank_stabilised: bool = False
    magnitudes: bool = False
    fan_in_fan_out: bool = False
    factor_bias: bool = False
    bias: str = "none"
    targets: tuple[str, ...] | str | None = None
    excluded: tuple[str, ...] | str = ()
    saved: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    layers_patterns: tuple[str, ...] = ()
    token_rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tied: bool = False
    base: str | None = None

    def scaling(self, module: str) -> tuple[int, float]:
        """The rank of a module's matrices and the factor of their product, as PEFT finds them.

        Source: peft/tuners/lora/model.py (_create_and_replace), layer.py (update_layer).
        """
        rank = self.rank_pattern.get(pattern_of(self.rank_pattern, module), self.rank)
        alpha = self.alpha_pattern.get(pattern_of(self.alpha_pattern, module), self.alpha)
        return rank, alpha / (math.sqrt(rank) if self.rank_stabilised else rank)


def pattern_of(patterns: Mapping[str, Any], module: str) -> str:
    """The first pattern that covers a module: the end of its name from a dot on, or all of it with `^`.

    Source: peft/utils/other.py (get_pattern_key).
    """
    return next((each for each in patterns if re.match(rf"(.*\.)?({each})$", module)), module)


def read_settings(document: Mapping[str, Any], where: str) -> AdapterSettings:
    """The settings of an adapter. where: the path of its adapter_config.json, for errors.

    Raises OnecatError that names everything in it that cannot be merged, or that is not what PEFT writes.
    """
    problems = list(_unknown(document))
    if problems:
        raise OnecatError(
            "this adapter cannot be merged",
            expected="a LoRA adapter whose effect is a fixed change of weights (LoRA, rsLoRA, DoRA)",
            where=where,
            details=problems,
            next_steps=_advice(document),
            code=ExitCode.NO,
        )
    claim = Claim(document, where)
    try:
        return AdapterSettings(
            rank=_rank(document.get("r", 8), "r"),
            alpha=_number(document.get("lora_alpha", 8), "lora_alpha"),
            rank_pattern={key: _rank(value, "rank_pattern") for key, value in _patterns(document, "rank_pattern")},
            alpha_pattern={key: _number(value, "alpha_pattern") for key, value in _patterns(document, "alpha_pattern")},
            rank_stabilised=claim.flag("use_rslora"),
            magnitudes=claim.flag("use_dora"),
            fan_in_fan_out=claim.flag("fan_in_fan_out"),
            factor_bias=claim.flag("lora_bias"),
            bias=str(document.get("bias") or "none"),
            targets=_names(document, "target_modules"),
            excluded=_names(document, "exclude_modules") or (),
            saved=_expressions(_names(document, "modules_to_save")),
            layers=_whole_numbers(document.get("layers_to_transform"), "layers_to_transform"),
            layers_patterns=_expressions(_names(document, "layers_pattern")),
            token_rows=_token_rows(document.get("trainable_token_indices")),
            tied=claim.flag("ensure_weight_tying"),
            base=claim.word("base_model_name_or_path"),
        )
    except (ValueError, re.error) as error:
        raise OnecatError(
            f"adapter_config.json is not what PEFT writes: {error}",
            where=where,
            next_steps=["save the adapter again: model.save_pretrained(DIRECTORY)"],
        ) from error


def _unknown(document: Mapping[str, Any]) -> Iterator[str]:
    kind = document.get("peft_type")
    if str(kind).upper() != "LORA":
        yield "peft_type is missing" if kind is None else f"peft_type {kind}: only LORA is known"
    start = document.get("init_lora_weights", True)
    if str(start).lower() not in KEEPS_BASE:
        yield f"init_lora_weights {start}: the base that it was trained on is not the original one"
    bias = document.get("bias") or "none"
    if bias not in ("none", "all", "lora_only"):
        yield f"bias {bias}: only none, all and lora_only are known"
    for name, value in document.items():
        if value and name not in HARMLESS and name not in READ:
            yield f"{name}: {REASONS.get(name, 'this field is not known to onecat')}"


def _advice(document: Mapping[str, Any]) -> list[str]:
    if str(document.get("init_lora_weights", True)).lower() not in KEEPS_BASE:
        return [
            "with PEFT, save it as plain LoRA: "
            "save_pretrained(DIRECTORY, path_initial_model_for_weight_conversion=INITIAL)"
        ]
    if document.get("target_parameters"):
        return ["merge it with PEFT into the unquantised model (merge_and_unload), then onecat model convert"]
    return ["load it beside the base with the engine, if that knows this kind of adapter"]


def _patterns(document: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    stated = document.get(name) or {}
    if not isinstance(stated, Mapping):
        raise ValueError(f"{name} is no object")
    for pattern in stated:
        re.compile(rf"(.*\.)?({pattern})$")
    return list(stated.items())


def _rank(value: Any, name: str) -> int:
    if type(value) is not int or value <= 0:
        raise ValueError(f"{name} holds {value!r}, and ranks are whole numbers above 0")
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} holds {value!r}, which is no number")
    return float(value)


def _names(document: Mapping[str, Any], name: str) -> tuple[str, ...] | str | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        re.compile(value)
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise ValueError(f"{name} is neither a text nor a list of texts")


def _expressions(names: tuple[str, ...] | str | None) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) and names else tuple(names or ())
    for each in listed:
        re.compile(each)
    return listed


def _whole_numbers(value: Any, name: str) -> tuple[int, ...]:
    listed = [value] if type(value) is int else value or []
    if not isinstance(listed, list) or any(type(each) is not int or each < 0 for each in listed):
        raise ValueError(f"{name} holds {value!r}, and it takes whole numbers")
    return tuple(listed)


def _token_rows(value: Any) -> dict[str, tuple[int, ...]]:
    if isinstance(value, Mapping):
        return {name: _whole_numbers(rows, "trainable_token_indices") for name, rows in value.items()}
    return {"": _whole_numbers(value, "trainable_token_indices")} if value else {}
