"""`onecat up`: start what onecat.yaml describes, and see that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.config.schema import Deployment, Profile
    from onecat.deploy import Release
    from onecat.images import NativeRuntime
    from onecat.planner import Plan

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
    from onecat.cli.plan import flag_settings
    from onecat.deploy import up_document
    from onecat.paths import home

    prepared = prepare(
        config_file(config), {} if runtime is None else {"runtime": runtime}, flag_settings(settings or [])
    )
    if dry_run:
        show_dry_run(deploy.dry_run(prepared.deployment, prepared.plan, prepared.launcher), as_json)
        return
    before = deploy.current_release(home(), prepared.deployment.name)
    release = bring_up(prepared)
    changed = before is None or before.number != release.number
    if as_json:
        console.print_json(up_document(release, changed))
        return
    print(f"{release.deployment} release {release.number} serves {release.model} at {release.endpoint}/v1")
    print(f"  files:   {release.directory}")
    unit = release.directory / "systemd" / f"onecat-{release.deployment}.service"
    if unit.exists():
        print(f"  systemd: to let systemd run it instead: onecat down, then sudo cp {unit} /etc/systemd/system/")
        print(f"           and sudo systemctl enable --now {unit.name}")
    print("  next:    onecat status; onecat logs -f; onecat down")


@dataclass(frozen=True)
class Prepared:
    """Everything `deploy` needs; nothing has been changed yet."""

    deployment: Deployment
    profile: Profile
    plan: Plan
    launcher: NativeRuntime | None


def prepare(
    config: Path, overrides: Mapping[str, Any], settings: Mapping[str, bool | int | float | str] | None = None
) -> Prepared:
    """Read configuration and facts and make the plan.

    Parameters:
        overrides: values of onecat.yaml by dotted path; settings: `vllm serve` flags. Both from the command line.

    Raises OnecatError for what is wrong with the configuration or the model.
    """
    from onecat.checkpoints import inspect
    from onecat.config import load_deployment, load_profile
    from onecat.deploy.preflight import check_model
    from onecat.images import find_runtime
    from onecat.paths import home
    from onecat.planner import make_plan
    from onecat.probe import collect_local

    deployment = load_deployment(config, overrides)
    profile = load_profile(deployment.profile)
    model = Path(deployment.model.path)
    check_model(model)
    plan = make_plan(deployment, profile, inspect(model), collect_local(), settings)
    launcher = find_runtime(profile, home()) if plan.runtime == "native" else None
    return Prepared(deployment, profile, plan, launcher)


def bring_up(prepared: Prepared) -> Release:
    """Start what was prepared and wait until it answers well. Being told to end, or losing the terminal,
    counts as Ctrl-C: it is undone."""
    from onecat import deploy
    from onecat.paths import home

    console.end_like_ctrl_c()
    return deploy.up(prepared.deployment, prepared.profile, prepared.plan, prepared.launcher, home(), console.progress)


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
