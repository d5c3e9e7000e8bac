"""`onecat doctor`: what is wrong on hosts, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from onecat.cli import console
from onecat.cli.forms import FailOnOption, Format, FormatOption, OnlyOption, SkipOption, Threshold
from onecat.cli.hosts import (
    ConnectTimeoutOption,
    HostsFileOption,
    HostsOption,
    LoadOption,
    ParallelOption,
    RootOption,
    SudoOption,
    TimeoutOption,
    checked_root,
    targets_of,
    teller,
)
from onecat.cli.outputs import ForceOption, Output
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.checkpoints.integrity import Assessment
    from onecat.config import Deployment
    from onecat.doctor import HostReport, Report
    from onecat.hosts import Target
    from onecat.probe import Observation


class Runtime(str, Enum):
    native = "native"
    container = "container"


def register(app: typer.Typer) -> None:
    app.command(
        "doctor",
        help="Find what is wrong on hosts for serving with vLLM, and say how to fix it.",
        epilog="Exit codes: 1 for findings at or above --fail-on on any host; else 3 when a host could not be "
        "reached; else 0.",
    )(doctor)


def doctor(
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Judge for this profile.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="Take hosts, profile, model and ports from this onecat.yaml."
        ),
    ] = None,
    runtime: Annotated[Runtime | None, typer.Option("--runtime", help="Judge for this runtime.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="PATH", help="Judge for serving this checkpoint.")
    ] = None,
    hosts: HostsOption = None,
    hosts_file: HostsFileOption = None,
    saved: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Judge saved facts or output of programs, not a host: FILE, NAME=FILE or a directory (repeat).",
        ),
    ] = None,
    sudo: SudoOption = False,
    load: LoadOption = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Try a GPU calculation in a container of the profile's image.")
    ] = False,
    image: Annotated[
        str | None, typer.Option("--smoke-image", metavar="IMAGE", help="The same in a container of this image.")
    ] = None,
    root: RootOption = "/",
    parallel: ParallelOption = 16,
    timeout: TimeoutOption = 10.0,
    connect_timeout: ConnectTimeoutOption = 10.0,
    only: OnlyOption = None,
    skip: SkipOption = None,
    fail_on: FailOnOption = Threshold.fail,
    form: FormatOption = Format.text,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json (onecat.doctor/1).")] = False,
    script: Annotated[
        str | None,
        typer.Option("--fix-script", metavar="FILE", help="Write the fixes as a shell script to review; - prints it."),
    ] = None,
    force: ForceOption = False,
    watching: Annotated[
        bool, typer.Option("--watch", help="Look again and again, and show what has changed, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="SECONDS", help="Between two looks of --watch.")
    ] = 10.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what passed and was skipped too.")] = False,
) -> None:
    deployment = _deployment(config) if config is not None else None
    words = hosts or ([] if hosts_file or saved else list(deployment.hosts) if deployment else ["local"])
    targets = targets_of(words, hosts_file)
    fixes = Output(script, "onecat doctor --fix-script", force) if script is not None else None
    if fixes is not None:
        fixes.check()

    from onecat.probe import Observing, ProbeOptions

    model = model or (deployment.model.path if deployment is not None else None)
    paths = _model_path(model, targets)
    options = ProbeOptions(checked_root(root, targets), timeout, paths, sudo=sudo, load=load)

    def start() -> Observing:
        return Observing(targets, options, parallel=parallel, connect_timeout=connect_timeout)

    # The hosts are observed while the rest is loaded, unless it is only then known what they are asked.
    started = start() if targets and not (smoke or image or watching) else None

    from onecat.cli import judging
    from onecat.doctor import Settings

    ours = _own_ports() if root == "/" and any(target.is_local for target in targets) else ()
    elsewhere = frozenset(target.text for target in targets if not target.is_local)
    settings = Settings(
        runtime=runtime.value if runtime else None,
        model=model,
        assessment=_assessment(model) if saved or len(elsewhere) < len(targets) else None,
    )
    rules = judging.load_rules(deployment, profile, settings, own_ports=ours, only=only or (), skip=skip or ())
    rules = replace(rules, elsewhere=elsewhere)
    if smoke or image:
        options = replace(options, smoke_image=judging.smoke_image(image, rules.profile))
    form = Format.json if as_json else form
    if watching:
        _watch(
            lambda: rules.report(start().results(rules.judge)), form, fail_on, interval, can_watch=not (saved or script)
        )

    def judged(observation: Observation) -> tuple[Observation, HostReport]:
        return observation, rules.judge(observation)

    show = _shower(form, verbose, fail_on)
    known = [judged(observation) for observation in judging.saved_hosts(saved or ())]
    if targets:
        known = [*(started or start()).results(judged, teller(len(targets))), *known]
    report = rules.report(host for _, host in known)
    if fixes is not None:
        judging.write_fix_script(fixes, known, rules)
    if fixes is None or not fixes.is_printed:
        show(report)
    raise typer.Exit(_exit_code(report, fail_on))


def _model_path(model: str | None, targets: Sequence[Target]) -> dict[str, str]:
    """Where the checkpoint lies on the hosts, for the probe; nothing for what is no path there."""
    if model is not None and all(target.is_local for target in targets):
        here = Path(model).expanduser().absolute()
        return {"model": str(here)} if here.exists() else {}
    return {"model": model} if model is not None and model.startswith("/") else {}


def _assessment(model: str | None) -> Assessment | None:
    """What is read of the checkpoint on this machine."""
    if model is None:
        return None
    from onecat.checkpoints.integrity import assess

    return assess(Path(model).expanduser())


def _own_ports() -> tuple[int, ...]:
    from onecat.cli.machines import local_machine
    from onecat.deploy import own_ports

    return own_ports(local_machine())


def _deployment(file: Path) -> Deployment:
    from onecat.cli.up import config_file
    from onecat.config import load_deployment

    return load_deployment(config_file(file))


def _exit_code(report: Report, fail_on: Threshold) -> int:
    from onecat.doctor import reaches

    if any(reaches(finding, fail_on.value) for finding in report.findings):
        return ExitCode.NO
    return ExitCode.FINE if all(host.reachable for host in report.hosts) else ExitCode.UNREACHABLE


def _watch(
    examine: Callable[[], Report], form: Format, fail_on: Threshold, interval: float, *, can_watch: bool
) -> NoReturn:
    from onecat.cli.watch import watch

    if not can_watch or form in (Format.markdown, Format.junit):
        raise OnecatError(
            "--watch looks at hosts and shows what changes",
            expected="no --from, no --fix-script, and as format text or json",
            next_steps=["onecat doctor --watch --host HOST"],
        )
    code = watch(examine, lambda report: _exit_code(report, fail_on), interval=interval, as_json=form is Format.json)
    raise typer.Exit(code)


def _shower(form: Format, verbose: bool, fail_on: Threshold) -> Callable[[Report], None]:
    """What prints a report. Its modules are loaded here, while the hosts are awaited."""
    if form is Format.json:
        from onecat.render.json import doctor_document

        return lambda report: console.print_json(doctor_document(report))
    if form is Format.markdown:
        from onecat.render.markdown import doctor_markdown

        return lambda report: print(doctor_markdown(report, verbose=verbose))
    if form is Format.junit:
        from onecat.render.junit import doctor_junit

        return lambda report: print(doctor_junit(report, fail_on.value), end="")
    from rich.console import Console

    from onecat.render.text import doctor_lines, print_lines

    screen = Console()
    width = min(screen.width, 100)
    return lambda report: print_lines(screen, doctor_lines(report, verbose=verbose, width=width))
