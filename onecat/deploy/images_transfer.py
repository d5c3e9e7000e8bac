"""An image from this machine's Docker engine to a host's, through the connection that is there: `docker save | load`.

Layers that the host has are left out. An archive of `docker save` holds each layer as blobs/sha256/DIFF_ID since Docker
25 (OCI image layout, https://github.com/opencontainers/image-spec/blob/main/image-layout.md), and `docker load` looks
at a layer's file only where it does not have that layer on top of the same ones; so an archive without them loads. An
engine that wants them all the same is given the whole archive.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onecat.deploy.container import connect, translated
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.hosts import Machine

PIECE_BYTES = 1 << 20
REPORT_SECONDS = 5.0
SEND_SECONDS = 3600
_LAYERS = "blobs/sha256/"


def provide_image(machine: Machine, docker_host: str | None, image: str, report: Callable[[str], None]) -> str | None:
    """Let a host that is not this machine get an image it lacks: from the registry in its name, else from here.

    Returns its id there; None where it is to be had at neither place. Raises OnecatError when it cannot be sent.
    """
    if machine.is_local:
        return None
    return _pull(machine, docker_host, image, report) or send_image(machine, docker_host, image, report)


def image_forecast(machine: Machine, docker_host: str | None, image: str) -> str | None:
    """What `up` would do for the image of a host that is not this machine, in words; None where it is there."""
    from onecat.deploy.container import image_id

    if machine.is_local or image_id(machine.docker_host(docker_host), image) is not None:
        return None
    registry = registry_of(image)
    if registry is not None:
        return f"{machine.name} lacks the image {image} and would ask {registry} for it"
    if _here(image) is not None:
        return f"{machine.name} lacks the image {image}, which would be sent from here"
    return f"{machine.name} lacks the image {image}, and it is not here either"


def can_be_had(image: str) -> bool:
    """Whether a host that lacks the image may get it: from the registry in its name, or from here."""
    return registry_of(image) is not None or _here(image) is not None


def registry_of(image: str) -> str | None:
    """The registry that an image's name names; None for one without, which would be Docker's own.

    As Docker tells them apart: https://pkg.go.dev/github.com/distribution/reference (ParseDockerRef)
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else None


def _pull(machine: Machine, docker_host: str | None, image: str, report: Callable[[str], None]) -> str | None:
    from docker.errors import DockerException

    registry = registry_of(image)
    if registry is None or "@" not in image.rpartition("/")[2] and ":" not in image.rpartition("/")[2]:
        return None
    report(f"{machine.name} asks {registry} for {image}")
    client = connect(machine.docker_host(docker_host))
    client.api.timeout = SEND_SECONDS
    repository, _, tag = image.partition("@") if "@" in image else image.rpartition(":")
    try:
        return str(client.images.pull(repository, tag=tag).id)
    except DockerException as error:
        report(f"{registry} does not give it: {str(error).strip()[:200]}")
        return None


def send_image(machine: Machine, docker_host: str | None, image: str, report: Callable[[str], None]) -> str | None:
    """Give a host an image that this machine's engine has and the host has not. Returns its id there.

    Parameters:
        docker_host: address of the host's engine, as the host names it.
        report: receives lines about the progress.

    None where this machine has neither the image nor an engine. Raises OnecatError when it cannot be sent.
    """
    source = _here(image)
    if source is None:
        return None
    there = connect(machine.docker_host(docker_host))
    there.api.timeout = SEND_SECONDS
    layers = source.attrs["RootFS"]["Layers"]
    with translated(docker_host, None):
        present = layers_there(layers, (each.attrs["RootFS"].get("Layers") or [] for each in there.images.list()))
        _check_room(machine, there, source, image)
        try:
            _send(source, there, image, present, machine.name, report)
        except _RefusedError as refusal:
            if not present:
                raise _not_taken(image, machine, str(refusal)) from refusal
            report(f"{machine.name} wants the layers that it has, too: sending all of them")
            try:
                _send(source, there, image, frozenset(), machine.name, report)
            except _RefusedError as again:
                raise _not_taken(image, machine, str(again)) from again
        return str(there.images.get(image).id)


