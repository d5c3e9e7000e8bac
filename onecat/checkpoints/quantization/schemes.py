"""Schemes that several flavours share."""

from __future__ import annotations

from collections.abc import Iterable

from onecat.checkpoints.quantization.records import Quantization, Rule, WeightScheme

NVFP4_GROUP = 16
MX_GROUP = 32
"""Elements of one scale by the formats' definitions: NVIDIA's NVFP4, OCP Microscaling Formats 1.0."""


def nvfp4(activations: str | None = None, *, group_size: int = NVFP4_GROUP, input_scale: bool = False) -> WeightScheme:
    """4-bit floats with an E4M3 scale for 16 of them and a float32 scale for all."""
    return WeightScheme("nvfp4", 4, group_size, None, "F8_E4M3", activations, packed=2, input_scale=input_scale)


def mxfp4(activations: str | None = None) -> WeightScheme:
    """4-bit floats with a power of two for 32 of them."""
    return WeightScheme("mxfp4", 4, MX_GROUP, None, "U8", activations, packed=2)


def mxfp8(activations: str | None = "mxfp8") -> WeightScheme:
    """8-bit floats with a power of two for 32 of them."""
    return WeightScheme("mxfp8", 8, MX_GROUP, None, "U8", activations)


def fp8(
    kind: str, activations: str | None = "fp8", *, block: tuple[int, int] | None = None,
    scale_dtype: str | None = "F32", input_scale: bool = False, format: str | None = None,
) -> WeightScheme:  # fmt: skip
    """8-bit floats with a scale for each `kind`: tensor, channel or block."""
    return WeightScheme(
        f"fp8-{kind}", 8, block[1] if block else None, block, scale_dtype, activations, False, 1, input_scale, False,
        format,
    )  # fmt: skip


def integer(
    bits: int, group_size: int | None, *, activations: str | None = None, zero_points: bool = False, packed: int = 1,
    input_scale: bool = False, ordered: bool = False, format: str | None = None,
) -> WeightScheme:  # fmt: skip
    """Whole numbers of `bits` bits with a scale for each group of columns, or for each row (None)."""
    return WeightScheme(
        f"int{bits}", bits, group_size, None, None, activations, zero_points, packed, input_scale, ordered, format
    )


def quantization(
    container: str, method: str, rules: Iterable[Rule], *, format: str | None = None, ignored: Iterable[str] = (),
    kv_cache: str | None = None, scheme: str | None = None,
) -> Quantization:  # fmt: skip
    """A claim from its rules: `scheme` and `group_size` are those of all rules, or `mixed` and None."""
    rules = tuple(rules)
    schemes = tuple(dict.fromkeys(rule.scheme for rule in rules if rule.scheme is not None))
    names = {each.name for each in schemes}
    groups = {each.group_size for each in schemes}
    if scheme is None:
        scheme = names.pop() if len(names) == 1 else "mixed" if names else "none"
    return Quantization(
        scheme=scheme,
        container=container,
        method=method,
        format=format,
        group_size=groups.pop() if len(groups) == 1 else None,
        ignored=tuple(ignored),
        kv_cache=kv_cache,
        rules=rules,
    )
