"""`onecat doctor`: what is wrong on a host, and what to do about it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.config import Deployment, Profile
    from onecat.doctor import HostReport, Report, Settings
    from onecat.facts import Facts


class Format(str, Enum):
    text = "text"
    json = "json"
    markdown = "markdown"
    junit = "junit"


class Threshold(str, Enum):
    fail = "fail"
    warn = "warn"
    info = "info"


class Runtime(str, Enum):
    native = "native"
    container = "container"


def register(app: typer.Typer) -> None:
    app.command("doctor", help="Find what is wrong on a host for serving with vLLM, and say how to fix it.")(doctor)


def doctor(
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Judge for this profile.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Take profile, runtime and ports from this onecat.yaml."),
    ] = None,
    runtime: Annotated[Runtime | None, typer.Option("--runtime", help="Judge for this runtime.")] = None,
    hosts: Annotated[
        list[str] | None, typer.Option("--host", metavar="HOST", help="A host (only `local` so far).")
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="FILE", help="Judge facts saved by `onecat facts --json`, not a host."),
    ] = None,
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Read /proc, /sys and /etc below this directory.")
    ] = "/",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="For each source of facts.")
    ] = 10.0,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="Make only these checks, as gpu.* (repeat).")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="CHECK", help="Leave these checks out (repeat).")
    ] = None,
    fail_on: Annotated[Threshold, typer.Option("--fail-on", help="Exit code 1 from this status on.")] = Threshold.fail,
    form: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.text,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json (onecat.doctor/1).")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what passed and was skipped too.")] = False,
) -> None:
    _refuse_other_hosts(hosts or [])
    from onecat.probe import ProbeOptions, start_local

    observed = start_local(ProbeOptions(console.existing_directory(root), timeout)) if hosts or not files else None

    from onecat.deploy import own_ports
    from onecat.doctor import Report, Settings, all_checks, reaches
    from onecat.doctor.examination import select
    from onecat.paths import home

    ours = () if files or root != "/" else own_ports(home())
    chosen, settings = None, Settings(runtime=runtime.value if runtime else None, own_ports=ours)
    if config is not None:
        chosen, settings = _from_deployment(config, settings)
    if profile is not None:
        from onecat.config import load_profile

        chosen = load_profile(profile)
    _refuse_missing_runtime(chosen, settings)
    only, skip = only or [], skip or []
    select(all_checks(), only, skip)  # a wrong id is told without waiting for any host
    saved = _read(files or [])
    reports = [
        _examine(name, facts, seconds, chosen, settings, only, skip)
        for name, facts, seconds in ([("local", *observed())] if observed else []) + saved
    ]
    report = Report(chosen.name if chosen else None, tuple(reports))
    _print(report, Format.json if as_json else form, verbose, fail_on)
    if any(reaches(finding, fail_on.value) for finding in report.findings):
        raise typer.Exit(ExitCode.NO)


def _from_deployment(file: Path, settings: Settings) -> tuple[Profile, Settings]:
    from onecat.cli.up import config_file
    from onecat.config import load_deployment, load_profile

    deployment = load_deployment(config_file(file))
    return load_profile(deployment.profile), settings_of(deployment, settings)


def settings_of(deployment: Deployment, settings: Settings) -> Settings:
    """`settings` with what a deployment asks for; a runtime in them stays."""
    from dataclasses import replace

    has_proxy = deployment.proxy.kind != "none"
    return replace(
        settings,
        port=deployment.port,
        proxy_port=int(deployment.proxy.listen.rpartition(":")[2]) if has_proxy else None,
        runtime=settings.runtime or deployment.runtime,
    )


def _refuse_missing_runtime(profile: Profile | None, settings: Settings) -> None:
    if profile is not None and settings.runtime not in (None, *profile.launch.runtimes):
        raise OnecatError(
            f"the profile {profile.name} has no {settings.runtime} runtime",
            expected=" or ".join(profile.launch.runtimes),
            next_steps=[f"onecat doctor --profile {profile.name}"],
        )


def _refuse_other_hosts(hosts: list[str]) -> None:
    for name in hosts:
        if name != "local":
            raise OnecatError(
                f"the host {name!r} cannot be reached: this version of onecat knows only this machine",
                expected="--host local; hosts over SSH come with a later version",
                next_steps=[
                    "on that host: onecat facts --json > facts.json",
                    "then here: onecat doctor --from facts.json",
                ],
            )


def _read(files: list[Path]) -> list[tuple[str, Facts, float]]:
    """Name, facts and seconds for each file."""
    from onecat.probe import read_facts

    read = [(file, read_facts(file)) for file in files]
    return [(facts.host if facts.host != "local" else file.stem, facts, 0.0) for file, facts in read]


def _examine(
    name: str,
    facts: Facts,
    seconds: float,
    profile: Profile | None,
    settings: Settings,
    only: list[str],
    skip: list[str],
) -> HostReport:
    from onecat.doctor import HostReport, examine, suitability

    findings = examine(facts, profile, settings, only=only, skip=skip)
    suitable = () if profile or only or skip else suitability(facts, _all_profiles(), settings)
    return HostReport(name, True, seconds, findings, suitability=suitable)


def _all_profiles() -> list[Profile]:
    from onecat.config import list_profiles, load_profile

    return [load_profile(name) for name in list_profiles()]


def _print(report: Report, form: Format, verbose: bool, fail_on: Threshold) -> None:
    if form is Format.json:
        from onecat.render.json import doctor_document

        console.print_json(doctor_document(report))
    elif form is Format.markdown:
        from onecat.render.markdown import doctor_markdown

        print(doctor_markdown(report, verbose=verbose))
    elif form is Format.junit:
        from onecat.render.junit import doctor_junit

        print(doctor_junit(report, fail_on.value), end="")
    else:
        from rich.console import Console

        from onecat.render.text import doctor_lines, print_lines

        screen = Console()
        print_lines(screen, doctor_lines(report, verbose=verbose, width=min(screen.width, 100)))
