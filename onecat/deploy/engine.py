"""What the engine of a release has chosen, kept beside its plan, and what of it was not planned."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy.store import read_json, understood, write_json
from onecat.errors import ExitCode, OnecatError
from onecat.observe.choices import EngineChoices, from_document, read_choices, to_document
from onecat.observe.expectations import Expected, Surprise, surprises

if TYPE_CHECKING:
    from onecat.deploy.releases import Release
    from onecat.deploy.request import Run
    from onecat.deploy.server import Server
    from onecat.hosts import Machine
    from onecat.planner.records import Plan

ENGINE_FILE = "engine.json"
_READ_LINES = 20_000


def note_choices(run: Run, release: Release, server: Server) -> tuple[Surprise, ...]:
    """Read what the engine has chosen from the log of a server that is ready, keep it, and tell it.

    Raises OnecatError when something was not planned and the request is strict.
    """
    found, planned = read_choices(server.last_lines(_READ_LINES)), expected_of(run.machine, run.plan)
    unexpected = surprises(found, planned)
    document = {
        **to_document(found),
        "planned": asdict(planned),
        "surprises": [asdict(each) for each in unexpected],
    }
    write_json(run.machine, f"{release.directory}/{ENGINE_FILE}", document)
    if found.empty:
        if run.request.strict:
            raise _strict_failure(release, (_SILENT,))
        return ()
    for line in summary(found):
        run.report(f"engine: {line}")
    for each in unexpected:
        run.report(f"warning: {each.what}: {each.why}")
        for step in each.fix:
            run.report(f"  next: {step}")
    if unexpected and run.request.strict:
        raise _strict_failure(release, unexpected)
    return unexpected


_SILENT = Surprise(
    "log", "its log does not say what the engine has chosen", "nothing can be compared with the plan", ()
)


def _strict_failure(release: Release, unexpected: tuple[Surprise, ...]) -> OnecatError:
    first = unexpected[0]
    return OnecatError(
        f"the engine has not chosen what was planned: {first.what}",
        where=release.place,
        details=[first.why, *([first.line] if first.line else []), *(each.what for each in unexpected[1:])],
        expected="what onecat plan says, because of --strict",
        next_steps=[
            *first.fix,
            f"read its log: onecat logs {release.deployment} --release {release.number}",
            "or leave --strict out, and it is a warning",
        ],
        code=ExitCode.ROLLED_BACK,
    )


@dataclass(frozen=True)
class KeptChoices:
    """What was kept of a release that was ready: what its engine chose, what was planned, and what did not fit."""

    chosen: EngineChoices
    planned: Expected
    surprises: tuple[Surprise, ...]


def kept_choices(machine: Machine, release: Release) -> KeptChoices | None:
    """What the engine of a release has chosen; None where nothing was kept, as of one that never was ready."""
    document = engine_document(machine, release)
    if document is None:
        return None
    with understood(machine, f"{release.directory}/{ENGINE_FILE}"):
        found = tuple(Surprise(**{**each, "fix": tuple(each["fix"])}) for each in document.pop("surprises"))
        planned = Expected(**document.pop("planned"))
        return KeptChoices(from_document(document), planned, found)


def engine_document(machine: Machine, release: Release) -> dict[str, Any] | None:
    """What was kept of a release as the `onecat.engine/1` document with `planned` and `surprises`, or None."""
    document: dict[str, Any] | None = read_json(machine, f"{release.directory}/{ENGINE_FILE}")
    return document


def expected_of(machine: Machine, plan: Plan) -> Expected:
    """What a plan lets one expect of the engine; the checkpoint says how its weights are stored."""
    words = plan.server_args
    asked = _flag(words, "--quantization") or _flag(words, "-q")
    stored = None if asked else _stored_quantization(machine, plan.model_directory)
    length = _flag(words, "--max-model-len")
    return Expected(
        dtype=_flag(words, "--dtype"),
        quantization=asked or stored,
        quantization_from="the plan" if asked else "the checkpoint",
        kv_cache_dtype=_flag(words, "--kv-cache-dtype"),
        eager="--enforce-eager" in words,
        kv_tokens=None if plan.estimated else plan.kv_tokens,
        max_model_len=int(length) if length is not None and length.isdigit() else None,
        tensor_parallel=plan.layout.tensor_parallel,
        pipeline_parallel=plan.layout.pipeline_parallel,
    )


def _flag(words: tuple[str, ...], name: str) -> str | None:
    """The value of a flag, given as two words or with `=`; the last one counts."""
    value = None
    for at, word in enumerate(words):
        if word == name and at + 1 < len(words):
            value = words[at + 1]
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value


def _stored_quantization(machine: Machine, directory: str) -> str | None:
    """The method that a checkpoint's own files name, where vLLM looks for it."""
    for file, section in (("config.json", "quantization_config"), ("hf_quant_config.json", "quantization")):
        content = machine.read(f"{directory}/{file}")
        try:
            document: Any = json.loads(content) if content is not None else {}
        except ValueError:
            document = {}
        texts = (document, document.get("text_config") or {})
        found = next((each[section] for each in texts if isinstance(each.get(section), dict)), None)
        if found is not None:
            return str(found.get("quant_method") or "modelopt")
    return None


def summary(found: EngineChoices) -> list[str]:
    """What the engine has chosen, in a few lines for a person."""
    numbers = [
        None if found.version is None else f"version {found.version}",
        found.device,
        found.dtype,
        None if found.quantization in (None, "None") else f"quantisation {found.quantization}",
        None if found.kv_cache_dtype in (None, "auto") else f"KV cache {found.kv_cache_dtype}",
        {"eager": "eager", "compiled": "compiled", "graphs": "CUDA graphs", None: None}.get(
            found.execution, "no CUDA graphs"
        ),
    ]
    kernels = [f"attention {' and '.join(found.attention)}"] if found.attention else []
    kernels += [f"{each.name} for {each.use}" for each in found.kernels]
    memory = [
        None if found.weights_gib is None else f"weights {found.weights_gib:g} GiB",
        None if found.kv_tokens is None else f"KV cache {found.kv_tokens:,} tokens",
        None
        if found.max_concurrency is None or found.max_model_len is None
        else f"{found.max_concurrency:g} requests of {found.max_model_len:,} tokens at once",
    ]
    split = [
        f"{name} {count}"
        for name, count in (("tensor parallel", found.tensor_parallel), ("pipeline parallel", found.pipeline_parallel))
        if count is not None and count > 1
    ]
    rows = ([*numbers, *split], kernels, memory)
    return [", ".join(each for each in row if each) for row in rows if any(row)]
