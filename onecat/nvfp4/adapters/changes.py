"""From the tensors of an adapter file to what they do to the base: each tensor is used once, or all is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from onecat.checkpoints.numbering import counted
from onecat.checkpoints.quantization.matching import shard_names_of
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.adapters.merging import Change
from onecat.nvfp4.adapters.names import AdapterTensor, Role, adapters_of, read_name
from onecat.nvfp4.adapters.settings import AdapterSettings
from onecat.nvfp4.adapters.shapes import fitting
from onecat.nvfp4.adapters.storage import StoredModule, stored_module
from onecat.nvfp4.adapters.targets import is_target
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.tensor_types import FLOATS

MOST_DETAILS = 12
"""Tensors that an error names one by one."""

EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in")
"""Last names of input embeddings in transformers' models: where an adapter's settings do not say which module."""


class TensorChange(NamedTuple):
    """What is done to a tensor that is no matrix, or belongs to no module that is known: a bias, a norm's weight.

    tensor: of the base. whole: takes its place. added: times scaling, is added.
    """

    tensor: str
    whole: str | None
    added: str | None = None
    scaling: float = 0.0


@dataclass(frozen=True)
class Base:
    """What is to be known of a base. block_of: the block of FP8 scales of a module. tied: the output head has no
    tensor of its own. joined_layers: its matrices may be transformers' Conv1D (GPT-2)."""

    source: SourceFiles
    block_of: Callable[[str], tuple[int, int] | None]
    tied: bool = False
    joined_layers: bool = False


@dataclass(frozen=True)
class Changes:
    """All that an adapter does. modules: changed matrices, with how the base stores them; tensors: the rest."""

    modules: tuple[tuple[StoredModule, Change], ...]
    tensors: tuple[TensorChange, ...]
    notes: tuple[str, ...] = ()


@dataclass
class _Found:
    """problems: what is wrong with tensors, by their names."""

    modules: dict[str, tuple[StoredModule, Change]] = field(default_factory=dict)
    tensors: dict[str, TensorChange] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_changes(settings: AdapterSettings, adapter: SourceFiles, base: Base) -> Changes:
    """What an adapter does to a base.

    Raises OnecatError that names every tensor of the adapter that cannot be used, with the shapes that do not fit.
    """
    tensors = [read_name(name) for name in adapter]
    if len(names := adapters_of(tensors)) > 1:
        raise OnecatError(
            f"the adapter file holds {len(names)} adapters: {', '.join(sorted(names))}",
            expected="one adapter",
            where=str(adapter.directory),
            next_steps=["save one of them: model.save_pretrained(DIRECTORY, selected_adapters=[NAME])"],
            code=ExitCode.NO,
        )
    found = _Found()
    for each in tensors:
        if adapter.tensors[each.name].dtype not in FLOATS:
            found.problems[each.name] = f"is {adapter.tensors[each.name].dtype}, not F32, F16 or BF16"
    parts: dict[str, dict[Role, AdapterTensor]] = {}
    for each in tensors:
        if each.role != "whole":
            _file(parts.setdefault(each.module, {}), each, found)
    wholes: dict[str, AdapterTensor] = {}
    for each in tensors:
        if each.role == "whole":
            _place_whole(each, adapter, base, wholes, found)
    for module, roles in parts.items():
        _place_parts(module, roles, settings, adapter, base, wholes, found)
    for name, each in wholes.items():
        _replace(name, each, adapter, base, found)
    _check_tied(settings, adapter, base, found)
    if found.problems:
        raise _unused(found.problems, adapter, len(tensors))
    found.notes += _absent(settings, parts)
    return Changes(tuple(found.modules.values()), tuple(found.tensors.values()), tuple(found.notes))


def _file(roles: dict[Role, AdapterTensor], each: AdapterTensor, found: _Found) -> None:
    if each.role in roles:
        found.problems[each.name] = f"is the same part as {roles[each.role].name}"
    else:
        roles[each.role] = each


def _place_whole(
    each: AdapterTensor, adapter: SourceFiles, base: Base, wholes: dict[str, AdapterTensor], found: _Found
) -> None:
    module, _, last = each.module.rpartition(".")
    stem = _stem(module, base, last)
    if stem is not None and (name := f"{stem}.{last}") not in wholes:
        wholes[name] = each
    elif stem is not None:
        found.problems[each.name] = f"is the same tensor as {wholes[name].name}"
    elif base.tied and module.rpartition(".")[2] == "lm_head" and last == "weight":
        twin = next((w for n, w in wholes.items() if _is_embedding(n.removesuffix(".weight"))), None)
        own = next((n for n in base.source if _is_embedding(n.removesuffix(".weight"))), None)
        if twin is not None and _same(adapter, each.name, adapter, twin.name):
            found.notes.append("the output head is tied to the embedding, and the adapter has the same values for both")
        elif twin is None and own is not None and _same(adapter, each.name, base.source, own):
            found.notes.append("the adapter's output head is the base's tied embedding as it is")
        else:
            found.problems[each.name] = "is an output head of its own, and the base ties it to the embedding"
    else:
        found.problems[each.name] = "the base has no tensor of that name"


