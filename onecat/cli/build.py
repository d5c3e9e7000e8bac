"""`onecat build`: make what a profile's engine runs in, a container image or a native runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import console

if TYPE_CHECKING:
    from onecat.config.schema import Profile


def register(app: typer.Typer) -> None:
    app.command("build", help="Build the image or the native runtime of a profile, or only show what would be built.")(
        build
    )


def build(
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Profile, by name or file.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="onecat.yaml that names profile and runtime.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option("--runtime", help="native or container; the profile's default if not given.")
    ] = None,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Write Dockerfile and build context; build nothing.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory for --render-only [onecat-build/PROFILE].")
    ] = None,
    docker_host: Annotated[
        str | None, typer.Option("--docker-host", help="Docker engine's address [DOCKER_HOST, else the local socket].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.build/1).")] = False,
) -> None:
    from onecat.config import load_profile

    name, chosen = _from_config(config, profile, runtime)
    loaded = load_profile(name)
    document: dict[str, Any] = {
        "schema": "onecat.build/1",
        "profile": loaded.name,
        "engine": loaded.engine.name,
        "engine_version": loaded.engine.version,
    }
    if render_only:
        document |= _render(loaded, output or Path("onecat-build") / loaded.name)
    else:
        document |= build_for(loaded, chosen, docker_host)
    if as_json:
        console.print_json(document)


def _from_config(config: Path | None, profile: str | None, runtime: str | None) -> tuple[str, str | None]:
    """The profile's name and the runtime, from the command line before onecat.yaml."""
    from onecat.cli.up import config_file
    from onecat.config import load_deployment
    from onecat.errors import OnecatError

    if profile is not None and config is None:
        return profile, runtime
    if config is None and not Path("onecat.yaml").is_file():
        raise OnecatError(
            "it is not said what to build",
            expected="--profile NAME, or an onecat.yaml here or named by --config",
            next_steps=["onecat profile list", "onecat build --profile cpu"],
        )
    deployment = load_deployment(config_file(config or Path("onecat.yaml")))
    return profile or deployment.profile, runtime or deployment.runtime


def build_for(
    profile: Profile,
    runtime: str | None = None,
    docker_host: str | None = None,
) -> dict[str, Any]:
    """Build what a profile's engine runs in and report each step; what was built, as part of onecat.build/1."""
    if _runtime(profile, runtime) == "native":
        return _native(profile)
    return _container(profile, docker_host)


def _runtime(profile: Profile, chosen: str | None) -> str:
    from onecat.errors import OnecatError

    runtime = chosen or profile.launch.runtime
    if runtime not in profile.launch.runtimes:
        raise OnecatError(
            f"profile {profile.name} has no runtime {runtime}",
            expected=f"--runtime {' or '.join(profile.launch.runtimes)}",
        )
    return runtime


def _render(profile: Profile, directory: Path) -> dict[str, Any]:
    from onecat.images import render_context, wheel_store, write_context
    from onecat.paths import home

    context = render_context(profile, wheel_store(home()).recorded_hashes())
    written = write_context(context, directory)
    for name in written:
        console.progress(f"wrote {directory / name}")
    if context.stored:
        console.progress(
            f"not written: {len(context.stored)} files that lie elsewhere until a build needs them; "
            f"`onecat build --profile {profile.name} --runtime container` fetches them and builds"
        )
    if context.refusal is not None:
        console.progress(f"note: {context.refusal.found}")
    files = [file.name for file in context.files]
    console.progress(f"context: {directory}, {len(files)} files, sha256 {context.digest}")
    return {
        "result": "context",
        "directory": str(directory.absolute()),
        "context": f"sha256:{context.digest}",
        "tag": context.tag,
        "base": context.base,
        "files": files,
        "written": list(written),
        "stored": [file.name for file in context.stored],
        "buildable": context.refusal is None,
    }


def _native(profile: Profile) -> dict[str, Any]:
    from onecat.images import ensure_runtime, find_runtime
    from onecat.paths import home

    present = find_runtime(profile, home())
    runtime = present or ensure_runtime(profile, home(), console.progress)
    if present:
        console.progress(f"runtime: up to date in {runtime.directory}")
    return {
        "result": "native",
        "built": present is None,
        "directory": str(runtime.directory),
        "python": str(runtime.python),
        "python_version": runtime.python_version,
        "lock": f"sha256:{runtime.lock_digest}",
    }


def _container(profile: Profile, docker_host: str | None) -> dict[str, Any]:
    from onecat.images import ensure_image
    from onecat.paths import home

    image = ensure_image(profile, home(), docker_host, console.progress)
    return {
        "result": "container",
        "built": image.built,
        "tag": image.tag,
        "image": image.image_id,
        "size_bytes": image.size,
        "context": f"sha256:{image.context}",
    }
