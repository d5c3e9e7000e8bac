"""From the tensors of an adapter file to what they do to the base: each tensor is used once, or all is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from onecat.checkpoints.numbering import counted
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.adapters.base import Base, is_embedding, same
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

HEAD_TIED = "is an output head of its own, and in the base the head is the input embedding"
EMBEDDING_TIED = "changes the input embedding alone, and in the base the output head is the same tensor"


class TensorChange(NamedTuple):
    """What is done to a tensor that is no matrix of a module: a bias, a norm's weight.

    tensor: of the base. whole: takes its place. added: times scaling, is added.
    """

    tensor: str
    whole: str | None
    added: str | None = None
    scaling: float = 0.0


@dataclass(frozen=True)
class Changes:
    """All that an adapter does. modules: changed matrices, with how the base stores them; tensors: the rest."""

    modules: tuple[tuple[StoredModule, Change], ...]
    tensors: tuple[TensorChange, ...]
    notes: tuple[str, ...] = ()


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
    return _Reader(settings, adapter, base).read(tensors)


@dataclass
class _Reader:
    """wholes: tensors of the adapter that take the place of one of the base, by its name. problems: what is wrong with
    tensors of the adapter, by their names."""

    settings: AdapterSettings
    adapter: SourceFiles
    base: Base
    modules: dict[str, tuple[StoredModule, Change]] = field(default_factory=dict)
    tensors: dict[str, TensorChange] = field(default_factory=dict)
    wholes: dict[str, AdapterTensor] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    has_both: bool = False

    def read(self, tensors: list[AdapterTensor]) -> Changes:
        parts: dict[str, dict[Role, AdapterTensor]] = {}
        for each in tensors:
            if self.adapter.tensors[each.name].dtype not in FLOATS:
                self.problems[each.name] = f"is {self.adapter.tensors[each.name].dtype}, not F32, F16 or BF16"
            elif each.role == "whole":
                self._find_whole(each)
            elif (other := parts.setdefault(each.module, {}).setdefault(each.role, each)) is not each:
                self.problems[each.name] = f"is the same part as {other.name}"
        heads = [
            each
            for each in tensors
            if each.role == "whole" and self.base.is_tied_head(each.module.removesuffix(".weight"))
        ]
        for each in heads:
            self._drop_tied_head(each)
        for module, roles in parts.items():
            if (why := self._place_parts(module, roles)) is not None:
                self.problems.update({each.name: why for each in roles.values()})
        for name, each in self.wholes.items():
            self._replace(name, each)
        self._check_tied()
        if self.problems:
            raise _unused(self.problems, self.adapter, len(tensors))
        return Changes(
            tuple(self.modules.values()), tuple(self.tensors.values()), (*self.notes, *_absent(self.settings, parts))
        )

    def _find_whole(self, each: AdapterTensor) -> None:
        module, _, last = each.module.rpartition(".")
        stem = self.base.stem(module, last, *(("weight_packed",) if last == "weight" else ()))
        if stem is not None:
            if (other := self.wholes.setdefault(f"{stem}.{last}", each)) is not each:
                self.problems[each.name] = f"is the same tensor as {other.name}"
        elif not (self.base.is_tied_head(module) and last == "weight"):
            self.problems[each.name] = "the base has no tensor of that name"

    def _drop_tied_head(self, each: AdapterTensor) -> None:
        """A head in full is no change where the embedding, which stands in its place, is or becomes the same."""
        twin = next((other for name, other in self.wholes.items() if is_embedding(name.removesuffix(".weight"))), None)
        own = self.base.embedding()
        if twin is not None and same(self.adapter, each.name, self.adapter, twin.name):
            self.has_both = True
            self.notes.append("the output head is tied to the embedding, and the adapter has the same values for both")
        elif twin is None and own is not None and same(self.adapter, each.name, self.base.source, own):
            self.notes.append("the adapter's output head is the base's embedding, to which it is tied, as it is")
        else:
            self.problems[each.name] = HEAD_TIED

    def _place_parts(self, module: str, roles: Mapping[Role, AdapterTensor]) -> str | None:
        """Take one module's matrices, if they are complete, meant by the settings, in the base, and of fitting shapes.

        What is wrong with all of them, None when nothing is.
        """
        stem = self.base.stem(module, "weight", "weight_packed")
        if stem is None:
            return HEAD_TIED if self.base.is_tied_head(module) else "the base has no such module"
        if roles.keys() - {"rows"} and not is_target(self.settings, module):
            return "the settings (target_modules, exclude_modules, layers_to_transform) leave this module out"
        if stem in self.modules:
            return f"the base's {stem} is changed twice"
        try:
            stored = stored_module(self.base.source, stem, self.base.block_of)
        except OnecatError as error:
            return f"{error.found} ({', '.join(error.details)})"
        whole = self.wholes.pop(f"{stem}.weight", None)
        made = fitting(
            module, stored, roles, whole, self.settings, self.adapter, joined_layers=self.base.joined_layers
        )  # fmt: skip
        if isinstance(made, dict):
            self.problems.update(made)
            return None
        self.modules[stem] = (stored, made)
        if "second-bias" in roles:
            self._add_bias(f"{stem}.bias", roles["second-bias"], made.scaling)
        return None

    def _add_bias(self, name: str, each: AdapterTensor, scaling: float) -> None:
        if name not in self.base.source.tensors:
            self.problems[each.name] = "is a bias, and the base's module has none to add it to"
            return
        whole = self.wholes.pop(name, None)
        if self._fits(name, [each, *([whole] if whole else [])]):
            self.tensors[name] = TensorChange(name, whole.name if whole else None, each.name, scaling)

    def _replace(self, name: str, each: AdapterTensor) -> None:
        """Take a tensor that stands in full for one of the base."""
        own = self.base.source.tensors.get(name)
        if own is not None and (len(own.shape) != 2 or not name.endswith(".weight")):
            if self._fits(name, [each]):
                self.tensors[name] = TensorChange(name, each.name)
            return
        stem = name.removesuffix(".weight")
        try:
            stored = stored_module(self.base.source, stem, self.base.block_of)
        except OnecatError as error:
            self.problems[each.name] = f"{error.found} ({', '.join(error.details)})"
            return
        if (shape := self.adapter.tensors[each.name].shape) != stored.shape:
            self.problems[each.name] = _shapes(shape, name, stored.shape)
        else:
            self.modules[stem] = (stored, Change(each.module.removesuffix(".weight"), stem, whole=each.name))

    def _fits(self, name: str, used: Iterable[AdapterTensor]) -> bool:
        own = self.base.source.tensors[name]
        wrong = {}
        for each in used:
            if (shape := self.adapter.tensors[each.name].shape) != own.shape:
                wrong[each.name] = _shapes(shape, name, own.shape)
            elif own.dtype not in FLOATS:
                wrong[each.name] = f"the base's {name} is {own.dtype}"
        self.problems.update(wrong)
        return not wrong

    def _check_tied(self) -> None:
        """Refuse what would change a tied output head that the adapter was trained without changing.

        Trained rows are no such thing: PEFT ties them as the model does.
        """
        if not self.base.tied or self.settings.tied or self.has_both:
            return
        for stem, (stored, change) in list(self.modules.items()):
            if not is_embedding(stem) or (change.first is None and change.whole is None):
                continue
            as_it_is = change.whole is not None and same(self.adapter, change.whole, self.base.source, stored.data)
            if as_it_is and change.first is None and change.rows is None:
                del self.modules[stem]
                self.notes.append(f"the adapter's {stem} is the base's as it is")
            elif not as_it_is or change.first is not None:
                self.problems.update(dict.fromkeys(change.tensors, EMBEDDING_TIED))


def _shapes(shape: tuple[int, ...], name: str, own: tuple[int, ...]) -> str:
    return f"is {list(shape)}, and the base's {name} is {list(own)}"


def _absent(settings: AdapterSettings, parts: Iterable[str]) -> list[str]:
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
        next_steps=["compare the base with base_model_name_or_path in the adapter's adapter_config.json"],
        code=ExitCode.NO,
    )