def layers_there(wanted: Sequence[str], images: Iterable[Sequence[str]]) -> frozenset[str]:
    """The layers of an image (diff ids, lowest first) that a host has on top of the same ones, from its images."""
    most = 0
    for layers in images:
        common = 0
        for ours, theirs in zip(wanted, layers, strict=False):
            if ours != theirs:
                break
            common += 1
        most = max(most, common)
    # One that comes again above is needed for that place.
    return frozenset(wanted[:most]) - frozenset(wanted[most:])


def without_layers(archive: Iterable[bytes], left_out: frozenset[str]) -> Iterator[bytes]:
    """An archive of `docker save` without the files of some layers (diff ids), piece by piece."""
    names = {_LAYERS + each.partition(":")[2] for each in left_out}
    with tarfile.open(fileobj=_Stream(archive), mode="r|") as source:
        for member in source:
            if member.name in names:
                continue
            yield member.tobuf(tarfile.PAX_FORMAT)
            content = source.extractfile(member) if member.isfile() else None
            if content is not None:
                while piece := content.read(PIECE_BYTES):
                    yield piece
                yield bytes(-member.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


class _Stream(io.RawIOBase):
    """Pieces as a file to read from."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken


class _RefusedError(Exception):
    """The engine there did not take the archive."""


def _here(image: str) -> Any | None:
    from docker.errors import ImageNotFound

    try:
        with translated(None, None):
            try:
                return connect(None).images.get(image)
            except ImageNotFound:
                return None
    except OnecatError as error:
        if error.code == ExitCode.UNREACHABLE:
            return None
        raise


def _send(
    source: Any, there: Any, image: str, present: frozenset[str], host: str, report: Callable[[str], None]
) -> None:
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    archive = without_layers(source.save(chunk_size=PIECE_BYTES, named=image), present)
    count = len(source.attrs["RootFS"]["Layers"])
    what = f"sending {image} to {host}"
    report(f"{what}: {count - len(present)} of {count} layers" if present else f"{what}: {count} layers")
    try:
        for line in there.api.load_image(_told(archive, lambda sent: report(f"{what}: {sent / 2**20:,.0f} MiB"))):
            if "error" in line:
                raise _RefusedError(line["error"])
    except (DockerException, RequestException) as error:
        raise _RefusedError(str(error)) from error


def _told(pieces: Iterable[bytes], tell: Callable[[int], None]) -> Iterator[bytes]:
    sent, last = 0, time.monotonic()
    for piece in pieces:
        yield piece
        sent += len(piece)
        if time.monotonic() - last > REPORT_SECONDS:
            last = time.monotonic()
            tell(sent)


def _check_room(machine: Machine, there: Any, source: Any, image: str) -> None:
    place, needed = str(there.info().get("DockerRootDir") or "/var/lib/docker"), int(source.attrs["Size"])
    try:
        free = machine.free_bytes(place)
    except PermissionError:
        return  # told by the engine, when it comes to that
    if free < needed:
        raise OnecatError(
            f"the disk of {machine.name} does not hold the image {image}: it takes {needed / 2**30:.1f} GiB",
            expected=f"{needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free",
            where=f"{place} on {machine.name}",
            next_steps=["there: docker system df, docker image prune"],
            code=ExitCode.ROLLED_BACK,
        )


def _not_taken(image: str, machine: Machine, text: str) -> OnecatError:
    return OnecatError(
        f"the Docker engine of {machine.name} did not take the image {image}",
        where=machine.name,
        details=[text.strip()[:600]],
        next_steps=[
            "there: df -h, docker system df",
            f"or make it there: onecat build --on {machine.name}",
        ],
        code=ExitCode.ROLLED_BACK,
    )
