"""What an engine has really chosen, read from its log: a pure function over the table of its words."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from onecat.knowledge.tables import table
from onecat.observe.finder import Words, candidate_lines
from onecat.observe.patterns import Match, Pattern, compile_pattern
from onecat.observe.records import Evidence

SCHEMA = "onecat.engine/1"
_LONGEST_EVIDENCE = 200
_BEFORE_MATCH = 60

# eager: layer by layer. compiled: by torch.compile, without CUDA graphs. graphs: replayed as CUDA graphs.
Execution = Literal["eager", "compiled", "without graphs", "graphs"]


@dataclass(frozen=True)
class Kernel:
    """A kernel that the engine has picked, and what for, in the engine's words (NVFP4, Fp8 MoE, ...)."""

    name: str
    use: str


@dataclass(frozen=True)
class SlowPath:
    """A way of calculating that gives right answers slowly. fix: commands or changes that lead away from it."""

    what: str
    why: str
    fix: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True)
class EngineChoices:
    """What an engine says that it has chosen; None and empty where its log does not say.

    version: of the engine. device: cuda, cpu, npu, ... quantization: its name for the method, `None` as text where the
    weights are not quantised. kv_tokens: tokens that its KV cache holds; the smallest of several engines.
    max_concurrency: requests of full length at once. weights_gib: of the model on one device, the largest.
    attention: the backends, in the order of the log. evidence: the line for each choice, by the choice's name.
    """

    version: str | None = None
    device: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    execution: Execution | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    weights_gib: float | None = None
    attention: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    slow: tuple[SlowPath, ...] = ()
    evidence: tuple[tuple[str, Evidence], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the log told nothing at all, as that of another engine."""
        return self == EngineChoices()

    def line(self, choice: str) -> str | None:
        """The line of the log that tells a choice."""
        return next((found.text for name, found in self.evidence if name == choice), None)


@dataclass(frozen=True)
class _Form:
    choice: str
    pattern: Pattern
    value: str | None = None
    slow: SlowPath | None = None
    excluded: Pattern | None = None


@functools.cache
def _forms() -> tuple[_Form, ...]:
    document = table("engine_choices.yaml")
    chosen = [_Form(row["choice"], compile_pattern(row["pattern"]), row.get("value")) for row in document["choices"]]
    slow = [
        _Form(
            "slow",
            compile_pattern(row["pattern"]),
            slow=SlowPath(row["what"], row["why"], tuple(row["fix"]), tuple(row["source"])),
            excluded=compile_pattern(row["excluded"]) if "excluded" in row else None,
        )
        for row in document["slow"]
    ]
    return (*chosen, *slow)


def _numbered() -> Iterable[tuple[str, _Form]]:
    return ((f"{number}", form) for number, form in enumerate(_forms()))


@functools.cache
def _words() -> Words:
    return Words((name, form.pattern) for name, form in _numbered())


def same_quantization(asked: str, found: str) -> bool:
    """Whether two of the engine's names for a quantisation method may mean the same weights."""
    if asked.replace("_", "-") == found.replace("_", "-"):
        return True
    rows: Iterable[Mapping[str, Any]] = table("engine_choices.yaml")["quantization_names"]
    return any(asked in (row["name"], *row["as"]) and found in row["as"] for row in rows)


def read_choices(lines: Iterable[str]) -> EngineChoices:
    """What the engine has chosen by the lines of its log, with or without timestamps before each; read as they come.

    Of several starts in one log the last one counts.
    """
    forms = dict(_numbered())
    seen: dict[str, list[tuple[Any, Evidence]]] = {}
    for number, line, names in candidate_lines(lines, _words()):
        hits = [
            (form, match)
            for form in (forms[name] for name in sorted(names, key=int))
            if (match := form.pattern.search(line)) and not (form.excluded and form.excluded.search(line))
        ]
        if any(form.choice == "version" for form, _ in hits) and "kv_tokens" in seen:
            seen.clear()
        for form, match in hits:
            seen.setdefault(form.choice, []).append((_value(form, match), _evidence(number, line, match)))
    return EngineChoices(
        **{choice: _COMBINED[choice]([value for value, _ in found]) for choice, found in seen.items()},
        evidence=tuple((choice, _told(choice, found)) for choice, found in seen.items()),
    )


def _value(form: _Form, match: Match) -> Any:
    groups = match.groupdict()
    if form.slow is not None:
        what = form.slow.what.replace("{value}", groups.get("value") or "")
        return SlowPath(what, form.slow.why, form.slow.fix, form.slow.source)
    if form.choice == "kernels":
        return Kernel(groups["value"], groups["use"])
    text = form.value if form.value is not None else groups["value"]
    if form.choice in ("kv_tokens", "max_model_len", "tensor_parallel", "pipeline_parallel"):
        return int(text.replace(",", ""))
    return float(text) if form.choice in ("max_concurrency", "weights_gib") else text


def _evidence(number: int, line: str, match: Match) -> Evidence:
    """The line; of a long one the part with the match's end, where the value stands."""
    if len(line) <= _LONGEST_EVIDENCE:
        return Evidence(number, line.strip())
    end = min(len(line), match.end() + _BEFORE_MATCH)
    start = max(0, end - _LONGEST_EVIDENCE)
    return Evidence(number, ("..." if start else "") + line[start:end].strip() + ("..." if end < len(line) else ""))


def _told(choice: str, found: list[tuple[Any, Evidence]]) -> Evidence:
    value = _COMBINED[choice]([each for each, _ in found])
    return next((evidence for each, evidence in found if each == value), found[0][1])


def _last(values: list[Any]) -> Any:
    return values[-1]


def _distinct(values: list[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


_COMBINED: dict[str, Any] = {
    "version": _last,
    "device": _last,
    "dtype": _last,
    "quantization": _last,
    "kv_cache_dtype": _last,
    "max_model_len": _last,
    "tensor_parallel": _last,
    "pipeline_parallel": _last,
    "execution": _last,
    "kv_tokens": min,
    "max_concurrency": min,
    "weights_gib": max,
    "attention": _distinct,
    "kernels": _distinct,
    "slow": _distinct,
}


def to_document(choices: EngineChoices) -> dict[str, Any]:
    """The choices as the `onecat.engine/1` document."""
    document = asdict(choices)
    document["evidence"] = [
        {"choice": name, "line": found.line, "text": found.text} for name, found in choices.evidence
    ]
    return {"schema": SCHEMA, **document}


def from_document(document: Mapping[str, Any]) -> EngineChoices:
    """The choices that `to_document` made this from."""
    values = {name: value for name, value in document.items() if name != "schema"}
    return EngineChoices(
        **{
            **values,
            "attention": tuple(values["attention"]),
            "kernels": tuple(Kernel(**each) for each in values["kernels"]),
            "slow": tuple(
                SlowPath(each["what"], each["why"], tuple(each["fix"]), tuple(each["source"]))
                for each in values["slow"]
            ),
            "evidence": tuple((each["choice"], Evidence(each["line"], each["text"])) for each in values["evidence"]),
        }
    )
