"""Reads the table about the GPU code inside ready-made builds as typed records."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from onecat.knowledge.tables import frozen, table


@dataclass(frozen=True)
class ImageBuild:
    """Releases `first` to `last` of the image `repository`. architectures, has, lacks: see cuda_builds.yaml."""

    repository: str
    first: str
    last: str
    source: tuple[str, ...]
    architectures: tuple[str, ...] | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TorchBuild:
    """PyTorch's wheels of the minor versions `torch` for the CUDA versions `cuda`. has, lacks: see cuda_builds.yaml."""

    torch: tuple[str, ...]
    cuda: tuple[str, ...]
    source: tuple[str, ...]
    architectures: tuple[str, ...] | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


def image_build(reference: str) -> ImageBuild | None:
    """The build of an image such as vllm/vllm-openai:v0.27.1; None for tags that are not plain release numbers."""
    found = re.fullmatch(
        r"(?:docker\.io/)?(?P<repository>[^:@]+):v?(?P<version>\d+\.\d+\.\d+)(?:\.post\d+)?", reference
    )
    if found is None:
        return None
    version = _key(found["version"])
    return next(
        (
            each
            for each in image_builds()
            if each.repository == found["repository"] and _key(each.first) <= version <= _key(each.last)
        ),
        None,
    )


def torch_build(torch_version: str, cuda_version: str) -> TorchBuild | None:
    """PyTorch's own wheel of a version such as 2.11.0+cu126 for a CUDA such as 12.6; None when none is known."""
    minor, cuda = re.match(r"\d+\.\d+", torch_version), re.match(r"\d+\.\d+", cuda_version)
    if minor is None or cuda is None or re.match(r"[\d.]+(\+cu\d+)?$", torch_version) is None:
        return None
    return next((row for row in torch_builds() if minor.group() in row.torch and cuda.group() in row.cuda), None)


@functools.cache
def image_builds() -> tuple[ImageBuild, ...]:
    """Every row of cuda_builds.yaml about images."""
    return tuple(ImageBuild(**frozen(row)) for row in table("cuda_builds.yaml")["images"])


@functools.cache
def torch_builds() -> tuple[TorchBuild, ...]:
    """Every row of cuda_builds.yaml about PyTorch."""
    return tuple(TorchBuild(**frozen(row)) for row in table("cuda_builds.yaml")["torch"])


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
