"""`onecat up`: start what onecat.yaml describes, and see that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.deploy import Release, UpRequest

CONFIG_HELP = "onecat.yaml, or the directory it lies in."


def register(app: typer.Typer) -> None:
    app.command("up", help="Start the deployment of onecat.yaml and wait until it answers well.")(up)


def up(
    config: Annotated[Path, typer.Option("--config", "-c", help=CONFIG_HELP)] = Path("onecat.yaml"),
    runtime: Annotated[str | None, typer.Option("--runtime", help="native or container.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FLAG=VALUE", help="A `vllm serve` flag; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be started; change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.up/1).")] = False,
) -> None:
    from onecat import deploy
    from onecat.cli.machines import local_machine
    from onecat.cli.plan import flag_settings

    prepared = prepare(
        config_file(config), {} if runtime is None else {"runtime": runtime}, flag_settings(settings or [])
    )
    if dry_run:
        show_dry_run(deploy.dry_run(prepared), as_json)
        return
    before = deploy.DeploymentStore(local_machine(), prepared.deployment.name).current()
    release = bring_up(prepared)
    changed = before is None or before.number != release.number
    if as_json:
        console.print_json(deploy.up_document(release, changed))
        return
    print(f"{release.deployment} release {release.number} serves {release.model} at {release.endpoint}/v1")
    print(f"  files:   {release.directory}")
    unit = Path(release.directory, "systemd", f"onecat-{release.deployment}.service")
    if unit.exists():
        print(f"  systemd: to let systemd run it instead: onecat down, then sudo cp {unit} /etc/systemd/system/")
        print(f"           and sudo systemctl enable --now {unit.name}")
    print("  next:    onecat status; onecat logs -f; onecat down")


def prepare(
    config: Path, overrides: Mapping[str, Any], settings: Mapping[str, bool | int | float | str] | None = None
) -> UpRequest:
    """Read configuration and facts and make the plan; nothing has been changed yet.

    Parameters:
        overrides: values of onecat.yaml by dotted path; settings: `vllm serve` flags. Both from the command line.

    Raises OnecatError for what is wrong with the configuration or the model.
    """
    from onecat.checkpoints import inspect
    from onecat.cli.machines import local_machine
    from onecat.config import load_deployment, load_profile
    from onecat.deploy import UpRequest
    from onecat.deploy.preflight import check_model
    from onecat.images import find_runtime
    from onecat.paths import home
    from onecat.planner import make_plan
    from onecat.probe import collect_local

    deployment = load_deployment(config, overrides)
    profile = load_profile(deployment.profile)
    model = Path(deployment.model.path)
    check_model(local_machine(), str(model))
    facts = collect_local()
    plan = make_plan(deployment, profile, inspect(model), facts, settings)
    if deployment.hosts != ("local",):
        raise OnecatError(
            f"hosts: {', '.join(deployment.hosts)}",
            expected="hosts: [local]; this version deploys on this machine only",
            next_steps=["set hosts: [local] in onecat.yaml and run onecat on that host"],
        )
    launcher = find_runtime(profile, home()) if plan.runtime == "native" else None
    return UpRequest(deployment, profile, plan, launcher, facts)


def bring_up(request: UpRequest) -> Release:
    """Start what was prepared and wait until it answers well. Being told to end, or losing the terminal,
    counts as Ctrl-C: it is undone."""
    from onecat import deploy
    from onecat.cli.machines import local_machine

    console.end_like_ctrl_c()
    return deploy.up(request, local_machine(), console.progress)


def config_file(path: Path) -> Path:
    """The configuration file that a --config value means."""
    return path / "onecat.yaml" if path.is_dir() else path


def show_dry_run(document: dict[str, object], as_json: bool) -> None:
    """Print what would be started."""
    import shlex

    if as_json:
        console.print_json({"schema": "onecat.up/1", "changed": False, "dry_run": True, **document})
        return
    argv = document["argv"]
    assert isinstance(argv, list)
    print("would run:  " + shlex.join(argv))
    site = document["site"]
    if isinstance(site, dict):
        print(f"behind:     nginx on {site['listen']}")
