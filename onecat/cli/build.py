"""`onecat build`: make what a profile's engine runs in, a container image or a native runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onecat.cli import build_options as options
from onecat.cli import console, locking

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from onecat.config.schema import Profile
    from onecat.images import EngineAccess
    from onecat.images.lock_session import LockSession


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
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be done, how big, from where; do nothing.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Render and lint the Dockerfile; build nothing.")] = False,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Write Dockerfile and build context; build nothing.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory for --render-only [onecat-build/PROFILE].")
    ] = None,
    docker_host: Annotated[
        str | None, typer.Option("--docker-host", help="Docker engine's address [DOCKER_HOST, else the local socket].")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="HOST", help="Build with the Docker engine of a host, over SSH.")
    ] = None,
    builder: options.BuilderOption = None,
    max_jobs: options.JobsOption = None,
    wheel: options.WheelOption = None,
    wheel_only: options.WheelOnlyOption = None,
    build_arguments: options.ArgumentsOption = None,
    index_url: options.IndexOption = None,
    extra_index_urls: options.ExtraIndexOption = None,
    torch_index_url: options.TorchIndexOption = None,
    find_links: options.FindLinksOption = None,
    apt_mirror: options.AptMirrorOption = None,
    proxy: options.ProxyOption = None,
    no_proxy: options.NoProxyOption = None,
    ca_certificate: options.CertificateOption = None,
    pip_config: options.PipConfigOption = None,
    offline: options.OfflineOption = False,
    source: options.SourceOption = None,
    lock: locking.LockOption = None,
    locked: locking.LockedOption = False,
    update_lock: locking.UpdateOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (onecat.build/1).")] = False,
) -> None:
    from dataclasses import replace

    from onecat.config import load_profile
    from onecat.errors import ExitCode, OnecatError

    if plan + check + render_only > 1:
        raise OnecatError("--plan, --check and --render-only exclude each other", expected="one of them")
    if on is not None and docker_host is not None:
        raise OnecatError("--on and --docker-host name two engines", expected="one of them")
    name, chosen = _from_config(config, profile, runtime)
    loaded = load_profile(name)
    choices = options.Choices(
        index_url=index_url,
        extra_index_urls=tuple(extra_index_urls) if extra_index_urls else None,
        torch_index_url=torch_index_url,
        find_links=find_links,
        apt_mirror=apt_mirror,
        proxy=proxy,
        no_proxy=no_proxy,
        ca_certificate=ca_certificate,
        pip_config=pip_config,
        offline=offline,
        source=source,
        max_jobs=max_jobs,
        wheel=wheel,
        wheel_only=wheel_only,
        builder=builder,
        arguments=options.named_values(build_arguments or []),
    )
    if chosen is None and (on or docker_host or replace(choices, offline=False) != options.NOTHING_CHOSEN):
        chosen = "container"  # what these are about
    session = locking.lock_session(
        loaded,
        "container" if render_only or check else _runtime(loaded, chosen),
        lock=lock,
        configuration=_configuration(config, profile),
        locked=locked,
        update=update_lock,
        looks=not (render_only or check),
    )
    document: dict[str, Any] = {
        "schema": "onecat.build/1",
        "profile": loaded.name,
        "engine": loaded.engine.name,
        "engine_version": loaded.engine.version,
    }
    if check:
        document |= _check(loaded, choices, session)
    elif render_only:
        document |= _render(loaded, output or Path("onecat-build") / loaded.name, choices, session)
    elif plan:
        document |= _plan(loaded, chosen, docker_host, on, choices, session, as_json)
    else:
        document |= build_for(loaded, chosen, docker_host, on, choices, session)
    if as_json:
        console.print_json(document)
    if document.get("passed") is False:
        raise typer.Exit(ExitCode.NO)


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


def _configuration(config: Path | None, profile: str | None) -> Path | None:
    """The onecat.yaml that a build follows, if it follows one."""
    from onecat.cli.up import config_file

    return None if profile is not None and config is None else config_file(config or Path("onecat.yaml"))


def build_for(
    profile: Profile,
    runtime: str | None = None,
    docker_host: str | None = None,
    on: str | None = None,
    choices: options.Choices = options.NOTHING_CHOSEN,
    session: LockSession | None = None,
) -> dict[str, Any]:
    """Build what a profile's engine runs in and report each step; what was built, as part of onecat.build/1."""
    if _runtime(profile, runtime) == "native":
        return _native(profile, choices, session)
    return _container(profile, docker_host, on, choices, session)


def _runtime(profile: Profile, chosen: str | None) -> str:
    from onecat.errors import OnecatError

    runtime = chosen or profile.launch.runtime
    if runtime not in profile.launch.runtimes:
        raise OnecatError(
            f"profile {profile.name} has no runtime {runtime}",
            expected=f"--runtime {' or '.join(profile.launch.runtimes)}",
        )
    return runtime


def _check(profile: Profile, choices: options.Choices, session: LockSession | None) -> dict[str, Any]:
    """Render and lint."""
    from dataclasses import asdict

    from onecat.images import lint, render_context, wheel_store
    from onecat.paths import home

    chosen, _ = options.build_options(choices)
    if session is not None:
        chosen = session.before(chosen, console.progress)
    context = render_context(profile, wheel_store(home()).recorded_hashes(), chosen)
    remarks = lint(context)
    for remark in remarks:
        console.progress(f"Dockerfile:{remark.line}: {remark.level} {remark.rule}: {remark.message}")
    if context.refusal is not None:
        console.progress(f"note: {context.refusal.found}")
    told = f"{len(remarks)} remarks" if remarks else "no remarks"
    console.progress(f"check: {len(context.files)} files rendered, sha256 {context.digest}; hadolint: {told}")
    return {
        "result": "check",
        "passed": not remarks,
        "context": f"sha256:{context.digest}",
        "buildable": context.refusal is None,
        "remarks": [asdict(remark) for remark in remarks],
    }


