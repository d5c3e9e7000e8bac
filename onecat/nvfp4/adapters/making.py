"""The tensors of changed modules: merged in float32, rounded anew into the scheme that they had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import ml_dtypes
import numpy

from onecat.errors import ExitCode, OnecatError
from onecat.nvfp4.adapters.changes import TensorChange
from onecat.nvfp4.adapters.dithering import Rounding, dithered_fp8, dithered_nvfp4
from onecat.nvfp4.adapters.fusing import Group, divided
from onecat.nvfp4.adapters.merging import Change, Merge
from onecat.nvfp4.adapters.storage import StoredModule, TensorScale, Weight
from onecat.nvfp4.codec import E4M3_MAX, Codec, Deviation, ScaledCodes, Search
from onecat.nvfp4.rewriting import SourceFiles
from onecat.nvfp4.rewriting.records import Contents
from onecat.nvfp4.tensor_types import NUMPY_TYPES, Array


@dataclass
class Sums:
    """Sums of squares over a module: of the base, the merged weight, the update (their difference), the error of what
    is stored, the error of a conversion of the merged weight (`fresh`), and how far what is stored is from the base."""

    base: float = 0.0
    merged: float = 0.0
    update: float = 0.0
    error: float = 0.0
    fresh: float = 0.0
    moved: float = 0.0
    halvings: int = 0

    def add(self, update: Deviation, error: Deviation, moved: Deviation, fresh: Deviation | None = None) -> None:
        """Count some rows: the merged ones against the base, what is stored against both, and a conversion of them
        (None where it would store the same)."""
        self.base += update.squared_signal
        self.update += update.squared_error
        self.merged += error.squared_signal
        self.error += error.squared_error
        self.moved += moved.squared_error
        self.fresh += (fresh or error).squared_error

    def measured(self) -> Mapping[str, float]:
        """As a step's findings."""
        return asdict(self)


