"""From a quantised checkpoint to the plan of a plain one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onecat.checkpoints.numbering import counted
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.codec import Codec
from onecat.nvfp4.dequantisation import fp8_weights, nvfp4_weights
from onecat.nvfp4.dequantisation.modules import ACTIVATIONS, Module
from onecat.nvfp4.dequantisation.opening import Original
from onecat.nvfp4.dequantisation.plain_tensors import Types, holds_codes, keep
from onecat.nvfp4.dequantisation.targets import (
    PLAIN_DTYPES,
    Target,
    index,
    into_shards,
    own_dtype,
    plain_config,
    step_bytes,
)
from onecat.nvfp4.dequantisation.weights import QuantisedWeight, Unreadable
from onecat.nvfp4.rewriting import Made, Rewrite, SourceFiles, Step
from onecat.nvfp4.rewriting.records import Contents


@dataclass(frozen=True)
class Dequantisation:
    """The plan, and what there is to say of it.

    dtype: of the plain weights. modules: how many are turned back, by scheme. kept: plain tensors that go along.
    dropped: tensors for activations and the KV cache that do not. source_bytes, target_bytes: of all tensors.
    """

    rewrite: Rewrite
    dtype: str
    modules: Mapping[str, int]
    kept: int
    dropped: tuple[str, ...]
    source_bytes: int
    target_bytes: int


def plan_dequantisation(original: Original, target: Target, codec: Codec) -> Dequantisation:
    """Plan the plain checkpoint; nothing is read but what `original` holds.

    Raises OnecatError when a module is stored in a way that is not read here (all of them are counted), when nothing
    is quantised.
    """
    source = original.source
    modules, _ = original.gathered
    weights = quantised_weights(original)
    if not weights:
        raise _nothing_to_do(original, len(modules))
    taken = {name for stem in weights for name in modules[stem].names.values()}
    own = own_dtype(original.config, ((each.dtype, each.bytes) for name, each in source.tensors.items()
                                      if name not in taken))  # fmt: skip
    dtype = target.dtype or own
    dropped = _dropped(modules)
    steps = tuple(_steps(source, modules, weights, frozenset(dropped), Types(own, dtype), codec))
    shards = into_shards(steps, target.shard_bytes)
    rewrite = Rewrite(
        source=original.directory,
        target=target.directory,
        shards=shards,
        documents={"config.json": plain_config(original.config, own, dtype), **index(shards)},
        copied=original.beside,
        identity={"command": "dequantize", "--dtype": dtype, "--shard-size": target.shard_bytes},
        restart=target.restart,
        replace=target.replace,
    )
    return Dequantisation(
        rewrite,
        dtype,
        dict(Counter(each.scheme for each in weights.values())),
        len(steps) - len(weights),
        dropped,
        sum(each.bytes for each in source.tensors.values()),
        sum(map(step_bytes, steps)),
    )


def quantised_weights(original: Original) -> dict[str, QuantisedWeight]:
    """The weights that are stored as codes and scales, by the name of their module; empty for a plain checkpoint.

    Raises OnecatError when a module is stored in a way that is not read here; all of them are counted.
    """
    modules, alone = original.gathered
    found = {stem: _recognise(module, original) for stem, module in modules.items()}
    _refuse(original, found, alone)
    return {stem: each for stem, each in found.items() if each is not None and not isinstance(each, Unreadable)}


def _recognise(module: Module, original: Original) -> QuantisedWeight | Unreadable | None:
    """How a module's weight is stored; None for a plain one, or none."""
    quantization = original.checkpoint.quantization
    claimed = quantization.scheme_of(module.stem) if quantization is not None else None
    found = nvfp4_weights.recognise(module) or fp8_weights.recognise(module, claimed)
    if found is not None:
        return found
    data = module.data
    if not module.scales and (data is None or (data == "weight" and not holds_codes(module.parts[data].dtype))):
        return None
    if quantization is None:
        return Unreadable("quantised weights", f"it has {module.described()}")
    scheme = claimed.name if claimed is not None else quantization.scheme
    return Unreadable(f"{scheme} of {quantization.method}", f"it has {module.described()}")


def _inside(name: str, found: Mapping[str, QuantisedWeight | Unreadable | None]) -> str | None:
    """The quantised module that a tensor is inside of; None for none."""
    parts = name.split(".")
    stems = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
    return next((stem for stem in stems if found.get(stem) is not None), None)


def _refuse(original: Original, found: Mapping[str, QuantisedWeight | Unreadable | None], alone: list[str]) -> None:
    """Raises OnecatError for what is not read here."""
    unread = {stem: each for stem, each in found.items() if isinstance(each, Unreadable)}
    for name in alone:
        if holds_codes(original.source.tensors[name].dtype):
            unread[name] = Unreadable("tensors without a scale", f"its type is {original.source.tensors[name].dtype}")
        elif (stem := _inside(name, found)) is not None and name != f"{stem}.bias":
            # As the low-rank part of SVDQuant, which a weight is not whole without.
            unread[stem] = Unreadable("weights in several parts", f"it has {name.removeprefix(f'{stem}.')} too")
    if unread:
        counts = Counter(each.scheme for each in unread.values())
        told = ", ".join(f"{scheme} ({counted(count, 'module')})" for scheme, count in counts.most_common())
        raise OnecatError(
            f"{original.directory} holds weights that this command does not read: {told}",
            expected="NVFP4 (compressed-tensors, ModelOpt), FP8 of tensors, channels, groups or blocks",
            where=str(original.directory),
            next_steps=[
                f"see what it holds: onecat model inspect {original.directory}",
                "use the unquantised checkpoint that it was made from",
            ],
            details=[f"{stem}: {each.why}" for stem, each in list(unread.items())[:8]],
            code=ExitCode.NO,
        )


def _nothing_to_do(original: Original, weights: int) -> OnecatError:
    claim = original.checkpoint.quantization
    said = "" if claim is None else f", though config.json says {claim.method}"
    return OnecatError(
        f"{original.directory} is not quantised: all its {counted(weights, 'weight')} are plain{said}",
        expected="a checkpoint with NVFP4 or FP8 weights",
        where=str(original.directory),
        next_steps=["use it as it is"],
        code=ExitCode.NO,
    )


def _dropped(modules: Mapping[str, Module]) -> tuple[str, ...]:
    return tuple(
        name for module in modules.values() for part, name in module.names.items()
        if part in ACTIVATIONS
    )  # fmt: skip


def _steps(
    source: SourceFiles, modules: Mapping[str, Module], weights: Mapping[str, QuantisedWeight],
    dropped: frozenset[str], types: Types, codec: Codec,
) -> Iterator[Step]:  # fmt: skip
    """A step for each plain tensor, in the order in which the codes or values lie in the source."""
    wanted = PLAIN_DTYPES[types.wanted]
    homes = {modules[stem].names[modules[stem].data or ""]: stem for stem in weights}
    parts = {name for stem in weights for name in modules[stem].names.values()}
    for name, tensor in source.tensors.items():
        if name in homes:
            stem = homes[name]
            yield _dequantise(modules[stem], weights[stem], wanted, codec)
        elif name not in parts and name not in dropped:
            yield keep(name, tensor, types.of(tensor))


def _dequantise(module: Module, weight: QuantisedWeight, dtype: str, codec: Codec) -> Step:
    data = module.data or ""
    name = module.stem if module.names[data] == module.stem else f"{module.stem}.weight"

    def make(source: SourceFiles) -> Contents:
        return Contents([weight.values(source, codec, dtype)])

    return Step(module.stem, (Made(name, dtype, weight.shape),), weight.reads, make)
