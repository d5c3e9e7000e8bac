"""The image of a profile, from its recipe to a tag on a Docker engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.images.context import Context, render_context
from onecat.images.docker_build import BuiltImage, build_image, check_buildable, find_image
from onecat.images.interpreters import interpreter_with_pip
from onecat.images.wheels import Downloader, WheelStore, fetch, wheel_store

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.paths import Home

Report = Callable[[str], None]


def ensure_image(
    profile: Profile,
    home: Home,
    docker_host: str | None,
    report: Report,
    build_arguments: Mapping[str, str] | None = None,
) -> BuiltImage:
    """The image of a profile on the engine at `docker_host`, built now unless an equal one is there.

    Raises OnecatError as `build_image` does, and as `onecat.images.wheels.fetch` does for recipes with wheels.
    """
    store = wheel_store(home)
    context = render_context(profile, store.recorded_hashes())
    check_buildable(context, build_arguments or {})
    present = find_image(context, docker_host)
    if present is not None:
        report(f"image: {context.tag} is up to date")
        return present
    logs = home.data / "builds"
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", context.tag)
    if context.lock is not None:
        report(
            f"engine: {context.lock.engine} {context.lock.version} on Python {context.python}. "
            f"{context.lock.packaged_by}"
        )
        context = _with_fetched_wheels(context, profile, store, logs / f"{name}.pip.log", report)
    return build_image(context, docker_host, report, logs / f"{name}.log", build_arguments)


def _with_fetched_wheels(context: Context, profile: Profile, store: WheelStore, log: Path, report: Report) -> Context:
    """The context again, now that all wheels are in the store and all hashes are known."""
    assert context.lock is not None
    rows = fetch(context.lock, store, Downloader(interpreter_with_pip(), context.python, log), report)
    complete = render_context(profile, store.recorded_hashes())
    return complete.with_paths({f"wheels/{row.file}": store.path(row) for row in rows})
