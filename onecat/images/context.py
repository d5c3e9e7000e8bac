"""Build contexts: the Dockerfile of a profile and everything it copies, the same bytes for the same input."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError
from onecat.images.lock import EngineLock, LockedFile, lock_path, read_lock
from onecat.images.metadata_wheel import metadata_wheel, metadata_wheel_name
from onecat.images.native import COMPANION_SUMMARY, IMPORT_CHECK, companion_version
from onecat.images.recipe import Recipe, load_recipe
from onecat.resources import read_table, resource_directory

if TYPE_CHECKING:
    from onecat.config.schema import Profile

MODIFIED = 315532800  # 1980-01-01, the earliest time that zip files know: the tar's time stamps say nothing
CHUNK_BYTES = 1 << 20
RENDERED_MARK = b"\n# Made by `onecat build --profile "


@dataclass(frozen=True)
class ContextFile:
    """One file of a context: its path in it, its bytes, its mode."""

    name: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Context:
    """What a container build gets.

    profile, tag, base: names. bases: all images the Dockerfile starts from. files: sorted by name.
    wheels: locked wheels that lie under wheels/ in the context; their bytes stay on disk. python: version they are for.
    network: whether build steps need one. build_arguments: arguments a person must give, with what they are.
    refusal: why this context must not be built yet, or None.
    """

    profile: str
    tag: str
    base: str
    bases: tuple[str, ...]
    files: tuple[ContextFile, ...]
    wheels: tuple[LockedFile, ...] = ()
    lock: EngineLock | None = None
    python: str = ""
    network: bool = False
    build_arguments: dict[str, str] = field(default_factory=dict)
    refusal: OnecatError | None = field(default=None, compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over names, modes and contents: equal contexts have equal digests."""
        rows = [f"{file.name}\0{file.mode:o}\0{hashlib.sha256(file.content).hexdigest()}\n" for file in self.files]
        rows += [f"wheels/{row.file}\0{0o644:o}\0{row.sha256}\n" for row in self.wheels]
        return hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()


def render_context(profile: Profile, hashes: Mapping[str, str] | None = None) -> Context:
    """The build context of a profile's image. Reads only what ships with onecat.

    Parameters:
        hashes: file name -> SHA-256 in hex, for locked wheels whose hash was recorded at first use.

    Raises:
        OnecatError: unknown recipe, an engine without a lock, or a variable that the profile lacks.
    """
    recipe = load_recipe(profile.image.recipe)
    values: dict[str, Any] = {
        "profile": profile.name,
        "engine": profile.engine,
        "base": profile.image.base,
        "variables": profile.image.variables,
        "image_labels": _labels(profile),
    }
    context = Context(
        profile=profile.name,
        tag=profile.image.tag,
        base=profile.image.base,
        bases=tuple(
            dict.fromkeys([str(profile.image.variables.get("build_base", profile.image.base)), profile.image.base])
        ),
        files=(),
        network=recipe.network,
        build_arguments=recipe.build_arguments,
    )
    files: list[ContextFile] = []
    if recipe.wheels:
        context, extra = _with_wheels(context, profile, hashes or {})
        values |= extra
        companion = metadata_wheel("vllm", extra["companion"]["version"], COMPANION_SUMMARY)
        files.append(ContextFile(f"wheels/{metadata_wheel_name('vllm', extra['companion']['version'])}", companion))
    if recipe.patches:
        extra, patch_files, refusal = _patches(profile)
        values |= extra
        files += patch_files
        context = replace(context, refusal=refusal)
    files += _rendered(recipe, values, profile)
    return replace(context, files=tuple(sorted(files, key=lambda file: file.name)))


def _with_wheels(context: Context, profile: Profile, hashes: Mapping[str, str]) -> tuple[Context, dict[str, Any]]:
    lock = read_lock(profile.engine.name, profile.engine.version)
    python = str(profile.image.variables.get("python", ""))
    if python not in lock.pythons:
        raise OnecatError(
            f"the image of profile {profile.name} has Python {python or '(not said)'}",
            expected=f"image.variables.python: one of {', '.join(lock.pythons)}",
        )
    rows = [replace(row, sha256=row.sha256 or hashes.get(row.file)) for row in lock.for_python(python)]
    wheels = tuple(sorted(rows, key=lambda row: row.file))
    companion = hashlib.sha256(metadata_wheel("vllm", companion_version(lock), COMPANION_SUMMARY)).hexdigest()
    return replace(context, wheels=wheels, lock=lock, python=python), {
        "python": python,
        "machine": lock.machine,
        "packaged_by": lock.packaged_by,
        "left_out": lock.left_out,
        "libraries": lock.libraries,
        "wheels": wheels,
        "companion": {"version": companion_version(lock), "sha256": companion},
        "import_check": IMPORT_CHECK,
    }


