"""What the engine says of the server's arguments, and what onecat knows of its flags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject

if TYPE_CHECKING:
    from onecat.engines import FlagSchema

PARSER_SECONDS = 120.0
_PROGRAM = Path(__file__).parent.parent / "parser_program.py"
_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HOME": "/nonexistent"}


@dataclass(frozen=True)
class Arguments:
    """words: of the server. asked: whose parser read them; None: none did, then `why_not` says why. refused: what it
    said against them. schema: of which version's flags onecat knows; None: of none. unlike: what does not fit it."""

    words: tuple[str, ...]
    asked: str | None
    refused: str | None = None
    why_not: str = ""
    schema: str | None = None
    unlike: tuple[str, ...] = ()


@observer(Arguments, place=85)
def observe_arguments(subject: Subject) -> Arguments:
    """Read the words by the schema, and by the parser of the native runtime or of a container of the image."""
    from onecat.engines import flag_schema

    plan = subject.look.plan
    schema = flag_schema(plan.engine, plan.engine_version)
    known = None if schema.unknown is not None else f"{schema.family} {schema.version}"
    unlike = () if known is None else tuple(unlike_schema(plan.server_args, schema))
    asked, answer = _asked(subject)
    return Arguments(
        plan.server_args,
        asked if "unknown" not in answer else None,
        answer.get("refused"),
        str(answer.get("unknown", "")),
        known,
        unlike,
    )


def unlike_schema(words: Sequence[str], schema: FlagSchema) -> Iterator[str]:
    """What of the words after `vllm serve` is no flag of the schema, or has a value of another kind. Pure."""
    from onecat.engines import typed, wrong_value

    flags = {name: flag for flag in schema.flags.values() for name in (flag.name, *flag.aliases)}
    negations = {flag.negation for flag in schema.flags.values() if flag.negation}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        name = name.partition(".")[0].replace("_", "-")
        flag = flags.get(name)
        if flag is None:
            if name not in negations:
                yield f"--{name} is no flag of {schema.family} {schema.version}"
            continue
        values = [value] if equals else []
        while not equals and at < len(words) and not words[at].startswith("--"):
            values.append(words[at])
            at += 1
        expected = wrong_value(flag, typed(flag, " ".join(values))) if values else None
        if expected is not None:
            yield f"--{name} {' '.join(values)}: expected {expected}"


def _asked(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Who was asked, and the answer of parser_program.py."""
    if subject.quick:
        return "", {"unknown": "left out by --quick"}
    words = json.dumps(list(subject.look.plan.server_args))
    if subject.look.release.runtime == "container":
        return _by_image(subject, words)
    launch = json.loads(subject.machine.read(f"{subject.look.release.directory}/launch.json") or b"{}")
    argv = launch.get("argv") or []
    if not argv:
        return "", {"unknown": "the release does not say which program is its server"}
    environment = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
    command = ["env", "-i", "PATH=/usr/bin:/bin", *environment, argv[0], "-I", "-c", _PROGRAM.read_text(), words]
    done = subject.machine.run(command, timeout=PARSER_SECONDS)
    return "the native runtime", _answer(done.stdout, done.stderr)


def _by_image(subject: Subject, words: str) -> tuple[str, dict[str, Any]]:
    """In a container of its own, without network, devices and model; it is gone afterwards."""
    from docker.errors import ContainerError

    from onecat.deploy.container import connect, translated

    release = subject.look.release
    docker_host = subject.machine.docker_host(release.docker_host)
    with translated(docker_host, None):
        try:
            output = connect(docker_host).containers.run(
                release.image_id,
                entrypoint=["python3"],
                command=["-I", "-c", _PROGRAM.read_text(), words],
                environment={**_ENVIRONMENT, "HOME": "/tmp"},  # noqa: S108 - in the container
                network_mode="none",
                read_only=True,
                tmpfs={"/tmp": "size=256m"},  # noqa: S108
                user="65534:65534",
                cap_drop=["ALL"],
                labels={"onecat.preflight": release.deployment},
                remove=True,
            )
        except ContainerError as error:
            said = error.stderr or b""
            return "", _answer(b"", said if isinstance(said, bytes) else said.encode())
    return "a container of the image", _answer(output, b"")


def _answer(output: bytes, errors: bytes) -> dict[str, Any]:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (ValueError, IndexError):
        told = errors.decode("utf-8", "replace").strip().splitlines()
        return {"unknown": (told or ["its parser gave no answer"])[-1][:300]}
    return found if isinstance(found, dict) else {"unknown": "its parser gave no answer"}
