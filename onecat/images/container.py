"""The image of a profile, from its recipe to a tag on a Docker engine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError
from onecat.files import read_json, write_json
from onecat.images.build_host import read_build_host
from onecat.images.build_plan import BuildPlan, check_plan, compile_cost, jobs_for, make_build_plan
from onecat.images.build_plan_text import plan_lines
from onecat.images.context import DEFAULT_OPTIONS, Context, render_context
from onecat.images.docker_build import (
    BuilderChoice,
    BuiltImage,
    build_image,
    build_stage,
    check_buildable,
    choose_builder,
    find_image,
)
from onecat.images.docker_engine import connect, engine_address
from onecat.images.dockerfile import instructions
from onecat.images.image_files import idle_container, stream_of
from onecat.images.interpreters import interpreter_with_pip
from onecat.images.options import BuildOptions
from onecat.images.origins import build_arguments
from onecat.images.patched_wheel import ensure_patched_wheel
from onecat.images.remote_engine import EngineAccess
from onecat.images.sources import fetch_source
from onecat.images.wheels import Downloader, WheelStore, fetch, file_sha256, wheel_store
from onecat.knowledge.build_costs import build_costs

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home

Report = Callable[[str], None]

SET_BY_OPTIONS = {
    "APT_MIRROR": "--apt-mirror",
    "CA_CERTIFICATE": "--ca-certificate",
    "ONECAT_OFFLINE": "--offline",
    "PIP_INDEX_URL": "--index-url",
    "PIP_EXTRA_INDEX_URL": "--extra-index-url",
    "TORCH_INDEX_URL": "--torch-index-url",
    "MAX_JOBS": "--max-jobs",
}
"""Build arguments that have an option of their own."""

WHEELS_IN_STAGE = "/wheels"
"""Where the stage that makes the engine's wheel leaves it."""


@dataclass(frozen=True)
class BuiltWheel:
    """A wheel that was taken out of its build stage. sha256: in hex. size: in bytes. build: the stage it is from."""

    path: Path
    sha256: str
    size: int
    build: BuiltImage


@dataclass(frozen=True)
class Prepared:
    """A build that has not begun. options: as asked, with the number of jobs chosen. present: an equal image."""

    context: Context
    options: BuildOptions
    plan: BuildPlan
    present: BuiltImage | None


def prepare_build(
    profile: Profile,
    home: Home,
    engine: EngineAccess,
    options: BuildOptions = DEFAULT_OPTIONS,
    choice: BuilderChoice = "auto",
    arguments: Mapping[str, str] | None = None,
) -> Prepared:
    """Render the context, look at the engine and plan; changes nothing.

    Parameters:
        arguments: values for arguments of the Dockerfile that no option sets.

    Raises OnecatError: the context must not be built (exit code 1), a wrong choice (2), no engine (3).
    """
    hashes = wheel_store(home).recorded_hashes()
    context = render_context(profile, hashes, options)
    check_buildable(context)
    if options.wheel_only is not None and context.wheel_stage is None:
        raise OnecatError(
            f"the image of profile {profile.name} is made without building a wheel",
            expected="a profile whose engine is compiled from source",
            next_steps=["onecat profile list", f"or build the image: onecat build --profile {profile.reference}"],
        )
    host = read_build_host(engine.docker_host, context.bases, engine.free_space, engine.name)
    costs = build_costs()
    cost = compile_cost(profile, context, options, costs)
    if context.wheel_stage is not None and options.wheel is None and options.max_jobs is None:
        jobs, _ = jobs_for(cost, host)
        context = replace(context, arguments=build_arguments(replace(options, max_jobs=jobs)))
    context = _with_arguments(context, arguments or {})
    present = find_image(context, engine.docker_host) if options.wheel_only is None else None
    builder = choose_builder(choice, engine_address(engine.docker_host))
    plan = make_build_plan(
        profile,
        context,
        options,
        host,
        builder.name,
        costs,
        up_to_date=present is not None,
        stored=_stored_here(context, home),
        last_seconds=_last_seconds(home, context.tag, host.address),
    )
    return Prepared(context, replace(options, max_jobs=plan.max_jobs), plan, present)


