"""How a module of the base is stored, told from its tensors, and its weight in float32, a run of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy

from onecat.checkpoints.modules import AUXILIARY
from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.codec import BLOCK, Codec, Nvfp4, ScaledCodes, Search
from onecat.nvfp4.rewriting import SourceFiles, SourceTensor
from onecat.nvfp4.tensor_types import FLOATS, Array

Kind = Literal["plain", "nvfp4", "fp8-block"]

CHUNK_ELEMENTS = 1 << 22
"""Elements of a weight that are worked on at once: 16 MiB in float32."""

ACTIVATIONS = frozenset({"input_scale", "input_global_scale", "output_scale", "k_scale", "v_scale", "q_scale"})
"""Scales of what goes through a module. They stay as they are: no update of its weights says anything of them."""


@dataclass(frozen=True)
class StoredModule:
    """A matrix of the base. shape: of the weight, as the model has it ([out, in] of a linear module).

    data, block_scale, tensor_scale: names of its tensors; None where there are none. reciprocal: the tensor scale is
    what weights are multiplied with before they become codes (compressed-tensors), not what codes are multiplied with
    (ModelOpt). block: [out, in] of one FP8 scale.
    """

    stem: str
    kind: Kind
    shape: tuple[int, int]
    data: str
    block_scale: str | None = None
    tensor_scale: str | None = None
    reciprocal: bool = False
    block: tuple[int, int] | None = None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all tensors that hold the weight, its elements first."""
        return tuple(each for each in (self.data, self.block_scale, self.tensor_scale) if each is not None)

    def chunks(self) -> list[tuple[int, int]]:
        """Runs of rows, first and behind the last; an FP8 block is in one run."""
        rows, columns = self.shape
        step = max(1, CHUNK_ELEMENTS // max(columns, 1))
        if self.block is not None:
            step = max(step // self.block[0], 1) * self.block[0]
        return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def stored_module(source: SourceFiles, stem: str, block_of: Callable[[str], tuple[int, int] | None]) -> StoredModule:
    """How a module is stored. block_of: the block of FP8 scales that the configuration states for a module.

    Raises OnecatError when its tensors are of a scheme that onecat does not write, or do not fit each other.
    """
    parts = {
        part: source.tensors[name]
        for part in ("weight", "weight_packed", "qweight", *AUXILIARY)
        if (name := f"{stem}.{part}") in source.tensors
    }
    weight = {part for part in parts if part not in ACTIVATIONS}
    if weight == {"weight_packed", "weight_scale", "weight_global_scale"}:
        return _nvfp4(source, stem, parts, "weight_packed", "weight_global_scale")
    if weight == {"weight", "weight_scale", "weight_scale_2"}:
        return _nvfp4(source, stem, parts, "weight", "weight_scale_2")
    if len(weight) == 2 and "weight" in weight and parts["weight"].dtype == "F8_E4M3":
        scale = (weight - {"weight"}).pop()
        if scale in ("weight_scale", "weight_scale_inv"):
            return _fp8(source, stem, parts, scale, block_of(stem))
    if weight == {"weight"} and parts["weight"].dtype in FLOATS and len(parts["weight"].shape) == 2:
        rows, columns = parts["weight"].shape
        return StoredModule(stem, "plain", (rows, columns), f"{stem}.weight")
    raise _unfit(source, stem, parts, "is stored in a way that onecat does not write")


def _nvfp4(
    source: SourceFiles, stem: str, parts: Mapping[str, SourceTensor], data: str, tensor_scale: str
) -> StoredModule:
    packed, scale, whole = parts[data], parts["weight_scale"], parts[tensor_scale]
    fits = (
        packed.dtype == "U8" and scale.dtype == "F8_E4M3" and whole.dtype == "F32" and len(packed.shape) == 2
        and scale.shape == (packed.shape[0], packed.shape[1] * 2 // BLOCK) and packed.shape[1] * 2 % BLOCK == 0
        and whole.shape in ((), (1,))
    )  # fmt: skip
    if not fits:
        raise _unfit(source, stem, parts, "has tensors that are no NVFP4 weight")
    return StoredModule(
        stem, "nvfp4", (packed.shape[0], packed.shape[1] * 2), f"{stem}.{data}", f"{stem}.weight_scale",
        f"{stem}.{tensor_scale}", reciprocal=tensor_scale == "weight_global_scale",
    )  # fmt: skip


def _fp8(
    source: SourceFiles, stem: str, parts: Mapping[str, SourceTensor], scale: str, block: tuple[int, int] | None
) -> StoredModule:
    codes, scales = parts["weight"], parts[scale]
    if block is None:
        raise _unfit(source, stem, parts, "has FP8 codes, and the configuration states no block that shares a scale")
    fits = (
        len(codes.shape) == 2 and scales.dtype in ("F32", "BF16")
        and scales.shape == (-(-codes.shape[0] // block[0]), -(-codes.shape[1] // block[1]))
    )  # fmt: skip
    if not fits:
        raise _unfit(source, stem, parts, f"has tensors that are no FP8 weight in blocks of {block[0]} x {block[1]}")
    rows, columns = codes.shape
    return StoredModule(stem, "fp8-block", (rows, columns), f"{stem}.weight", f"{stem}.{scale}", block=block)


def _unfit(source: SourceFiles, stem: str, parts: Mapping[str, SourceTensor], why: str) -> OnecatError:
    return OnecatError(
        f"{stem}, which the adapter changes, {why}",
        expected="NVFP4 (compressed-tensors or ModelOpt), FP8 in blocks with F32 or BF16 scales, or a plain matrix",
        where=str(source.directory),
        details=[f"{part}: {tensor.dtype} {list(tensor.shape)}" for part, tensor in parts.items()],
        next_steps=["merge the adapter into the original model, then onecat model convert"],
        code=ExitCode.NO,
    )


class TensorScale(NamedTuple):
    """The scale of a whole NVFP4 tensor. stated: as it is stored; reciprocal: as `StoredModule` says."""

    stated: float
    reciprocal: bool

    @property
    def multiplier(self) -> float:
        """What codes and block scales are multiplied with."""
        return float(numpy.float32(1) / numpy.float32(self.stated)) if self.reciprocal else self.stated

    def divided(self, halvings: int) -> TensorScale:
        """The scale that belongs to block scales divided by 2 so many times."""
        return TensorScale(self.stated * 2.0 ** (-halvings if self.reciprocal else halvings), self.reciprocal)

    def chosen(self, codec: Codec, largest: float) -> TensorScale:
        """The scale that a conversion stores for weights of this largest magnitude."""
        return TensorScale((codec.global_scale if self.reciprocal else codec.weight_scale_2)(largest), self.reciprocal)

    def codes(self, codec: Codec, rows: Array, search: Search) -> Nvfp4:
        """Codes and block scales of weights under this scale, as compressed-tensors or ModelOpt makes them."""
        return (codec.nvfp4 if self.reciprocal else codec.nvfp4_modelopt)(rows, self.stated, search)


class Weight:
    """A stored weight whose bytes are in memory; float32 rows are made when they are asked for."""

    def __init__(self, module: StoredModule, source: SourceFiles, codec: Codec) -> None:
        self.module = module
        self.data = source.read(module.data)
        self.block_scale = None if module.block_scale is None else source.read(module.block_scale)
        self.scale = TensorScale(1.0, module.reciprocal)
        self._codec = codec
        if module.tensor_scale is not None:
            stated = float(source.read(module.tensor_scale).reshape(-1)[0])
            self.scale = TensorScale(stated, module.reciprocal)
            if not (numpy.isfinite(stated) and stated > 0):
                raise OnecatError(
                    f"{module.tensor_scale} holds {stated}",
                    expected="a scale above 0",
                    where=str(source.directory / source.tensors[module.tensor_scale].file),
                    next_steps=[f"onecat model verify {source.directory}"],
                    code=ExitCode.NO,
                )

    def rows(self, start: int, stop: int) -> Array:
        """Rows of the weight in float32, in memory of their own."""
        module = self.module
        if module.kind == "nvfp4":
            assert self.block_scale is not None
            tensors = Nvfp4(self.data[start:stop], self.block_scale[start:stop])
            return self._codec.nvfp4_values(tensors, self.scale.multiplier, "F32")
        if module.kind == "fp8-block":
            assert self.block_scale is not None and module.block is not None
            first, behind = start // module.block[0], -(-stop // module.block[0])
            scale = self.block_scale[first:behind].astype(numpy.float32)
            return self._codec.fp8_values(ScaledCodes(self.data[start:stop], scale), module.block, "F32")
        return self.data[start:stop].astype(numpy.float32)