def _patches(profile: Profile) -> tuple[dict[str, Any], list[ContextFile], OnecatError | None]:
    """The pinned source and the patch series of a profile that builds from source."""
    directory = resource_directory("patches") / str(profile.image.patches)
    pin = directory / "upstream.yaml"
    if not pin.is_file():
        raise OnecatError(f"profile {profile.name} has no pinned source", expected=str(pin), where="image.patches")
    series_file = directory / "series.yaml"
    series: list[str] = []
    refusal = None
    if series_file.is_file():
        series = [row["file"] for row in read_table(series_file)["patches"]]
    else:
        refusal = OnecatError(
            f"the image of profile {profile.name} cannot be built yet: onecat has no patch series for "
            f"{profile.engine.name} {profile.engine.version}",
            expected=f"patches/{directory.name}/series.yaml",
            next_steps=[
                f"onecat build --profile {profile.name} --render-only shows what would be built",
                "or choose another profile: onecat profile list",
            ],
            code=ExitCode.NO,
        )
    files = [
        ContextFile(f"patches/{path.relative_to(directory).as_posix()}", path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    architecture = "sm_" + str(profile.hardware.compute_capability).replace(".", "")
    upstream = read_table(pin)
    added = (directory / "add").is_dir()
    return {"upstream": upstream, "series": series, "added": added, "architecture": architecture}, files, refusal


def _rendered(recipe: Recipe, values: Mapping[str, Any], profile: Profile) -> list[ContextFile]:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

    root = recipe.directory.parent
    environment = Environment(
        loader=FileSystemLoader(root), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["quoted"] = quoted
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


def _labels(profile: Profile) -> dict[str, str]:
    """The image's labels: OCI annotation keys, and onecat's own that `status` and doctor read."""
    from onecat import __version__

    lock = lock_path(profile.engine.name, profile.engine.version)
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
        python = str(profile.image.variables.get("python", ""))
        labels["io.onecat.lock"] = f"sha256:{read_lock(profile.engine.name, profile.engine.version).digest(python)}"
    architectures = profile.image.variables.get("arch_list")
    if architectures is not None:
        labels["io.onecat.cuda-architectures"] = str(architectures)
    return labels


def tar_stream(context: Context, wheels: Path) -> Iterator[bytes]:
    """The context as a tar archive, in pieces, never whole in memory. The same context gives the same bytes.

    Parameters:
        wheels: folder that holds the context's locked wheels.
    """
    entries: list[tuple[str, int, bytes | Path]] = [(file.name, file.mode, file.content) for file in context.files]
    entries += [(f"wheels/{row.file}", 0o644, wheels / row.file) for row in context.wheels]
    for name, mode, source in sorted(entries, key=lambda entry: entry[0]):
        info = tarfile.TarInfo(name)
        info.size = source.stat().st_size if isinstance(source, Path) else len(source)
        info.mode, info.mtime = mode, MODIFIED
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as stream:
            while piece := stream.read(CHUNK_BYTES):
                yield piece
        yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
    yield b"\0" * 2 * tarfile.BLOCKSIZE


def write_context(context: Context, directory: Path) -> tuple[str, ...]:
    """Write the context's files (not the locked wheels) below `directory`. Removes nothing.

    Returns the names of the files that were written because they were missing or different. Raises OnecatError (exit
    code 2), and writes nothing, where that would replace files in a directory that onecat has not written before.
    """
    different = [file for file in context.files if not _has(directory / file.name, file.content)]
    foreign = [file.name for file in different if (directory / file.name).exists()]
    if foreign and not _rendered_before(directory):
        raise OnecatError(
            f"there are other files already: {', '.join(foreign)}",
            expected="a directory without them, or one that onecat has written before",
            where=str(directory.absolute()),
            next_steps=["name another directory: --output DIRECTORY", "or move these files away"],
        )
    written = []
    for file in context.files:
        path = directory / file.name
        if file not in different and path.stat().st_mode & 0o777 == file.mode:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
        written.append(file.name)
    return tuple(written)


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _rendered_before(directory: Path) -> bool:
    """Whether the Dockerfile there is one of ours: the templates say so in their heads."""
    dockerfile = directory / "Dockerfile"
    return dockerfile.is_file() and RENDERED_MARK in dockerfile.read_bytes()