def _place_parts(
    module: str, roles: Mapping[Role, AdapterTensor], settings: AdapterSettings, adapter: SourceFiles, base: Base,
    wholes: dict[str, AdapterTensor], found: _Found,
) -> None:  # fmt: skip
    """One module's matrices, if they are complete, meant by the settings, in the base, and of fitting shapes."""
    why = None
    stem = _stem(module, base, "weight", "weight_packed")
    if stem is None:
        why = "the base has no such module"
    elif not is_target(settings, module) and roles.keys() - {"rows"}:
        why = "its settings (target_modules, exclude_modules, layers_to_transform) leave this module out"
    if why is not None or stem is None:
        found.problems.update({each.name: str(why) for each in roles.values()})
        return
    try:
        stored = stored_module(base.source, stem, base.block_of)
    except OnecatError as error:
        found.problems.update({each.name: f"{error.found} ({', '.join(error.details)})" for each in roles.values()})
        return
    whole = wholes.pop(f"{stem}.weight", None)
    made = fitting(module, stored, roles, whole, settings, adapter, joined_layers=base.joined_layers)
    if isinstance(made, dict):
        found.problems.update(made)
        return
    if stem in found.modules:
        found.problems.update({each.name: f"{stem} is changed twice" for each in roles.values()})
        return
    found.modules[stem] = (stored, made)
    if "second-bias" in roles:
        _add_bias(stem, roles["second-bias"], made.scaling, adapter, base, wholes, found)


def _add_bias(
    stem: str, each: AdapterTensor, scaling: float, adapter: SourceFiles, base: Base,
    wholes: dict[str, AdapterTensor], found: _Found,
) -> None:  # fmt: skip
    name = f"{stem}.bias"
    if name not in base.source.tensors:
        found.problems[each.name] = "is a bias, and the base's module has none to add it to"
        return
    whole = wholes.pop(name, None)
    wrong = _misfit(name, [each, *([whole] if whole else [])], adapter, base)
    found.problems.update(wrong)
    if not wrong:
        found.tensors[name] = TensorChange(name, whole.name if whole else None, each.name, scaling)


def _replace(name: str, each: AdapterTensor, adapter: SourceFiles, base: Base, found: _Found) -> None:
    """A tensor of the base that the adapter holds in full."""
    stem = name.removesuffix(".weight")
    if name.endswith(".weight") and (name not in base.source.tensors or len(base.source.tensors[name].shape) == 2):
        try:
            stored = stored_module(base.source, stem, base.block_of)
        except OnecatError as error:
            found.problems[each.name] = f"{error.found} ({', '.join(error.details)})"
            return
        if adapter.tensors[each.name].shape != stored.shape:
            found.problems[each.name] = _shapes(adapter.tensors[each.name].shape, name, stored.shape)
        else:
            found.modules[stem] = (stored, Change(each.module.removesuffix(".weight"), stem, whole=each.name))
        return
    wrong = _misfit(name, [each], adapter, base)
    found.problems.update(wrong)
    if not wrong:
        found.tensors[name] = TensorChange(name, each.name)


def _misfit(name: str, used: Iterable[AdapterTensor], adapter: SourceFiles, base: Base) -> dict[str, str]:
    own = base.source.tensors[name]
    wrong = {}
    for each in used:
        if adapter.tensors[each.name].shape != own.shape:
            wrong[each.name] = _shapes(adapter.tensors[each.name].shape, name, own.shape)
        elif own.dtype not in FLOATS:
            wrong[each.name] = f"the base's {name} is {own.dtype}"
    return wrong


def _shapes(shape: tuple[int, ...], name: str, own: tuple[int, ...]) -> str:
    return f"is {list(shape)}, and the base's {name} is {list(own)}"


def _check_tied(settings: AdapterSettings, adapter: SourceFiles, base: Base, found: _Found) -> None:
    """Refuse what would change a tied output head that the adapter was trained without changing."""
    if not base.tied or settings.tied or any("tied" in note for note in found.notes):
        return
    for stem, (stored, change) in list(found.modules.items()):
        if not _is_embedding(stem) or change.rows is not None:
            continue
        if change.first is None and change.whole is not None and _same(adapter, change.whole, base.source, stored.data):
            del found.modules[stem]
            found.notes.append(f"the adapter's {stem} is the base's as it is")
            continue
        why = "changes the input embedding alone, and in the base the output head is the same tensor"
        found.problems.update(dict.fromkeys(change.tensors, why))


def _same(one: SourceFiles, name: str, other: SourceFiles, other_name: str) -> bool:
    first, second = one.tensors[name], other.tensors[other_name]
    return first[1:3] == second[1:3] and bool((one.raw(name) == other.raw(other_name)).all())


def _is_embedding(stem: str) -> bool:
    return stem.rpartition(".")[2] in EMBEDDINGS


def _stem(module: str, base: Base, *parts: str) -> str | None:
    """The base's name of a module: libraries moved the language model's place between versions."""
    stems = (each for each in shard_names_of(module) if any(f"{each}.{part}" in base.source.tensors for part in parts))
    if (found := next(stems, None)) is not None or parts != ("weight",):
        return found
    return next((each for each in shard_names_of(module) if f"{each}.weight_packed" in base.source.tensors), None)


def _absent(settings: AdapterSettings, parts: Mapping[str, object]) -> list[str]:
    if not isinstance(settings.targets, tuple):
        return []
    wanted = set(settings.targets) - set(settings.excluded if isinstance(settings.excluded, tuple) else ())
    without = [each for each in wanted if not any(m == each or m.endswith(f".{each}") for m in parts)]
    return [f"target_modules names {each}, and the adapter has no tensors for it" for each in sorted(without)]


def _unused(problems: Mapping[str, str], adapter: SourceFiles, count: int) -> OnecatError:
    told = [f"{name}: {why}" for name, why in list(problems.items())[:MOST_DETAILS]]
    if len(problems) > MOST_DETAILS:
        told.append(f"and {len(problems) - MOST_DETAILS} more")
    return OnecatError(
        f"{len(problems)} of {counted(count, 'tensor')} of the adapter cannot be used with this base",
        expected="that every tensor of the adapter changes the base once",
        where=str(adapter.directory),
        details=told,
        next_steps=["check that the adapter was trained on this model: base_model_name_or_path in its "
                    "adapter_config.json"],
        code=ExitCode.NO,
    )  # fmt: skip
