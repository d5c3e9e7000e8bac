"""Which tensors are scales, and what is wrong with their values."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.values import FORMATS, Counts
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.numbering import first_of
from onecat.checkpoints.records import Severity
from onecat.checkpoints.safetensors_header import Header, Tensor

ENDINGS = (
    "_scale",
    "_scale_inv",
    "_scale_2",
    "_scales",
    ".scales",
    ".scale",
    ".scale_inv",
    "qscale_weight",
    "qscale_act",
)
OF_WHOLE_TENSORS = ("weight_global_scale", "weight_scale_2", "input_global_scale")
"""Scales that the engine takes the reciprocal of, or divides by."""

SOURCE = (
    "https://github.com/vllm-project/compressed-tensors/blob/main/src/compressed_tensors/compressors/nvfp4/helpers.py"
)
Found = tuple[str, Tensor, Counts]
Wanted = list[tuple[str, Header, list[tuple[Tensor, str]]]]
"""Tensors to read by file, each with the format to read it as."""


def scale_format(tensor: Tensor) -> str | None:
    """The format to read a tensor's values as when it is a scale, None when it is none or not of floats.

    Powers of two for MX formats are stored as U8.
    """
    if not tensor.name.endswith(ENDINGS):
        return None
    return tensor.dtype if tensor.dtype in FORMATS else "F8_E8M0" if tensor.dtype == "U8" else None


def scales(contents: Contents) -> Wanted:
    """All scales that an engine loads, by file, for `scan`."""
    wanted = []
    for name in contents.shards:
        if (header := contents.headers.get(name)) is not None:
            those = [(tensor, form) for tensor in header.tensors if (form := scale_format(tensor)) is not None]
            if those:
                wanted.append((name, header, those))
    return wanted


def floats(contents: Contents) -> Wanted:
    """All tensors of floats that an engine loads, by file, for `scan`."""
    return [
        (name, header, [(tensor, tensor.dtype) for tensor in header.tensors if tensor.dtype in FORMATS])
        for name in contents.shards
        if (header := contents.headers.get(name)) is not None
    ]


def faults_of_scales(found: Iterator[Found] | list[Found]) -> Iterator[Fault]:
    """What the values of scales say, one fault for all tensors with the same fault in one file."""
    grouped: dict[tuple[str, str, Severity], list[tuple[Tensor, int]]] = {}
    for file, tensor, counts in found:
        whole = tensor.name.endswith(OF_WHOLE_TENSORS)
        # GPTQ's and AutoRound's integers may have a sign in their scale.
        signed = tensor.name.endswith((".scales", "_scales"))
        for kind, number, severity in (
            ("nan", counts.nan, "fail"),
            ("infinite", counts.infinite, "fail"),
            ("zero", counts.zero, "fail" if whole else "info"),
            ("negative", 0 if signed else counts.negative, "fail" if whole or tensor.dtype == "F8_E4M3" else "warn"),
        ):
            if number:
                grouped.setdefault((file, kind, severity), []).append((tensor, number))  # type: ignore[arg-type]
    for (file, kind, severity), those in grouped.items():
        values = sum(number for _, number in those)
        yield Fault(
            f"{kind}-scale",
            severity,
            f"{_told(values, kind)} in {_some(those)}",
            file,
            DOWNLOAD_AGAIN,
            WHY[kind],
            SOURCE,
        )


def faults_of_weights(found: Iterator[Found] | list[Found]) -> Iterator[Fault]:
    """NaN and infinities among weights, one fault for each file and kind."""
    grouped: dict[tuple[str, str], list[tuple[Tensor, int]]] = {}
    for file, tensor, counts in found:
        for kind, number in (("nan", counts.nan), ("infinite", counts.infinite)):
            if number and scale_format(tensor) is None:
                grouped.setdefault((file, kind), []).append((tensor, number))
    for (file, kind), those in grouped.items():
        values = sum(number for _, number in those)
        why = "Every answer becomes NaN: `!!!!!` or an empty text."
        yield Fault(f"{kind}-weight", "fail", f"{_told(values, kind)} in {_some(those)}", file, DOWNLOAD_AGAIN, why)


WHY = {
    "nan": "Every weight under it becomes NaN, and so does every answer.",
    "infinite": "Every weight under it becomes infinite or NaN, and so does every answer.",
    "zero": "All weights under it are zero: right for a block of zeros, and a fault for more.",
    "negative": "Scales are sizes; engines read E4M3 scales without a sign, so such blocks come out wrong.",
}
WORDS = {"nan": "NaN", "infinite": "infinite", "zero": "zero", "negative": "negative"}


def _told(values: int, kind: str) -> str:
    return f"{values} {'value is' if values == 1 else 'values are'} {WORDS[kind]}"


def _some(those: list[tuple[Tensor, int]]) -> str:
    return first_of([tensor.name for tensor, _ in those], noun="tensors")
