"""What a release was asked to be, kept beside it: enough to make the same release again without its onecat.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecat.deploy.request import UpRequest
from onecat.deploy.store import read_json, understood
from onecat.errors import OnecatError
from onecat.planner.records import plan_of, with_port

if TYPE_CHECKING:
    from onecat.deploy.releases import Purpose, Release
    from onecat.deploy.request import Run
    from onecat.facts import Facts
    from onecat.hosts import Machine

REQUEST_SCHEMA = "onecat.request/1"
REQUEST_FILE = "request.json"
_ARGUMENTS = "{server_args}"


@dataclass(frozen=True)
class SavedLauncher:
    """How an engine was called; implements `onecat.deploy.request.Launcher`. words: with a place for the arguments."""

    words: tuple[str, ...]

    def serve_argv(self, server_args: Sequence[str]) -> list[str]:
        return [each for word in self.words for each in (server_args if word == _ARGUMENTS else (word,))]


def request_document(run: Run) -> dict[str, Any]:
    """The content of request.json: configuration with the places of secrets, never their values."""
    request = run.request
    return {
        "schema": REQUEST_SCHEMA,
        "deployment": request.deployment.model_dump(mode="json"),
        "profile": request.profile.model_dump(mode="json"),
        "launcher": None if request.launcher is None else request.launcher.serve_argv([_ARGUMENTS]),
        "docker_host": request.docker_host,
    }


def saved_request(machine: Machine, release: Release, purpose: Purpose, facts: Facts | None) -> UpRequest:
    """What makes the same release again. facts: of the host, as it is now.

    Raises OnecatError when the release does not say, as one of an older onecat.
    """
    from onecat.config.schema import Deployment, Profile

    document = read_json(machine, f"{release.directory}/{REQUEST_FILE}")
    plan = read_json(machine, f"{release.directory}/plan.json")
    if document is None or plan is None:
        raise OnecatError(
            f"release {release.number} does not hold what it was asked to be",
            where=release.place,
            expected=f"{REQUEST_FILE} and plan.json",
            next_steps=["onecat releases", "onecat up"],
        )
    with understood(machine, f"{release.directory}/plan.json"):
        planned = plan_of(plan)
    with understood(machine, f"{release.directory}/{REQUEST_FILE}"):
        deployment = Deployment.model_validate(document["deployment"])
        words = document["launcher"]
        return UpRequest(
            deployment=deployment,
            profile=Profile.model_validate(document["profile"]),
            plan=with_port(planned, deployment.port),
            launcher=None if words is None else SavedLauncher(tuple(words)),
            facts=facts,
            docker_host=document["docker_host"],
            purpose=purpose,
            origin=release.number,
            image=release.image_id,
        )


def front_of_release(machine: Machine, release: Release) -> str | None:
    """The host whose nginx stands before this release and those of other hosts; None where it is one host's alone."""
    from onecat.config.schema import Deployment
    from onecat.deploy.front import front_host

    if release.front is not None:
        return release.front
    path = f"{release.directory}/{REQUEST_FILE}"
    document = read_json(machine, path)
    if document is None:
        return None
    with understood(machine, path):
        name = front_host(Deployment.model_validate(document["deployment"]))
    return name if name == machine.name else None
