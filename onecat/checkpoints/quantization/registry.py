"""Which functions read and lay out which flavour. A new flavour is a new file in flavours/ with decorated functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from onecat.checkpoints.quantization.claim import Claim
from onecat.checkpoints.quantization.records import Quantization, WeightScheme

Reader = Callable[[Claim], Quantization]
"""Takes what the configuration says, returns what that means."""


@dataclass(frozen=True)
class Matrix:
    """A weight to lay out. out, into: its features; outer: axes before them, when one tensor holds several matrices.

    stem: name of its tensors without the last part (`model.layers.0.mlp.down_proj`). dtype: of the model, as
    safetensors names it. joint: it is a parameter of its own, not the `weight` of a module.
    """

    stem: str
    out: int
    into: int
    outer: tuple[int, ...]
    dtype: str
    joint: bool = False


@dataclass(frozen=True)
class Stored:
    """One tensor of a matrix. name: what follows the stem, with its dot."""

    name: str
    dtype: str
    shape: tuple[int, ...]


Layout = Callable[[Matrix, WeightScheme], Iterator[Stored]]
"""Takes a matrix and its scheme, yields the tensors that a checkpoint holds for it."""


@dataclass
class _Flavours:
    readers: dict[str, Reader] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)


_FLAVOURS = _Flavours()


def flavour(*methods: str) -> Callable[[Reader], Reader]:
    """Register a reader for the values of `quant_method`. Raises ValueError when one of them has a reader already."""

    def register(reader: Reader) -> Reader:
        for method in methods:
            if method in _FLAVOURS.readers:
                raise ValueError(f"the quantisation method {method} is read twice")
            _FLAVOURS.readers[method] = reader
        return reader

    return register


def layout(*containers: str) -> Callable[[Layout], Layout]:
    """Register how matrices lie in these containers. Raises ValueError when one of them has a layout already."""

    def register(function: Layout) -> Layout:
        for container in containers:
            if container in _FLAVOURS.layouts:
                raise ValueError(f"the container {container} is laid out twice")
            _FLAVOURS.layouts[container] = function
        return function

    return register


def readers() -> dict[str, Reader]:
    """All readers by method."""
    return _loaded().readers


def layouts() -> dict[str, Layout]:
    """All layouts by container."""
    return _loaded().layouts


@cache
def _loaded() -> _Flavours:
    """The modules of flavours/ are loaded when this is first asked."""
    import pkgutil
    from importlib import import_module

    from onecat.checkpoints.quantization import flavours as package

    for module in sorted(each.name for each in pkgutil.iter_modules(package.__path__)):
        import_module(f"{package.__name__}.{module}")
    return _FLAVOURS