def _with_arguments(context: Context, arguments: Mapping[str, str]) -> Context:
    """The context with more build arguments. Raises OnecatError for one that its Dockerfile does not have."""
    dockerfile = next((file.content.decode() for file in context.files if file.name == "Dockerfile"), "")
    declared = [each.text.split()[1].partition("=")[0] for each in instructions(dockerfile) if each.keyword == "ARG"]
    known = [name for name in dict.fromkeys(declared) if name not in SET_BY_OPTIONS]
    for name in arguments:
        if name in SET_BY_OPTIONS:
            raise OnecatError(
                f"the build argument {name} has an option of its own", expected=f"{SET_BY_OPTIONS[name]} VALUE"
            )
        if name not in known:
            expected = f"one of: {', '.join(known)}" if known else "none: all that this image takes are options"
            raise OnecatError(f"the image of profile {context.profile} has no build argument {name}", expected=expected)
    return replace(context, arguments={**context.arguments, **arguments})


def _stored_here(context: Context, home: Home) -> list[Path]:
    """Files of the context that lie in the stores of this machine."""
    found = [home.wheels / file.in_store for file in context.stored]
    if context.source is not None:
        found.append(home.sources / context.source.file)
    return [path for path in found if path.is_file()]


def ensure_image(
    profile: Profile,
    home: Home,
    engine: EngineAccess,
    report: Report,
    options: BuildOptions = DEFAULT_OPTIONS,
    choice: BuilderChoice = "auto",
    arguments: Mapping[str, str] | None = None,
) -> tuple[BuiltImage, BuildPlan]:
    """The image of a profile on an engine, built now unless an equal one is there; and the plan, which was told first.

    Raises OnecatError as `prepare_build` and `build_image` do, for a plan that cannot come true (exit code 4), and as
    `onecat.images.wheels.fetch` and `onecat.images.sources.fetch_source` do.
    """
    prepared = prepare_build(profile, home, engine, options, choice, arguments)
    if prepared.present is not None:
        report(f"image: {prepared.context.tag} is up to date")
        return prepared.present, prepared.plan
    for line in plan_lines(prepared.plan):
        report(line)
    check_plan(prepared.plan)
    started = time.monotonic()
    context = _complete(prepared, profile, home, report)
    offline = options.origins.offline
    built = build_image(context, engine.docker_host, report, log_file(home, context.tag), choice, offline=offline)
    _record(home, prepared.plan, built, time.monotonic() - started)
    return built, prepared.plan


def build_wheel(
    profile: Profile,
    home: Home,
    engine: EngineAccess,
    report: Report,
    options: BuildOptions,
    choice: BuilderChoice = "auto",
    arguments: Mapping[str, str] | None = None,
) -> tuple[BuiltWheel, BuildPlan]:
    """Build the engine's wheel and put it into the folder `options.wheel_only`; no image is made.

    Raises OnecatError as `ensure_image` does.
    """
    assert options.wheel_only is not None
    prepared = prepare_build(profile, home, engine, options, choice, arguments)
    stage = prepared.context.wheel_stage
    assert stage is not None
    for line in plan_lines(prepared.plan):
        report(line)
    check_plan(prepared.plan)
    _check_folder(options.wheel_only)
    context = _complete(prepared, profile, home, report)
    tag, offline = f"{context.tag}-wheel", options.origins.offline
    log = log_file(home, tag)
    built = build_stage(context, stage, tag, engine.docker_host, report, log, choice, offline=offline)
    with contextlib.closing(connect(engine.docker_host, timeout=600)) as client:
        try:
            path = take_wheel(client, tag, options.wheel_only)
        finally:
            client.remove_image(tag)
    sha256 = file_sha256(path)
    report(f"wheel: {path}")
    report(f"wheel: sha256 {sha256}")
    return BuiltWheel(path, sha256, path.stat().st_size, built), prepared.plan


