"""Disk space."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, gibibytes
from onecat.facts import Filesystem

LEAST_INODES = 60_000
"""A Python environment with vLLM and torch holds about 40 000 files."""
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "beegfs", "gpfs")


def _places(context: Context) -> dict[str, Filesystem | None]:
    """The file systems an engine is put on, by what a person calls them."""
    purposes = {"native": ("onecat's data", "data"), "container": ("Docker's images", "docker")}
    return {
        purposes[runtime][0]: context.facts.filesystem(purposes[runtime][1])
        for runtime in (context.runtimes or ("native", "container"))
    }


@check(
    "disk.space",
    title="The disk has room for the engine",
    why="An engine image with CUDA takes tens of GB, a native engine a few; a full disk ends a build half way.",
    fix=("free some space", "or set ONECAT_HOME to a directory on a larger disk", "or move Docker's data-root"),
    source=("https://docs.docker.com/engine/daemon/#daemon-data-directory",),
    requires=(requirements.profile,),
)
def disk_space(context: Context) -> Iterator[Verdict]:
    """Free space where onecat keeps native engines and where Docker keeps images, against the profile."""
    assert context.profile is not None
    needed = context.profile.doctor.disk_gib
    for subject, place in _places(context).items():
        if place is None:
            yield Verdict("skip", f"Not checked: where {subject} would lie is not known", subject)
            continue
        evidence = (f"{place.path}: {gibibytes(place.available)} free of {gibibytes(place.total)}",)
        if place.available >= needed * GIB:
            yield Verdict("pass", f"{gibibytes(place.available)} free for {subject}", subject, evidence)
            continue
        # An engine that is already built needs little more, which the facts cannot tell.
        almost_full = place.available < GIB
        yield Verdict(
            "fail" if almost_full else "warn",
            f"{gibibytes(place.available)} free for {subject}, a new engine needs {needed:g} GiB",
            subject,
            evidence,
            fix=(
                f"free some space on the disk of {place.path}",
                "or set ONECAT_HOME to a directory on a larger disk"
                if place.purpose == "data"
                else 'or move Docker to a larger disk: "data-root" in /etc/docker/daemon.json',
            ),
        )


@check(
    "disk.inodes",
    title="The disk has room for many small files",
    why="A disk can be out of inodes with space to spare; then files cannot be created.",
    fix=("remove directories with very many small files, or make the file system anew with more inodes",),
    source=("https://man7.org/linux/man-pages/man1/df.1.html",),
)
def disk_inodes(context: Context) -> Iterator[Verdict]:
    """Free inodes where engines are put; file systems that make inodes as needed pass."""
    for subject, place in _places(context).items():
        if place is None or place.inodes_available is None:
            yield Verdict("skip", f"Not checked: free inodes for {subject} are not known", subject)
        elif place.inodes_available < LEAST_INODES:
            yield Verdict(
                "warn",
                f"Only {place.inodes_available} files can still be created for {subject}",
                subject,
                (f"{place.path}: {place.inodes_available} inodes free",),
                fix=(f"df -i {place.path}", "remove directories with very many small files"),
            )
        else:
            yield Verdict("pass", f"Inodes free for {subject}", subject, (f"{place.inodes_available} inodes free",))


@check(
    "disk.model",
    title="The model is read from a disk of this host",
    why="Loading reads every byte of the weights once: over a network that takes as long as the network needs for "
    "them, at every start.",
    fix=("copy the model to a local disk, and name that directory",),
    source=("https://docs.vllm.ai/en/v0.6.4.post1/getting_started/debugging.html",),
)
def disk_model(context: Context) -> Iterator[Verdict]:
    """The kind of file system below the path of the model."""
    place = context.facts.filesystem("model")
    if place is None or place.kind is None:
        unnamed = "no directory of a model on this host was named (--model PATH)"
        reason = unnamed if place is None else "the kind of its file system is not known"
        yield Verdict("skip", f"Not checked: {reason}")
    elif place.kind in NETWORK_FILE_SYSTEMS or place.kind.startswith("fuse."):
        yield Verdict(
            "info",
            f"The model lies on {place.kind}, which is as fast as the network",
            place.path,
            (f"{place.path}: {place.kind}",),
            fix=("if loading takes too long: copy the model to a local disk, and name that directory",),
        )
    else:
        yield Verdict("pass", f"The model lies on {place.kind}", place.path, (f"{place.path}: {place.kind}",))
