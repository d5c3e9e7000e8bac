"""`onecat up`: start what onecat.yaml describes, and see that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.changes import show_forecast
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.deploy import Release, UpRequest
    from onecat.hosts import Machine

CONFIG_HELP = "onecat.yaml, or the directory it lies in."


def register(app: typer.Typer) -> None:
    app.command("up", help="Start the deployment of onecat.yaml and wait until it answers well.")(up)


def up(
    config: Annotated[Path, typer.Option("--config", "-c", help=CONFIG_HELP)] = Path("onecat.yaml"),
    runtime: Annotated[str | None, typer.Option("--runtime", help="native or container.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FLAG=VALUE", help="A `vllm serve` flag; may be repeated.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Go back when the engine has not chosen what was planned.")
    ] = False,
    allow_daemon_reload: Annotated[
        bool,
        typer.Option("--allow-daemon-reload", help="Reload systemd even where running containers lose GPUs by it."),
    ] = False,
    max_failures: Annotated[
        int, typer.Option("--max-failures", min=0, metavar="N", help="Of several hosts, how many may fail.")
    ] = 0,
    canary: Annotated[
        str | None,
        typer.Option("--canary", metavar="10%", help="Try it with this share of the requests beside what serves."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Do not wait for what becomes of a canary: see `onecat canary`.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be started; change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.up/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.fleet import is_fleet, tell_image, up_on_several
    from onecat.cli.machines import only_host, open_hosts
    from onecat.cli.plan import flag_settings
    from onecat.config import load_deployment

    file, flags = config_file(config), flag_settings(settings or [])
    overrides = {} if runtime is None else {"runtime": runtime}
    deployment = load_deployment(file, overrides)

    def prepared_for(machine: Machine) -> UpRequest:
        request = prepare(file, overrides, flags, machine)
        return replace(request, strict=strict, allow_daemon_reload=allow_daemon_reload)

    percent = None if canary is None else canary_percent(canary, several=is_fleet(deployment) or bool(deployment.ray))
    with open_hosts(deployment.hosts if deployment.ray is None else deployment.hosts[:1]) as hosts:
        if is_fleet(deployment):
            up_on_several(hosts, deployment, prepared_for, max_failures, dry_run, as_json)
            return
        machine = only_host(hosts)
        prepared = prepared_for(machine)
        if dry_run:
            tell_image(prepared, machine, console.progress)
            show_forecast(deploy.forecast_up(prepared, machine, percent), as_json, "onecat.up/1")
            return
        if percent is not None:
            try_canary(prepared, machine, percent, detach, as_json)
            return
        before = deploy.DeploymentStore(machine, prepared.deployment.name).current()
        release = bring_up(prepared, machine)
        engine = deploy.engine_document(machine, release)
    changed = before is None or before.number != release.number
    if as_json:
        console.print_json({**deploy.up_document(release, changed), "engine": engine})
        return
    print(f"{release.deployment} release {release.number} serves {release.model} at {release.endpoint}/v1")
    print(f"  files:   {release.directory}" + ("" if machine.is_local else f" on {machine.name}"))
    for each in engine["surprises"] if engine is not None else ():
        print(f"  warning: {each['what']}")
    unit = Path(release.directory, "systemd", f"onecat-{release.deployment}.service")
    if machine.is_local and unit.exists():
        print(f"  systemd: to let systemd run it instead: onecat down {release.deployment},")
        print(f"           then sudo cp {unit} /etc/systemd/system/")
        print(f"           and sudo systemctl enable --now {unit.name}")
    if release.service == "systemd":
        print(f"  systemd: systemctl status {release.container}.service")
    name = release.deployment
    print(f"  next:    onecat status {name}; onecat logs {name} -f; onecat down {name}")


def canary_percent(text: str, several: bool) -> int:
    """The share that --canary names, in percent. several: whether the deployment has more servers than one.

    Raises OnecatError (exit code 2).
    """
    number = text.strip().removesuffix("%").strip()
    if not number.isdigit() or not 1 <= int(number) <= 99:
        raise OnecatError(f"--canary {text}", expected="a share of 1% to 99%", next_steps=["onecat up --canary 10%"])
    if several:
        from onecat.deploy.canary import refused_beside_several

        raise refused_beside_several()
    return int(number)


def try_canary(request: UpRequest, machine: Machine, percent: int, detach: bool, as_json: bool) -> None:
    """Start a canary, and unless `detach` wait until it takes over or goes."""
    from onecat import deploy
    from onecat.cli.canary import INTERVAL_SECONDS, show, watch_canary

    console.end_like_ctrl_c()
    deploy.start_canary(request, machine, percent, console.progress)
    store = deploy.DeploymentStore(machine, request.deployment.name)
    if detach:
        show(deploy.look_at_canary(store), None, as_json)
        return
    watch_canary(store, INTERVAL_SECONDS, as_json)


def prepare(
    config: Path,
    overrides: Mapping[str, Any],
    settings: Mapping[str, bool | int | float | str] | None = None,
    machine: Machine | None = None,
) -> UpRequest:
    """Read configuration and facts and make the plan; nothing has been changed yet.

    Parameters:
        overrides: values of onecat.yaml by dotted path; settings: `vllm serve` flags. Both from the command line.
        machine: the host that it is for; None for this machine.

    Raises OnecatError for what is wrong with the configuration or the model.
    """
    from onecat.cli.machines import facts_of, local_machine
    from onecat.config import load_deployment, load_profile
    from onecat.deploy import UpRequest
    from onecat.deploy.front import for_host
    from onecat.deploy.model_files import inspect_on
    from onecat.deploy.prerequisites import check_checkpoint
    from onecat.images import find_runtime
    from onecat.paths import home
    from onecat.planner import make_plan

    machine = machine or local_machine()
    deployment = for_host(load_deployment(config, overrides), machine.name)
    profile = load_profile(deployment.profile)
    checkpoint = inspect_on(machine, deployment.model.path)
    check_checkpoint(machine, checkpoint)
    facts = facts_of(machine)
    plan = make_plan(deployment, profile, checkpoint, facts, settings)
    if plan.runtime == "native" and not machine.is_local:
        raise OnecatError(
            f"runtime: native, which runs on this machine only, and the host is {machine.name}",
            expected="runtime: container on another host",
            where=str(config),
            next_steps=[
                "set runtime: container in onecat.yaml, where the profile has it",
                f"or set hosts: [local] and run onecat on {machine.name}",
            ],
        )
    launcher = find_runtime(profile, home()) if plan.runtime == "native" else None
    return UpRequest(deployment, profile, plan, launcher, facts, model_is_checked=True)


def bring_up(request: UpRequest, machine: Machine | None = None) -> Release:
    """Start what was prepared on its host (None: this machine) and wait until it answers well.

    Being told to end, or losing the terminal, counts as Ctrl-C: it is undone.
    """
    from onecat import deploy
    from onecat.cli.machines import local_machine

    console.end_like_ctrl_c()
    return deploy.up(request, machine or local_machine(), console.progress)


def config_file(path: Path) -> Path:
    """The configuration file that a --config value means."""
    return path / "onecat.yaml" if path.is_dir() else path
