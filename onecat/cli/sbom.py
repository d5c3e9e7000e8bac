"""`onecat sbom`: what an image or a native runtime consists of, as a bill of materials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onecat.cli import console
from onecat.cli.outputs import ForceOption, Output

if TYPE_CHECKING:
    from onecat.config.schema import Profile


def register(app: typer.Typer) -> None:
    app.command("sbom", help="Write the bill of materials of an image or a native runtime (CycloneDX 1.6).")(sbom)


def sbom(
    image: Annotated[str | None, typer.Argument(help="Name or id of an image; any, not only one of onecat.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Profile, by name or file.")] = None,
    runtime: Annotated[
        Literal["native", "container"] | None,
        typer.Option("--runtime", help="What of the profile; its default if not given."),
    ] = None,
    format_: Annotated[
        Literal["cyclonedx-json"], typer.Option("--format", help="How it is written.")
    ] = "cyclonedx-json",
    output: Annotated[str, typer.Option("--output", "-o", help="File for it, or - for standard output.")] = "-",
    force: ForceOption = False,
    docker_host: Annotated[
        str | None, typer.Option("--docker-host", help="Docker engine's address [DOCKER_HOST, else the local socket].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it within a document (onecat.sbom/1).")] = False,
) -> None:
    import json

    from onecat.config import load_profile
    from onecat.errors import OnecatError

    if (image is None) == (profile is None):
        raise OnecatError(
            "it is not said of what" if image is None else "an image and a profile are named",
            expected="either IMAGE or --profile NAME",
            next_steps=["onecat sbom IMAGE", "onecat sbom --profile cpu"],
        )
    target = Output(output, "onecat sbom --output", force)
    target.check()
    loaded = load_profile(profile) if profile else None
    text = bill_for(loaded, runtime, image, docker_host)
    bill = json.loads(text)
    if as_json:
        if not target.is_printed:
            target.write(text, 0o644)
        written = None if target.is_printed else output
        console.print_json({"schema": "onecat.sbom/1", "format": format_, "file": written, "bill": bill})
        return
    target.write(text, 0o644)
    if not target.is_printed:
        console.progress(f"sbom: {output}, {len(bill['components'])} components, {bill['serialNumber']}")


def bill_for(profile: Profile | None, runtime: str | None, image: str | None, docker_host: str | None) -> str:
    """The bill of an image by name, or of what a profile's engine runs in, as JSON text.

    Raises OnecatError (exit code 2) when that is not there.
    """
    from onecat.errors import OnecatError
    from onecat.images import find_runtime, wheel_store
    from onecat.images.sbom import bill_of_image, bill_of_runtime, lock_hashes
    from onecat.paths import home

    recorded = wheel_store(home()).recorded_hashes()
    if profile is None:
        return bill_of_image(str(image), docker_host, {})
    if (runtime or profile.launch.runtime) == "container":
        hashes = lock_hashes(profile, recorded, str(profile.image.variables.get("python", "")))
        return bill_of_image(profile.image.tag, docker_host, hashes)
    found = find_runtime(profile, home())
    if found is None:
        raise OnecatError(
            f"there is no native runtime of profile {profile.name}",
            where=str(home().runtimes),
            next_steps=[f"onecat build --profile {profile.reference} --runtime native"],
        )
    return bill_of_runtime(profile, found, lock_hashes(profile, recorded, found.python_version))


def build_bill(profile: Profile, runtime: str, docker_host: str | None, beside: Path, identity: str) -> dict[str, Any]:
    """Write the bill of what a build made or found, unless it is there; what the build's document says about it.

    Parameters:
        beside: the path that it lies beside, with another ending. identity: what names the content: an image's id, a
            runtime's digest.
    """
    import json

    from onecat.images.sbom import ENDING, is_bill_of, write_bill

    path = beside.with_name(f"{beside.name}.{ENDING}")
    if not is_bill_of(path, identity):
        text = bill_for(profile, runtime, None, docker_host)
        write_bill(path, text)
        console.progress(f"sbom: {path}, {len(json.loads(text)['components'])} components")
    return {"sbom": str(path)}
