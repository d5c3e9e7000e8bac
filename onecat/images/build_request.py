"""One build as both builders take it, and how they say that it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from onecat.images.context import Context
from onecat.images.context_output import tar_stream
from onecat.images.disk import megabytes

_UPLOAD_STEP_BYTES = 100_000_000


@dataclass(frozen=True)
class BuildRequest:
    """What a builder gets.

    tag: name of the image. labels: of the image, besides those of the Dockerfile. arguments: build arguments, which may
    hold secrets (a proxy's password). target: the stage that is built; None for the last.
    """

    context: Context
    tag: str
    labels: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None


class BuildFailedError(Exception):
    """The builder gave up; the text is its last word."""


def upload(context: Context, report: Callable[[str], None]) -> Iterator[bytes]:
    """The context as a tar archive; tells from time to time how much is on its way."""
    total, sent, told = context.size, 0, 0
    for piece in tar_stream(context):
        sent += len(piece)
        if sent - told >= _UPLOAD_STEP_BYTES:
            told = sent
            report(f"context {megabytes(sent)} of {megabytes(max(total, sent))}")
        yield piece
