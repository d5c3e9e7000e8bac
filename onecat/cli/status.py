"""`onecat status`: how deployments are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.deploy import DeploymentStatus

NAME_HELP = "Deployment name; by default that of --config, of ./onecat.yaml, or all there are."


def register(app: typer.Typer) -> None:
    app.command("status", help="Tell how deployments are; exit code 1 when one does not serve.")(status)


def status(
    name: Annotated[str | None, typer.Argument(help=NAME_HELP, show_default=False)] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="onecat.yaml that names it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON (onecat.status/1).")] = False,
) -> None:
    from onecat.cli.machines import local_machine
    from onecat.deploy import deployments, find_deployment, status, status_document, unhealthy_exit

    wanted = chosen_name(name, config)
    machine = local_machine()
    everything = deployments(machine)
    stores = (find_deployment(machine, wanted),) if wanted or not everything else everything
    statuses = [status(store) for store in stores]
    if as_json:
        console.print_json(status_document(statuses))
    else:
        print("\n\n".join(text(found) for found in statuses))
    raise typer.Exit(int(unhealthy_exit(statuses)))


def chosen_name(name: str | None, config: Path | None) -> str | None:
    """The deployment a command is about: NAME, else the one in --config or ./onecat.yaml; None where none is named."""
    from onecat.cli.up import config_file

    if name is not None:
        return name
    path = config_file(config) if config is not None else Path("onecat.yaml")
    if config is None and not path.exists():
        return None
    from onecat.config import load_deployment

    return load_deployment(path).name


def text(found: DeploymentStatus) -> str:
    """A status for a person."""
    rows: list[tuple[str, object]] = [
        ("release", found.release),
        ("runtime", found.runtime),
        ("container", found.container),
        ("pid", found.pid),
        ("health", found.health),
        ("model", found.model),
        ("endpoint", found.endpoint and f"{found.endpoint}/v1"),
        ("server", found.server),
        ("nginx", found.proxy),
        ("uptime", None if found.uptime_seconds is None else duration(found.uptime_seconds)),
        ("restarts", found.restarts or None),
        ("last exit", found.last_exit),
        ("cause", found.cause),
    ]
    lines = [f"{found.name}: {found.state.replace('-', ' ')}"]
    lines += [f"  {label + ':':<11}{value}" for label, value in rows if value is not None]
    lines += [f"  {'next:':<11}{step}" for step in found.next_steps]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Seconds in the two largest units: `3 d 4 h`, `12 s`."""
    rest = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