@dataclass(frozen=True)
class Maker:
    """What all steps need. adapter: the adapter's file."""

    adapter: SourceFiles
    codec: Codec
    search: Search
    rounding: Rounding = "nearest"

    def module(
        self, stored: StoredModule, change: Change, group: Group | None, wanted: tuple[str, ...]
    ) -> Callable[[SourceFiles], Contents]:
        """Makes the tensors `wanted` of a changed module; measures when its elements are among them."""

        def make(source: SourceFiles) -> Contents:
            weight = Weight(stored, source, self.codec)
            merge = Merge(change, self.adapter, weight.rows, stored.chunks())
            sums = Sums()
            if stored.kind == "nvfp4":
                assert group is not None
                made = self._nvfp4(weight, merge, group, source, sums)
            elif stored.kind == "fp8-block":
                made = self._fp8(weight, merge, sums)
            else:
                made = self._plain(weight, merge, source.tensors[stored.data].dtype, sums)
            return Contents([made[name] for name in wanted], sums.measured() if stored.data in wanted else {})

        return make

    def neighbour(self, stored: StoredModule, group: Group, name: str) -> Callable[[SourceFiles], Contents]:
        """Makes a scale of an unchanged module whose group is scaled anew, or copies it."""

        def make(source: SourceFiles) -> Contents:
            halvings = group.scales(source).halvings
            if not halvings:
                return Contents([source.raw(name)])
            if name == stored.block_scale:
                return Contents([divided(source.read(name), halvings)])
            stated = source.read(name)
            scale = TensorScale(float(stated.reshape(-1)[0]), stored.reciprocal).divided(halvings)
            return Contents([numpy.full(stated.shape, scale.stated, numpy.float32)])

        return make

    def tensor(self, change: TensorChange) -> Callable[[SourceFiles], Contents]:
        """Makes a bias or a norm's weight."""

        def make(source: SourceFiles) -> Contents:
            dtype = source.tensors[change.tensor].dtype
            base = source.read(change.tensor).astype(numpy.float32)
            merged = base if change.whole is None else self.adapter.read(change.whole).astype(numpy.float32)
            if change.added is not None:
                merged = merged + numpy.float32(change.scaling) * self.adapter.read(change.added).astype(numpy.float32)
            values = _rounded(merged, dtype, change.tensor)
            sums = Sums()
            self._count(sums, base.reshape(1, -1), merged.reshape(1, -1), values.reshape(1, -1))
            return Contents([values], sums.measured())

        return make

    def _nvfp4(self, weight: Weight, merge: Merge, group: Group, source: SourceFiles, sums: Sums) -> dict[str, Array]:
        stored = weight.module
        assert weight.block_scale is not None and stored.block_scale is not None and stored.tensor_scale is not None
        halvings, largest = group.scales(source)
        sums.halvings = halvings
        scale, fresh_scale = weight.scale.divided(halvings), weight.scale.chosen(self.codec, largest)
        packed, block_scale = numpy.empty_like(weight.data), numpy.empty_like(weight.block_scale)
        for start, stop in stored.chunks():
            base, merged = merge.rows(start, stop)
            made = scale.codes(self.codec, merged, self.search)
            if self.rounding == "dithered":
                made = dithered_nvfp4(made, merged, scale.multiplier, stored.stem, start)
            packed[start:stop], block_scale[start:stop] = made.packed, made.block_scale
            fresh = None
            if fresh_scale != scale or self.rounding == "dithered":
                anew = fresh_scale.codes(self.codec, merged, self.search)
                fresh = self.codec.nvfp4_deviation(merged, anew, fresh_scale.multiplier)
            sums.add(
                self.codec.deviation(base, merged),
                self.codec.nvfp4_deviation(merged, made, scale.multiplier),
                self.codec.nvfp4_deviation(base, made, scale.multiplier),
                fresh,
            )
        shape = source.tensors[stored.tensor_scale].shape
        return {
            stored.data: packed,
            stored.block_scale: block_scale,
            stored.tensor_scale: numpy.full(shape, scale.stated, numpy.float32),
        }

    def _fp8(self, weight: Weight, merge: Merge, sums: Sums) -> dict[str, Array]:
        stored = weight.module
        assert weight.block_scale is not None and stored.block_scale is not None and stored.block is not None
        codes, scale = numpy.empty_like(weight.data), numpy.empty_like(weight.block_scale)
        for start, stop in stored.chunks():
            base, merged = merge.rows(start, stop)
            made = self.codec.fp8_block(merged, stored.block)
            if scale.dtype != numpy.float32:
                made = _with_rounded_scales(made, merged, stored.block)
            fresh = self.codec.fp8_deviation(merged, made, stored.block)
            if self.rounding == "dithered":
                made = dithered_fp8(made, merged, stored.block, stored.stem, start)
            codes[start:stop] = made.codes
            scale[start // stored.block[0] : -(-stop // stored.block[0])] = made.scale
            sums.add(
                self.codec.deviation(base, merged),
                self.codec.fp8_deviation(merged, made, stored.block),
                self.codec.fp8_deviation(base, made, stored.block),
                fresh,
            )
        return {stored.data: codes, stored.block_scale: scale}

    def _plain(self, weight: Weight, merge: Merge, dtype: str, sums: Sums) -> dict[str, Array]:
        stored = weight.module
        made = numpy.empty_like(weight.data)
        for start, stop in stored.chunks():
            base, merged = merge.rows(start, stop)
            made[start:stop] = _rounded(merged, dtype, stored.data)
            self._count(sums, base, merged, made[start:stop])
        return {stored.data: made}

    def _count(self, sums: Sums, base: Array, merged: Array, values: Array) -> None:
        stored = values.astype(numpy.float32)
        deviation = self.codec.deviation
        sums.add(deviation(base, merged), deviation(merged, stored), deviation(base, stored))


def _with_rounded_scales(made: ScaledCodes, merged: Array, block: tuple[int, int]) -> ScaledCodes:
    """The same with scales in bfloat16, and codes made for them."""
    scale = made.scale.astype(ml_dtypes.bfloat16)
    spread = scale.astype(numpy.float32).repeat(block[0], axis=0).repeat(block[1], axis=1)
    limited = numpy.clip(merged / spread[: merged.shape[0], : merged.shape[1]], -E4M3_MAX, E4M3_MAX)
    return ScaledCodes(limited.astype(ml_dtypes.float8_e4m3fn), scale)


def _rounded(values: Array, dtype: str, name: str) -> Array:
    with numpy.errstate(over="ignore"):
        rounded: Array = values.astype(NUMPY_TYPES[dtype])
    if not numpy.isfinite(rounded.astype(numpy.float32)).all():
        raise OnecatError(
            f"{name}: merged weights do not fit into {dtype}",
            expected="finite values in the adapter, and sums that the base's type holds",
            next_steps=["store the base in BF16, then merge again"],
            code=ExitCode.NO,
        )
    return rounded