def _plan(
    profile: Profile,
    runtime: str | None,
    docker_host: str | None,
    on: str | None,
    choices: options.Choices,
    session: LockSession | None,
    as_json: bool,
) -> dict[str, Any]:
    """Say what a build would do; what would refuse it refuses its plan."""
    from dataclasses import replace

    from onecat.images import native_plan, plan_document, plan_lines, prepare_build
    from onecat.paths import home

    chosen, builder = options.build_options(choices)
    if session is not None:
        session = replace(session, plans=True)
    if _runtime(profile, runtime) == "native":
        if session is not None:
            session.before(chosen, console.progress)
        found = native_plan(profile, home(), offline=choices.offline)
        if not as_json:
            print("\n".join(found.lines()))
        return {"result": "plan", "runtime": "native", "plan": found.document()}
    with _engine(docker_host, on) as engine:
        if session is not None:
            chosen = replace(session, docker_host=engine.docker_host).before(chosen, console.progress)
        plan = prepare_build(profile, home(), engine, chosen, builder, choices.arguments).plan
    if not as_json:
        print("\n".join(plan_lines(plan)))
    return {"result": "plan", "runtime": "container", "passed": not plan.problems, "plan": plan_document(plan)}


def _engine(docker_host: str | None, on: str | None) -> AbstractContextManager[EngineAccess]:
    from contextlib import nullcontext

    from onecat.images import EngineAccess, engine_on

    return nullcontext(EngineAccess(docker_host)) if on is None else engine_on(on)


def _render(profile: Profile, directory: Path, choices: options.Choices, session: LockSession | None) -> dict[str, Any]:
    from onecat.images import render_context, wheel_store, write_context
    from onecat.paths import home

    chosen, _ = options.build_options(choices)
    if session is not None:
        chosen = session.before(chosen, console.progress)
    context = render_context(profile, wheel_store(home()).recorded_hashes(), chosen)
    written = write_context(context, directory)
    for name in written:
        console.progress(f"wrote {directory / name}")
    if context.stored:
        console.progress(
            f"not written: {len(context.stored)} file{'s' * (len(context.stored) > 1)} that a build fetches by itself: "
            f"`onecat build --profile {profile.reference} --runtime container`"
        )
    if context.refusal is not None:
        console.progress(f"note: {context.refusal.found}")
    files = [file.name for file in context.files]
    console.progress(f"context: {directory}, {len(files)} files, sha256 {context.digest}")
    # What is only rendered has not been built from: it is locked only where that is asked for.
    locked = session.after(console.progress) if session is not None and session.mode != "record" else {}
    return locked | {
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


def _native(profile: Profile, choices: options.Choices, session: LockSession | None) -> dict[str, Any]:
    from onecat.cli.sbom import build_bill
    from onecat.images import ensure_runtime, find_runtime
    from onecat.images.sbom import runtime_identity
    from onecat.paths import home

    chosen, _ = options.build_options(choices)
    if session is not None:
        session.before(chosen, console.progress)
    present = find_runtime(profile, home())
    runtime = present or ensure_runtime(profile, home(), console.progress, offline=choices.offline)
    if present:
        console.progress(f"runtime: up to date in {runtime.directory}")
    document = {
        "result": "native",
        "built": present is None,
        "directory": str(runtime.directory),
        "python": str(runtime.python),
        "python_version": runtime.python_version,
        "lock": f"sha256:{runtime.lock_digest}",
        **build_bill(profile, "native", None, runtime.directory, runtime_identity(runtime)),
    }
    return document | (session.after(console.progress) if session is not None else {})


def _container(
    profile: Profile,
    docker_host: str | None,
    on: str | None,
    choices: options.Choices,
    session: LockSession | None,
) -> dict[str, Any]:
    from dataclasses import asdict, replace

    from onecat.cli.sbom import build_bill
    from onecat.images import build_wheel, ensure_image, log_file, plan_document
    from onecat.paths import home

    console.end_like_ctrl_c()
    chosen, builder = options.build_options(choices)
    with _engine(docker_host, on) as engine:
        if session is not None:
            session = replace(session, docker_host=engine.docker_host)
            chosen = session.before(chosen, console.progress)
        if chosen.wheel_only is not None:
            wheel, plan = build_wheel(profile, home(), engine, console.progress, chosen, builder, choices.arguments)
            image = wheel.build
            document: dict[str, Any] = {
                "result": "wheel",
                "wheel": str(wheel.path.absolute()),
                "sha256": wheel.sha256,
                "size_bytes": wheel.size,
            }
        else:
            image, plan = ensure_image(profile, home(), engine, console.progress, chosen, builder, choices.arguments)
            document = {"result": "container", "tag": image.tag, "image": image.image_id, "size_bytes": image.size}
            if on is None:
                beside = log_file(home(), image.tag).with_suffix("")
                document |= build_bill(profile, "container", engine.docker_host, beside, image.image_id)
            if session is not None:
                document |= session.after(console.progress)
    return document | {
        "built": image.built,
        "context": f"sha256:{image.context}",
        "builder": image.builder,
        "log": None if image.log is None else str(image.log),
        "steps": [asdict(step) for step in image.steps],
        "plan": plan_document(plan),
    }