def _check_folder(folder: Path) -> None:
    """Raises OSError now, and not after hours of compiling, when the wheel cannot be put there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def take_wheel(client: Any, tag: str, folder: Path) -> Path:
    """Copy the one wheel in the stage's folder to `folder`, through a container that never runs."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with idle_container(client, tag) as container:
        pieces, _ = client.get_archive(container, WHEELS_IN_STAGE)
        with tarfile.open(fileobj=stream_of(pieces), mode="r|") as archive:
            for entry in archive:
                name = Path(entry.name).name
                content = archive.extractfile(entry) if entry.isfile() and name.endswith(".whl") else None
                if content is None:
                    continue
                partial = folder / f".{name}.{os.getpid()}"
                try:
                    with partial.open("wb") as stream:
                        shutil.copyfileobj(content, stream, 1 << 20)
                    partial.replace(folder / name)
                finally:
                    partial.unlink(missing_ok=True)
                found.append(folder / name)
    if len(found) != 1:
        raise OnecatError(
            f"the build left {len(found)} wheels and not one: {', '.join(path.name for path in found) or 'none'}",
            where=f"{WHEELS_IN_STAGE} in the stage",
            code=ExitCode.ROLLED_BACK,
        )
    return found[0]


def log_file(home: Home, tag: str) -> Path:
    """Where the builder's whole output for an image is kept."""
    return home.data / "builds" / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', tag)}.log"


def record_file(home: Home, tag: str) -> Path:
    """What is remembered about the last build of an image."""
    return log_file(home, tag).with_suffix(".json")


def _record(home: Home, plan: BuildPlan, built: BuiltImage, seconds: float) -> None:
    document = {
        "schema": "onecat.build-record/1",
        "tag": built.tag,
        "context": built.context,
        "engine": plan.host.address,
        "builder": built.builder,
        "max_jobs": plan.max_jobs,
        "seconds": round(seconds, 1),
        "steps": [asdict(step) for step in built.steps],
    }
    write_json(record_file(home, built.tag), document, 0o644)


def _last_seconds(home: Home, tag: str, address: str) -> float | None:
    """How long the image took on that engine the last time; None where nothing is remembered."""
    try:
        document = read_json(record_file(home, tag))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("engine") != address:
        return None
    seconds = document.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else None


def _complete(prepared: Prepared, profile: Profile, home: Home, report: Report) -> Context:
    """The context with all its stored files on this machine, verified: the lock's wheels, the pinned source.

    Raises OnecatError as `onecat.images.wheels.fetch` and `onecat.images.sources.fetch_source` do.
    """
    context, options = prepared.context, prepared.options
    if context.lock is not None:
        report(
            f"engine: {context.lock.engine} {context.lock.version} on Python {context.python}. "
            f"{context.lock.packaged_by}"
        )
        store = wheel_store(home)
        context = _with_fetched_wheels(context, profile, store, log_file(home, f"{context.tag}.pip"), report, options)
    if context.source is not None:
        path = fetch_source(context.source, home, report, options.source, offline=options.origins.offline)
        context = context.with_paths({context.source.file: path})
    return context


def _with_fetched_wheels(
    context: Context, profile: Profile, store: WheelStore, log: Path, report: Report, options: BuildOptions
) -> Context:
    """The context again, now that all wheels are in the store and all hashes are known."""
    assert context.lock is not None
    downloader = Downloader(interpreter_with_pip(), context.python, log, options.origins.offline)
    rows = fetch(context.lock, store, downloader, report)
    complete = replace(render_context(profile, store.recorded_hashes(), options), arguments=context.arguments)
    paths = {f"wheels/{row.file}": store.path(row) for row in rows}
    if context.lock.series is not None:
        patched = ensure_patched_wheel(context.lock, context.python, store, report).path
        paths[f"wheels/{patched.name}"] = patched
    return complete.with_paths(paths)
