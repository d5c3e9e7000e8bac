"""`onecat up`: start what onecat.yaml describes, and see that it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onecat.cli import console

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
    import signal

    from onecat import deploy
    from onecat.checkpoints import inspect
    from onecat.config import load_deployment, load_profile
    from onecat.deploy.operations import up_document
    from onecat.deploy.preflight import check_model
    from onecat.images import find_runtime
    from onecat.paths import home
    from onecat.planner import make_plan

    deployment = load_deployment(config_file(config), {} if runtime is None else {"runtime": runtime})
    profile = load_profile(deployment.profile)
    model = Path(deployment.model.path)
    check_model(model)
    plan = make_plan(deployment, profile, inspect(model), command_line=flags(settings or []))
    launcher = find_runtime(profile, home()) if plan.runtime == "native" else None
    if dry_run:
        show_dry_run(deploy.dry_run(deployment, plan, launcher), as_json)
        return
    # Being told to end is an interruption: what was started is stopped again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    before = deploy.current_release(home(), deployment.name)
    release = deploy.up(deployment, profile, plan, launcher, home(), console.progress)
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


def config_file(path: Path) -> Path:
    """The configuration file that a --config value means."""
    return path / "onecat.yaml" if path.is_dir() else path


def flags(settings: list[str]) -> dict[str, bool | int | float | str]:
    """`--set` values as a mapping; values are read as YAML scalars, as they would be in onecat.yaml."""
    import yaml

    from onecat.errors import OnecatError

    result: dict[str, bool | int | float | str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        value = yaml.safe_load(text) if equals else None
        if not name or not isinstance(value, bool | int | float | str):
            raise OnecatError(f"--set {setting}", expected="--set FLAG=VALUE, as in --set max-model-len=4096")
        result[name.lstrip("-")] = value
    return result


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
