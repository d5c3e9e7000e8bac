"""What an export is asked for and what it consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onecat.config.schema import Deployment, Profile
from onecat.planner.records import Plan

IMAGE_USER = (10001, 10001)
"""User and group that onecat's images run as and that their cache directory belongs to (templates/image/common)."""


@dataclass(frozen=True)
class ExportedFile:
    """One file. path: relative to the directory of the export; mode: permissions; text: with the marker line."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class Options:
    """What `up` would learn from the host, and an export has to be told.

    user: (uid, gid) of the server in its container. groups: ids of the groups that own its device nodes.
    selinux: whether the host confines containers by SELinux labels. image: the image as the host pulls it, in place of
    the profile's name for it. model_claim: Kubernetes' PersistentVolumeClaim with the model, as NAME or NAME/DIRECTORY.
    program: vllm's program on the host, for a native server under systemd.
    """

    user: tuple[int, int] = IMAGE_USER
    groups: tuple[int, ...] = ()
    selinux: bool = False
    image: str | None = None
    model_claim: str | None = None
    program: str | None = None


@dataclass(frozen=True)
class Request:
    """What is exported."""

    deployment: Deployment
    profile: Profile
    plan: Plan
    options: Options = Options()

    @property
    def name(self) -> str:
        """What things are called on the other side: a letter first, then at most 46 more letters, digits and dashes."""
        return f"onecat-{self.deployment.name}"


@dataclass(frozen=True)
class Form:
    """A kind of export.

    name: as typed. summary: one line for the help. needs_container: whether only a server in a container can be
    exported so. render: a pure function; it raises OnecatError for what this form cannot say. first_step: what to do
    with the files, where the first one does not say it at its top.
    """

    name: str
    summary: str
    needs_container: bool
    render: Callable[[Request], tuple[ExportedFile, ...]]
    first_step: str | None = None
