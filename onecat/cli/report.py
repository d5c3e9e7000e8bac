"""`onecat report`: one redacted file for a bug tracker."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console
from onecat.cli.hosts import (
    ConnectTimeoutOption,
    LoadOption,
    RootOption,
    SudoOption,
    TimeoutOption,
    checked_root,
    targets_of,
    wait_for,
)
from onecat.cli.outputs import ForceOption, Output
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.config import Deployment
    from onecat.facts import Facts
    from onecat.probe import Observation

DEFAULT_FILE = "onecat-report.md"
LOG_LINES = 200


def register(app: typer.Typer) -> None:
    app.command(
        "report",
        help="Write one redacted file for a bug tracker: facts, findings, plan and the last lines of the server's log.",
    )(report)


def report(
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="The host; by default this machine.")] = "local",
    saved: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="FILE", help="Saved facts or output of programs, not a host (repeat)."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="PROFILE", help="Judge for this profile.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="onecat.yaml for plan and log [./onecat.yaml, if there]."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - prints it.")
    ] = DEFAULT_FILE,
    force: ForceOption = False,
    sudo: SudoOption = False,
    load: LoadOption = False,
    root: RootOption = "/",
    timeout: TimeoutOption = 10.0,
    connect_timeout: ConnectTimeoutOption = 10.0,
) -> None:
    target = Output(output, "onecat report --output", force)
    target.check()
    deployment = _deployment(config)
    if saved:
        observed = _the_only_one(saved)
    else:
        from onecat.probe import Observing, ProbeOptions

        targets = targets_of([host], None)
        if len(targets) != 1:
            raise _not_one(len(targets))
        options = ProbeOptions(checked_root(root, targets), timeout, sudo=sudo, load=load)
        (observed,) = wait_for(Observing(targets, options, parallel=1, connect_timeout=connect_timeout), 1)
    if observed.facts is None:
        assert observed.error is not None
        raise observed.error
    log = None if saved or host != "local" else _log(deployment)
    text = _text(observed, observed.facts, deployment, profile, log)
    kept = target.write(text, 0o600)
    if target.is_printed:
        return
    print(f"{output}: read it, then post it")
    if kept is not None:
        print(f"  the old one is kept as {kept}")


def _deployment(config: Path | None) -> Deployment | None:
    from onecat.cli.up import config_file
    from onecat.config import load_deployment

    file = config_file(config or Path("onecat.yaml"))
    return load_deployment(file) if config is not None or file.exists() else None


def _the_only_one(saved: Sequence[str]) -> Observation:
    from onecat.cli.judging import saved_hosts

    observations = saved_hosts(saved)
    if len(observations) != 1:
        raise _not_one(len(observations))
    return observations[0]


def _not_one(count: int) -> OnecatError:
    return OnecatError(
        f"a report is about one host, and there are {count}",
        expected="--host HOST, or the captures of one host, as --from gpu1=FILE or a directory",
    )


def _plan(deployment: Deployment, facts: Facts) -> str:
    from onecat.checkpoints import inspect
    from onecat.config import load_profile
    from onecat.planner import make_plan
    from onecat.render.plans import plan_text

    try:
        checkpoint = inspect(Path(deployment.model.path))
        return plan_text(make_plan(deployment, load_profile(deployment.profile), checkpoint, facts))
    except OnecatError as error:
        return "\n".join(["there is no plan:", error.found, *error.details])


def _log(deployment: Deployment | None) -> list[str] | None:
    """The last lines of the deployment's server, or of the only one there is; None when nothing was deployed."""
    from onecat.cli.machines import local_machine
    from onecat.deploy import find_deployment, last_lines

    try:
        return last_lines(find_deployment(local_machine(), deployment.name if deployment else None), LOG_LINES)
    except OnecatError as error:
        console.progress(f"no server log: {error.found}")
        return None


def _text(
    observed: Observation, facts: Facts, deployment: Deployment | None, profile: str | None, log: list[str] | None
) -> str:
    from onecat import __version__
    from onecat.cli.judging import load_rules
    from onecat.doctor import Settings
    from onecat.probe import Observation
    from onecat.render.redaction import Redactor, redact_facts, strings_of
    from onecat.render.report import Observed, report_markdown

    plan = _plan(deployment, facts) if deployment is not None else None
    here, home_user = platform.node(), Path.home().name
    redactor = Redactor(
        [observed.name, facts.host, here],
        [facts.user or "", home_user],
        [*strings_of(facts), plan or "", *(log or ())],
    )
    shown = redact_facts(facts, redactor)
    rules = load_rules(deployment, profile, Settings(), own_ports=(), only=(), skip=())
    findings = rules.judge(Observation(shown.host, observed.seconds, shown))
    return report_markdown(
        Observed(
            facts=shown,
            findings=findings,
            profile=rules.profile.name if rules.profile else None,
            plan=redactor.text(plan) if plan is not None else None,
            log=redactor.text("\n".join(log)).split("\n") if log is not None else None,
            versions=[
                ("onecat", __version__),
                ("Python", platform.python_version()),
                ("on", f"{platform.system()} {platform.machine()}"),
            ],
        )
    )
