"""`onecat quickstart`: the whole way on this machine, from doctor to a chat completion, with the small model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.config.schema import Deployment, Profile
    from onecat.deploy import Release
    from onecat.doctor import Settings
    from onecat.facts import Facts

PROFILE = "cpu"
STEPS = ("doctor", "checkpoint", "build", "up", "ask")
CONFIGURATION = """\
# Written by onecat quickstart; yours to change. `onecat init` writes one with every setting explained.
name: quickstart
profile: {profile}
model:
  path: small
  served_name: small
port: {port}
proxy:
  kind: nginx
  listen: 127.0.0.1:{proxy_port}
"""
MODEL = "small"
PROMPT = "And it came to pass"
KIND = "goes on with a text in the words of the King James Bible, and answers no questions"
ANSWER_TOKENS = 40


def register(app: typer.Typer) -> None:
    app.command("quickstart", help="Doctor, small model, build, up, one chat completion: all on this machine.")(
        quickstart
    )


def quickstart(
    runtime: Annotated[Literal["native", "container"], typer.Option("--runtime", help="What it runs in.")] = "native",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.quickstart/1).")] = False,
) -> None:
    from onecat.cli.build import build_for
    from onecat.cli.judging import settings_of
    from onecat.cli.machines import local_machine
    from onecat.cli.up import bring_up, prepare
    from onecat.config import load_deployment, load_profile
    from onecat.deploy import own_ports
    from onecat.doctor import Settings
    from onecat.paths import home
    from onecat.probe import collect_local

    directory = home().quickstart
    profile = load_profile(PROFILE)
    console.progress(
        f"A real {profile.engine.name} {profile.engine.version} on this machine's CPU, as a {runtime} server.\n"
        f"Everything is kept in {home().data}; Ctrl-C at any time, the same command goes on from there."
    )
    _step("doctor")
    facts = collect_local()
    configuration = _configuration(directory, facts)
    settings = Settings(runtime=runtime, own_ports=own_ports(local_machine()))
    deployment = load_deployment(configuration)
    _examine(facts, profile, settings_of(deployment, settings))
    _step("checkpoint")
    _put_small_model(directory / MODEL)
    _describe(Path(deployment.model.path), directory / MODEL)
    _step("build")
    build_for(profile, runtime)
    _step("up")
    prepared = prepare(configuration, {"runtime": runtime})
    release = bring_up(prepared)
    _step("ask")
    answer = _ask(release, prepared.deployment)
    if as_json:
        console.print_json(
            {
                "schema": "onecat.quickstart/1",
                "endpoint": release.endpoint,
                "release": release.number,
                "runtime": runtime,
                "configuration": str(configuration),
                "prompt": PROMPT,
                "answer": answer,
            }
        )
        return
    _tell(release, prepared.deployment, configuration, answer)


def _step(name: str) -> None:
    console.progress(f"[{STEPS.index(name) + 1}/{len(STEPS)}] {name}")


def _examine(facts: Facts, profile: Profile, settings: Settings) -> None:
    """Doctor for this profile. Raises OnecatError (exit code 1) with the findings that forbid it."""
    from onecat.doctor import examine, summary
    from onecat.errors import ExitCode, OnecatError

    findings = examine(facts, profile, settings)
    counts = summary(findings)
    console.progress("  " + ", ".join(f"{count} {status}" for status, count in counts.items() if count))
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        raise OnecatError(
            f"this machine cannot run it: {failed[0].title}",
            details=[line for finding in failed for line in (finding.title, *finding.evidence)],
            next_steps=[*(step for finding in failed for step in finding.fix), "onecat doctor --profile " + PROFILE],
            code=ExitCode.NO,
        )


def _configuration(directory: Path, facts: Facts) -> Path:
    """The quickstart's onecat.yaml; written once, with ports that are free at that time."""
    path = directory / "onecat.yaml"
    if not path.exists():
        taken = {listener.port for listener in facts.listeners or ()}
        port = next(each for each in range(8000, 65536) if each not in taken)
        proxy_port = next(each for each in range(8080, 65536) if each not in {*taken, port})
        text = CONFIGURATION.format(profile=PROFILE, port=port, proxy_port=proxy_port)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def _put_small_model(directory: Path) -> None:
    """Copy the small model into `directory`, where files are missing or other ones. Raises OSError."""
    from onecat.files import write_atomically
    from onecat.resources import small_model

    directory.mkdir(parents=True, exist_ok=True)
    for source in small_model().iterdir():
        content, place = source.read_bytes(), directory / source.name
        if not place.is_file() or place.read_bytes() != content:
            # A server in a container runs as another user.
            write_atomically(place, content, mode=0o644)


def _describe(model: Path, small: Path) -> None:
    """Tell what is served: the small model, or what someone named in the configuration instead."""
    from onecat.checkpoints import inspect

    checkpoint = inspect(model)
    console.progress(
        f"  {model}: {checkpoint.architecture.name}, {checkpoint.parameters / 1e6:.1f} M parameters, "
        f"{checkpoint.weight_bytes / 1e6:.1f} MB"
    )
    if model == small:
        console.progress(f"  it {KIND}")


def _ask(release: Release, deployment: Deployment) -> str:
    """One chat completion at the release's public endpoint. Raises OnecatError when there is no answer."""
    from onecat import deploy
    from onecat.deploy.prerequisites import read_secret, secret_of
    from onecat.errors import ExitCode, OnecatError

    key = read_secret(secret_of(deployment))
    try:
        return deploy.ask(
            release.endpoint, release.model, PROMPT, max_tokens=ANSWER_TOKENS, timeout=60, api_key=key
        ).text
    except deploy.SmokeFailure as failure:
        raise OnecatError(
            f"the chat completion failed: {failure.reason}",
            where=release.endpoint,
            next_steps=[f"onecat logs {release.deployment}"],
            code=ExitCode.NO,
        ) from failure


def _tell(release: Release, deployment: Deployment, configuration: Path, answer: str) -> None:
    import json
    import shlex
    import shutil
    import textwrap

    from onecat.deploy.prerequisites import secret_of

    messages = [{"role": "user", "content": PROMPT}]
    body = json.dumps({"model": release.model, "max_tokens": ANSWER_TOKENS, "messages": messages})
    through = "through nginx" if release.proxied else "directly (nginx is not installed)"
    print(f"prompt:   {PROMPT}")
    # As Python writes it: what a model says may hold control characters.
    print(textwrap.fill(repr(answer), 80, initial_indent="answer:   ", subsequent_indent=" " * 10))
    print(f"          from a real vLLM, {through}")
    print()
    print("What to do next:")
    if shutil.which("onecat") is None:
        print(f"  find the command     export PATH={Path(sys.argv[0]).absolute().parent}:$PATH")
    print(f"  ask it yourself      curl {release.endpoint}/v1/chat/completions \\")
    print("                         -H 'Content-Type: application/json' \\")
    secret = secret_of(deployment)
    if secret is not None:
        key = f"${secret.env}" if secret.env else f"$(cat {shlex.quote(str(secret.file))})"
        print(f'                         -H "Authorization: Bearer {key}" \\')
    print(f"                         -d '{body}'")
    print(f"  change it            edit {configuration},")
    print(f"                       then onecat up -c {configuration.parent}")
    print(f"  see how it is        onecat status {release.deployment}")
    print(f"  stop it              onecat down {release.deployment}")
    print("  serve your model     onecat init --profile cpu --model /path/to/checkpoint")
    print("                       onecat up")
    print("  check a GPU machine  onecat doctor --profile v100x2-pcie    (all: onecat profile list)")
