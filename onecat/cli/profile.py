"""`onecat profile`: which profiles there are, what one says, and whether a file is a valid one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console
from onecat.cli.console import JsonOption
from onecat.cli.groups import command_group
from onecat.cli.hosts import (
    ConnectTimeoutOption,
    HostsFileOption,
    HostsOption,
    ParallelOption,
    RootOption,
    SudoOption,
    TimeoutOption,
    checked_root,
    targets_of,
    wait_for,
)
from onecat.errors import ExitCode

if TYPE_CHECKING:
    from onecat.config import Profile
    from onecat.errors import OnecatError
    from onecat.planner import Detection


def register(app: typer.Typer) -> None:
    group = command_group("List, show, propose and validate hardware profiles.")
    group.command("list", help="List the profiles that ship with onecat.")(list_all)
    group.command("show", help="Show what a profile says, with reasons and sources.")(show)
    group.command("detect", help="Propose the profile that fits a host, from what is seen of it.")(detect)
    group.command("validate", help="Check profiles, by name or file; all that ship if none.")(validate)
    app.add_typer(group, name="profile")


def list_all(as_json: JsonOption = False) -> None:
    from onecat.config import list_profiles, load_profile
    from onecat.render.columns import wrap

    profiles = [load_profile(name) for name in list_profiles()]
    if as_json:
        console.print_json({"schema": "onecat.profiles/1", "profiles": [_row(each) for each in profiles]})
        return
    width = max(len(each.name) for each in profiles)
    for each in profiles:
        print("\n".join(wrap(each.summary, 80, f"{each.name:<{width}}  ", " " * (width + 2))))
        print(f"{'':<{width}}  {each.engine.name} {each.engine.version}, {' or '.join(each.launch.runtimes)}")


def show(
    name: Annotated[str, typer.Argument(help="Profile, by name or file.")],
    as_json: JsonOption = False,
) -> None:
    from onecat.config import load_profile
    from onecat.render.profiles import profile_text

    profile = load_profile(name)
    if as_json:
        console.print_json(
            {"schema": "onecat.profile/1", **profile.model_dump(mode="json"), "origins": _origins(profile)}
        )
        return
    print(profile_text(profile))


def detect(
    hosts: HostsOption = None,
    hosts_file: HostsFileOption = None,
    saved: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Saved facts (`onecat facts --json`) or raw captures of a host, in place of looking at one (repeat).",
        ),
    ] = None,
    sudo: SudoOption = False,
    root: RootOption = "/",
    parallel: ParallelOption = 16,
    timeout: TimeoutOption = 10.0,
    connect_timeout: ConnectTimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    from onecat.cli.judging import all_profiles, saved_hosts
    from onecat.errors import OnecatError
    from onecat.planner import detect_profile
    from onecat.render.profiles import detection_text

    if saved and (hosts or hosts_file):
        raise OnecatError("both --from and hosts were given", expected="--from FILE, or --host HOST")
    if saved:
        observations = saved_hosts(saved)
    else:
        from onecat.probe import Observing, ProbeOptions

        targets = targets_of(hosts or ([] if hosts_file else ["local"]), hosts_file)
        options = ProbeOptions(checked_root(root, targets), timeout, sudo=sudo)
        observing = Observing(targets, options, parallel=parallel, connect_timeout=connect_timeout)
        observations = wait_for(observing, len(targets))
    found = [(each.name, detect_profile(each.facts, all_profiles())) for each in observations if each.facts is not None]
    failed = [(each.name, each.error) for each in observations if each.error is not None]
    if failed and len(observations) == 1:
        raise failed[0][1]
    if as_json:
        rows = [*(_detected(*each) for each in found), *(_unreachable(*each) for each in failed)]
        console.print_json({"schema": "onecat.profile-detect/1", "hosts": rows})
    elif found:
        print("\n\n".join(detection_text(name, each) for name, each in found))
    for _, error in failed:
        console.print_error(error, as_json=False)
    if any(each.profile is None for _, each in found):
        raise typer.Exit(ExitCode.NO)
    raise typer.Exit(ExitCode.UNREACHABLE if failed else ExitCode.FINE)


def _origins(profile: Profile) -> dict[str, str]:
    """Where each value stands, by its path with dots."""
    return {".".join(map(str, path)): where for path, where in sorted(profile.places().items(), key=str)}


def _detected(host: str, found: Detection) -> dict[str, Any]:
    from dataclasses import asdict

    return {"name": host, "reachable": True, **asdict(found)}


def _unreachable(host: str, error: OnecatError) -> dict[str, Any]:
    return {"name": host, "reachable": False, "error": error.found}


def validate(
    names: Annotated[list[str] | None, typer.Argument(help="Profiles, by name or file; all that ship if none.")] = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.config import list_profiles, load_profile
    from onecat.engines import flag_schema
    from onecat.planner import check_profile_flags

    checked = []
    for name in names or list_profiles():
        profile = load_profile(name)
        schema = flag_schema(profile.engine.name, profile.engine.version, profile.image.patches)
        check_profile_flags(schema, profile)
        checked.append({"file": name, "name": profile.name})
        if not as_json:
            print(f"{name} is valid")
    if as_json:
        console.print_json({"schema": "onecat.profile-validate/1", "valid": checked})


def _row(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "summary": profile.summary,
        "engine": profile.engine.name,
        "engine_version": profile.engine.version,
        "runtimes": list(profile.launch.runtimes),
        "gpu_names": list(profile.hardware.gpu_names),
        "gpus": profile.hardware.count,
    }
