"""`onecat bundle`: everything that one profile needs in one file, for machines without a network."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console, locking
from onecat.cli.groups import command_group

if TYPE_CHECKING:
    from onecat.images.bundle import Manifest

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The bundle.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.bundle/1).")]
DockerHostOption = Annotated[
    str | None, typer.Option("--docker-host", help="Docker engine's address [DOCKER_HOST, else the local socket].")
]


def register(app: typer.Typer) -> None:
    group = command_group("Carry a profile to machines without a network.")
    group.command("create", help="Collect all that a profile needs in one file.")(create)
    group.command("verify", help="Check every byte of a bundle.")(verify)
    group.command("show", help="Show what is in a bundle.")(show)
    group.command("load", help="Bring a bundle's content into the stores of this machine.")(load)
    app.add_typer(group, name="bundle")


def create(
    profile: Annotated[str, typer.Option("--profile", "-p", help="Profile, by name or file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to be written [onecat-bundle-PROFILE-VERSION.tar].")
    ] = None,
    pythons: Annotated[
        list[str] | None,
        typer.Option("--python", metavar="X.Y", help="Python of the machines it is for; repeatable [the one here]."),
    ] = None,
    no_images: Annotated[bool, typer.Option("--no-images", help="Leave container images out.")] = False,
    docker_host: DockerHostOption = None,
    lock_file: Annotated[
        Path | None, typer.Option("--lock", help="Lock file to include [onecat.lock, if it is here].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    from onecat import __version__
    from onecat.cli.outputs import Output
    from onecat.config import load_profile
    from onecat.errors import OnecatError
    from onecat.images.bundle_create import create_bundle
    from onecat.paths import home

    loaded = load_profile(profile)
    target = output or Path(f"onecat-bundle-{loaded.name}-{__version__}.tar")
    if str(target) == "-":
        raise OnecatError("a bundle cannot be printed", expected="--output FILE")
    Output(str(target), "onecat bundle create --output", force).check()
    lock = locking.lock_file(lock_file, None, asked=False)
    if lock is not None and not lock.is_file():
        raise OnecatError(f"there is no lock file {lock}", next_steps=["onecat build --lock FILE writes one"])
    manifest = create_bundle(
        loaded,
        home(),
        target,
        console.progress,
        pythons=tuple(pythons or ()),
        images=not no_images,
        docker_host=docker_host,
        lock_file=lock,
    )
    if as_json:
        console.print_json(_document(target, manifest))
        return
    print(_summary(target, manifest))
    print(f"next: carry it over, then: tar -xOf {shlex.quote(target.name)} README.txt")


def verify(file: FileArgument, as_json: JsonOption = False) -> None:
    from onecat.images.bundle import verify_bundle

    manifest = verify_bundle(file, console.progress)
    if as_json:
        console.print_json({**_document(file, manifest), "verified": True})
        return
    print(_summary(file, manifest))
    print("every byte is as its manifest says")


def show(file: FileArgument, as_json: JsonOption = False) -> None:
    from onecat.images.bundle import read_manifest

    manifest = read_manifest(file)
    if as_json:
        console.print_json(_document(file, manifest))
        return
    print(_summary(file, manifest))
    print()
    for each in manifest.members:
        print(f"{each.size:>14,}  {each.sha256[:12]}  {each.name}")
    print()
    print("not checked; onecat bundle verify reads every byte")


def load(
    file: FileArgument,
    no_images: Annotated[bool, typer.Option("--no-images", help="Leave the images in the bundle.")] = False,
    docker_host: DockerHostOption = None,
    as_json: JsonOption = False,
) -> None:
    from onecat.images.bundle_load import load_bundle
    from onecat.paths import home

    loaded = load_bundle(file, home(), console.progress, images=not no_images, docker_host=docker_host)
    words = ["onecat", "build", "--profile", loaded.profile, "--offline"]
    words += ["--find-links", str(loaded.packages)] if loaded.packages else []
    words += ["--lock", str(loaded.lock_file)] if loaded.lock_file else []
    command = shlex.join(words)
    if loaded.has_built_image and not no_images:
        command = f"onecat init --profile {shlex.quote(loaded.profile)} --model /path/to/checkpoint, then onecat up"
    if as_json:
        console.print_json(
            {
                **_document(file, loaded.manifest),
                "profile_to_use": loaded.profile,
                "stored": list(loaded.files),
                "images_loaded": list(loaded.images),
                "directory": str(loaded.directory),
                "lock": str(loaded.lock_file) if loaded.lock_file else None,
                "next": command,
            }
        )
        return
    print(_summary(file, loaded.manifest))
    print(f"stored now: {len(loaded.files)} files; images loaded now: {', '.join(loaded.images) or 'none'}")
    if loaded.lock_file:
        print(f"its lock file: {loaded.lock_file}")
    print(f"next: {command}")


def _summary(file: Path, manifest: Manifest) -> str:
    from onecat.images.disk import megabytes

    facts = manifest.facts
    series = facts["series"]
    lines = [
        f"bundle:   {file}, {megabytes(file.stat().st_size)}, {len(manifest.members)} files",
        f"profile:  {facts['profile']['name']} ({facts['engine']['name']} {facts['engine']['version']})",
        f"onecat:   {facts['onecat']}, for Python {', '.join(facts['pythons'])} on Linux {facts['machine']}",
    ]
    if series:
        lines.append(f"patches:  {series['name']}, sha256 {series['digest'][:12]}")
    lines += [f"image:    {row['tag']}" for row in facts["images"]]
    for label, folder in (
        ("own", "onecat"),
        ("wheels", "wheels"),
        ("packages", "packages"),
        ("sources", "sources"),
    ):
        members = manifest.below(folder)
        if members:
            lines.append(f"{label + ':':<9} {len(members)} files, {megabytes(sum(each.size for each in members))}")
    return "\n".join(lines)


def _document(file: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "schema": "onecat.bundle/1",
        "file": str(file.absolute()),
        "size_bytes": file.stat().st_size,
        **manifest.facts,
        "members": [{"name": each.name, "size": each.size, "sha256": each.sha256} for each in manifest.members],
    }
