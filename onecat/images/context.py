"""Build contexts: the Dockerfile of a profile and everything it copies, the same bytes for the same input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.errors import OnecatError
from onecat.images.cpu_engine import COMPANION_SUMMARY, IMPORT_CHECK, companion_version
from onecat.images.given_wheel import refusal_of_wheel, refuse_any_wheel, refuse_other_wheel
from onecat.images.lock import EngineLock, lock_path, profile_lock, read_lock
from onecat.images.metadata_wheel import metadata_wheel, metadata_wheel_name
from onecat.images.options import BuildOptions
from onecat.images.origins import build_arguments, refusal_without_torch, stored_files
from onecat.images.patched_wheel import patched_name
from onecat.images.recipe import Recipe, load_recipe
from onecat.images.stored_file import StoredFile

if TYPE_CHECKING:
    from onecat.config.schema import Profile
    from onecat.patching import Upstream

DEFAULT_OPTIONS = BuildOptions()


@dataclass(frozen=True)
class ContextFile:
    """One file of a context: its path in it, its bytes, its mode."""

    name: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Context:
    """What a container build gets.

    profile, tag, base: names. bases: all images the Dockerfile starts from. files: in memory, sorted by name.
    stored: files whose bytes stay on disk, sorted by name. lock: the wheels among them, those under wheels/, are this
    lock's, for CPython `python`. source: the pinned archive among them, which lies in the context under its file name.
    network: whether build steps need one. arguments: values of build arguments that follow from the options; no part of
    the digest.
    wheel_stage: the stage whose folder /wheels holds the engine's wheel, for recipes that build or take one.
    refusal: why this context must not be built yet, or None. reference: what `--profile` takes for the profile.
    """

    profile: str
    tag: str
    base: str
    bases: tuple[str, ...]
    files: tuple[ContextFile, ...]
    stored: tuple[StoredFile, ...] = ()
    lock: EngineLock | None = None
    python: str = ""
    source: Upstream | None = None
    network: bool = False
    arguments: dict[str, str] = field(default_factory=dict, compare=False)
    wheel_stage: str | None = None
    refusal: OnecatError | None = field(default=None, compare=False)
    reference: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over names, modes and contents: equal contexts have equal digests."""
        rows = [f"{file.name}\0{file.mode:o}\0{hashlib.sha256(file.content).hexdigest()}\n" for file in self.files]
        rows += [f"{file.name}\0{0o644:o}\0{file.sha256}\n" for file in self.stored if not file.origin]
        return hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes that are sent to the builder; files of unknown size count as nothing."""
        return sum(len(file.content) for file in self.files) + sum(file.size or 0 for file in self.stored)

    def with_paths(self, paths: Mapping[str, Path]) -> Context:
        """The context with the places of stored files that have been fetched: name in the context -> path."""
        stored = tuple(replace(file, path=paths.get(file.name, file.path)) for file in self.stored)
        return replace(self, stored=stored)


def render_context(
    profile: Profile, hashes: Mapping[str, str] | None = None, options: BuildOptions = DEFAULT_OPTIONS
) -> Context:
    """The build context of a profile's image. Reads what ships with onecat and the files that the options name.

    Parameters:
        hashes: file name -> SHA-256 in hex, for locked wheels whose hash was recorded at first use.
        options: where packages come from, and a wheel that takes the place of compiling.

    Raises:
        OnecatError: unknown recipe, an engine without a lock, or a variable that the profile lacks.
    """
    recipe = load_recipe(profile.image.recipe)
    if options.wheel is not None and not recipe.given_wheel and recipe.wheel_stage is None:
        refuse_any_wheel(profile, options.wheel)
    values: dict[str, Any] = {
        "profile": profile.name,
        "engine": profile.engine,
        "base": profile.image.base,
        "tag": profile.image.tag,
        "variables": profile.image.variables,
        "image_labels": _labels(profile, options),
        "packages": options.packages,
        "wheel": options.wheel is not None,
    }
    context = Context(
        profile=profile.name,
        reference=profile.reference,
        tag=profile.image.tag,
        base=profile.image.base,
        bases=_bases(profile, options),
        files=(),
        stored=stored_files(options),
        network=recipe.network and not options.origins.offline,
        arguments=build_arguments(options),
        wheel_stage=recipe.wheel_stage,
        refusal=refusal_without_torch(profile, options.origins) if recipe.torch_index else None,
    )
    if recipe.given_wheel:
        given = next((file.sha256 for file in context.stored if file.name.startswith("wheel/")), None)
        context = replace(context, refusal=refusal_of_wheel(profile, options, given) or context.refusal)
    files: list[ContextFile] = []
    if recipe.wheels:
        context, extra, companion = _with_wheels(context, profile, hashes or {})
        values |= extra
        files.append(companion)
    if recipe.patches:
        context, extra, patch_files = _patched_source(context, profile, options)
        values |= extra
        files += patch_files
    if recipe.selftest:
        values["selftest"] = {"architectures": _architectures(profile), **recipe.selftest}
    names = [*recipe.files(), *(file.name for file in files), *(file.name for file in context.stored)]
    values["top_names"] = sorted({name.partition("/")[0] for name in names} - {".dockerignore"})
    files += _rendered(recipe, values, profile)
    return replace(
        context,
        files=tuple(sorted(files, key=lambda file: file.name)),
        stored=tuple(sorted(context.stored, key=lambda file: file.name)),
    )


def _with_wheels(
    context: Context, profile: Profile, hashes: Mapping[str, str]
) -> tuple[Context, dict[str, Any], ContextFile]:
    """The context with the engine's wheels, the templates' values for them, and the companion wheel."""
    lock = profile_lock(profile)
    python = str(profile.image.variables.get("python", ""))
    if python not in lock.pythons:
        raise OnecatError(
            f"the image of profile {profile.name} has Python {python or '(not said)'}",
            expected=f"image.variables.python: one of {', '.join(lock.pythons)}",
        )
    rows = [replace(row, sha256=row.sha256 or hashes.get(row.file)) for row in lock.for_python(python)]
    wheels = tuple(sorted(rows, key=lambda row: row.file))
    version = companion_version(lock)
    companion = metadata_wheel("vllm", version, COMPANION_SUMMARY)
    engine = next(row for row in wheels if row.project == lock.engine)
    patched = None
    stored = [StoredFile(f"wheels/{row.file}", row.sha256, row.size) for row in wheels]
    if lock.series is not None:
        # Its bytes follow from the wheel and the series, so that neither size nor hash is needed to know it.
        patched = patched_name(engine.file, lock.series)
        stored = [file for file in stored if file.name != f"wheels/{engine.file}"]
        stored.append(StoredFile(f"wheels/{patched}", None, engine.size, made_of=engine.file))
        wheels = tuple(row for row in wheels if row.file != engine.file)
    extra = {
        "python": python,
        "machine": lock.machine,
        "packaged_by": lock.packaged_by,
        "left_out": lock.left_out,
        "libraries": lock.libraries,
        "wheels": wheels,
        "patched_wheel": patched,
        "engine_wheel": engine,
        "companion": {"version": version, "sha256": hashlib.sha256(companion).hexdigest()},
        "import_check": IMPORT_CHECK,
    }
    context = replace(context, stored=(*context.stored, *stored), lock=lock, python=python)
    return context, extra, ContextFile(f"wheels/{metadata_wheel_name('vllm', version)}", companion)


def _bases(profile: Profile, options: BuildOptions) -> tuple[str, ...]:
    """The images that the stages begin with; a wheel alone takes only the one it is built on."""
    build_base = str(profile.image.variables.get("build_base", profile.image.base))
    return (build_base,) if options.wheel_only is not None else tuple(dict.fromkeys([build_base, profile.image.base]))


def _patched_source(
    context: Context, profile: Profile, options: BuildOptions
) -> tuple[Context, dict[str, Any], list[ContextFile]]:
    """The pinned source and the patch series of a profile that builds from source; neither where a wheel is given."""
    from onecat.patching import load_series

    series = load_series(str(profile.image.patches)).for_profile(profile)
    architectures = ".".join(f"sm{each}" for each in _architectures(profile))
    values = {
        "upstream": series.upstream,
        "series": series,
        "cuda_release": ".".join(str(profile.image.variables.get("cuda", "")).split(".")[:2]),
        "wheel_version": f"{profile.engine.version}+onecat.{architectures}",
    }
    if options.wheel is not None:
        refuse_other_wheel(options.wheel, series.upstream.distribution, series.upstream.version)
        return context, values, []
    files = [ContextFile(f"patches/{patch.file}", patch.text.encode()) for patch in series.patches]
    files += [ContextFile(f"patches/add/{path}", series.added_content(path)) for path in series.added]
    source = StoredFile(series.upstream.file, series.upstream.sha256)
    return replace(context, source=series.upstream, stored=(*context.stored, source)), values, files


def _architectures(profile: Profile) -> list[int]:
    """The architectures that `image.variables.arch_list` names, as 70; without `+PTX`."""
    entries = str(profile.image.variables.get("arch_list", "")).replace(" ", ";").split(";")
    return [int(entry.partition("+")[0].replace(".", "")) for entry in entries if entry]


def _rendered(recipe: Recipe, values: Mapping[str, Any], profile: Profile) -> list[ContextFile]:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

    root = recipe.directory.parent
    environment = Environment(
        loader=FileSystemLoader(root), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["quoted"] = quoted
    environment.filters["single_line"] = lambda text: " ".join(str(text).split())
    files = []
    for name, path in recipe.files().items():
        mode = 0o755 if name.endswith(".sh") else 0o644
        if path.suffix != ".j2":
            files.append(ContextFile(name, path.read_bytes(), mode))
            continue
        try:
            text = environment.get_template(path.relative_to(root).as_posix()).render(values)
        except UndefinedError as error:
            raise OnecatError(
                f"the recipe {recipe.name} needs a value that profile {profile.name} does not have",
                where=f"image.variables in profile {profile.name}",
                details=[str(error)],
            ) from error
        files.append(ContextFile(name, (text.rstrip("\n") + "\n").encode(), mode))
    return files


def quoted(value: str) -> str:
    """A value in double quotes as LABEL and ENV want it: backslash, quote, dollar and line ends escaped."""
    return json.dumps(str(value), ensure_ascii=False).replace("$", "\\$")


def _labels(profile: Profile, options: BuildOptions) -> dict[str, str]:
    """The image's labels: OCI annotation keys, and onecat's own that `status` and doctor read."""
    from onecat import __version__
    from onecat.patching import load_series

    lock = lock_path(profile.engine.name, profile.engine.version)
    variables = profile.image.variables
    labels = {
        "org.opencontainers.image.title": f"{profile.engine.name} {profile.engine.version}",
        "org.opencontainers.image.description": profile.summary,
        "org.opencontainers.image.version": profile.engine.version,
        "org.opencontainers.image.base.name": profile.image.base,
        "io.onecat.version": __version__,
        "io.onecat.profile": profile.name,
        "io.onecat.engine": profile.engine.name,
        "io.onecat.engine-version": profile.engine.version,
    }
    if load_recipe(profile.image.recipe).wheels and lock.is_file():
        python = str(variables.get("python", ""))
        labels["io.onecat.lock"] = f"sha256:{read_lock(profile.engine.name, profile.engine.version).digest(python)}"
    if options.packages:
        rows = "".join(f"{each.name}=={each.version} {' '.join(each.sha256)}\n" for each in options.packages)
        labels["io.onecat.lock"] = f"sha256:{hashlib.sha256(rows.encode()).hexdigest()}"
    if profile.image.patches is not None:
        series = load_series(profile.image.patches).for_profile(profile)
        labels["io.onecat.patch-series"] = f"{series.name} sha256:{series.digest}"
        labels["org.opencontainers.image.licenses"] = series.upstream.licence
    for label, variable in (("io.onecat.cuda-architectures", "arch_list"), ("io.onecat.cuda", "cuda")):
        if variable in variables:
            labels[label] = str(variables[variable])
    if profile.doctor.driver is not None:
        labels["io.onecat.minimum-driver"] = profile.doctor.driver.minimum
    return labels
