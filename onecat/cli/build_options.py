"""The options of `onecat build` about where packages come from and how images are built, and build.yaml below them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.images import BuilderChoice, BuildOptions

ENVIRONMENT = "environment"
"""The value of --proxy that takes the proxies of onecat's own environment."""

IndexOption = Annotated[str | None, typer.Option("--index-url", metavar="URL", help="Python package index.")]
ExtraIndexOption = Annotated[
    list[str] | None,
    typer.Option("--extra-index-url", metavar="URL", help="One more; may be repeated."),
]
TorchIndexOption = Annotated[
    str | None,
    typer.Option("--torch-index-url", metavar="URL", help="PyTorch's index for the profile's CUDA."),
]
FindLinksOption = Annotated[
    Path | None,
    typer.Option("--find-links", metavar="DIR", help="Wheels that are looked at first."),
]
AptMirrorOption = Annotated[
    str | None,
    typer.Option("--apt-mirror", metavar="URL", help="In place of the distribution's archive."),
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        metavar="URL",
        help=f"Proxy of build steps; `{ENVIRONMENT}`: this shell's [none but those of ~/.docker/config.json].",
    ),
]
NoProxyOption = Annotated[
    str | None,
    typer.Option("--no-proxy", metavar="HOSTS", help="Hosts without it, by commas."),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--ca-certificate", metavar="FILE", help="PEM file that the build trusts."),
]
PipConfigOption = Annotated[
    Path | None,
    typer.Option("--pip-config", metavar="FILE", help="pip.conf for build stages, as for a password."),
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="No step may use a network.")]
SourceOption = Annotated[
    Path | None,
    typer.Option("--source", metavar="DIR", help="Folder with the engine's source archive."),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--max-jobs",
        min=1,
        max=1024,
        metavar="N",
        help="Compilers at once [from the build host's memory].",
    ),
]
WheelOption = Annotated[
    Path | None,
    typer.Option(
        "--wheel",
        metavar="FILE",
        help="The engine's wheel, built before: nothing is compiled.",
    ),
]
WheelOnlyOption = Annotated[
    Path | None,
    typer.Option("--wheel-only", metavar="DIR", help="Build the engine's wheel into DIR, no image."),
]
BuilderOption = Annotated[
    str | None,
    typer.Option(
        "--builder",
        metavar="NAME",
        help="auto, buildkit or classic [auto: BuildKit if there].",
    ),
]
ArgumentsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--build-arg",
        metavar="NAME=VALUE",
        help="An ARG that no option sets; may be repeated.",
    ),
]


@dataclass(frozen=True)
class Choices:
    """What the command line says about a build; None: not said."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] | None = None
    torch_index_url: str | None = None
    find_links: Path | None = None
    apt_mirror: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None
    ca_certificate: Path | None = None
    pip_config: Path | None = None
    offline: bool = False
    source: Path | None = None
    max_jobs: int | None = None
    wheel: Path | None = None
    wheel_only: Path | None = None
    builder: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)


NOTHING_CHOSEN = Choices()


def build_options(choices: Choices, settings_file: Path | None = None) -> tuple[BuildOptions, BuilderChoice]:
    """The options of a build: the command line's before those of build.yaml.

    Parameters:
        settings_file: build.yaml; None: where this user's would be.

    Raises OnecatError (exit code 2) for what cannot be meant.
    """
    from onecat.config.build_settings import load_build_settings
    from onecat.images import BuilderChoice, BuildOptions, PackageOrigins
    from onecat.paths import build_settings_file

    settings = load_build_settings(settings_file or build_settings_file())
    builder = choices.builder or settings.builder
    known = get_args(BuilderChoice)
    if builder not in known:
        raise OnecatError(f"there is no builder {builder}", expected=f"--builder {' or '.join(known)}")
    if choices.wheel is not None and choices.wheel_only is not None:
        raise OnecatError("--wheel and --wheel-only exclude each other", expected="one of them")
    for name, path in (("--wheel", choices.wheel), ("--ca-certificate", choices.ca_certificate)):
        if path is not None and not path.is_file():
            raise OnecatError(f"{name} {path} is no file", expected="a file", where=str(path.absolute()))
    source = choices.source or (Path(settings.source) if settings.source else None)
    if source is not None and not source.exists():
        raise OnecatError(
            f"--source {source} does not exist",
            expected="a folder with the engine's source archive",
            where=str(source.absolute()),
        )
    proxies = _proxies(choices) or {name: getattr(settings, name) for name in ("http_proxy", "https_proxy", "no_proxy")}

    def path_of(name: str) -> Path | None:
        given, kept = getattr(choices, name), getattr(settings, name)
        return given or (Path(kept) if kept else None)

    origins = PackageOrigins(
        index_url=choices.index_url or settings.index_url,
        extra_index_urls=choices.extra_index_urls or settings.extra_index_urls,
        torch_index_url=choices.torch_index_url or settings.torch_index_url,
        find_links=path_of("find_links"),
        apt_mirror=choices.apt_mirror or settings.apt_mirror,
        ca_certificate=path_of("ca_certificate"),
        pip_config=path_of("pip_config"),
        offline=choices.offline,
        **proxies,
    )
    options = BuildOptions(
        origins=origins,
        max_jobs=choices.max_jobs or settings.max_jobs,
        wheel=choices.wheel,
        wheel_only=choices.wheel_only,
        source=source,
    )
    return options, builder  # type: ignore[return-value] # compared with the type's own values above


def _proxies(choices: Choices) -> dict[str, Any]:
    """The proxies that the command line names; empty where it names none."""
    if choices.proxy is None:
        if choices.no_proxy is None:
            return {}
        raise OnecatError("--no-proxy without --proxy", expected="--proxy URL as well")
    if choices.proxy == ENVIRONMENT:
        found = {
            name: os.environ.get(name) or os.environ.get(name.upper())
            for name in ("http_proxy", "https_proxy", "no_proxy")
        }
        if not (found["http_proxy"] or found["https_proxy"]):
            raise OnecatError("this shell has no proxy", expected="http_proxy or https_proxy in the environment")
        return found | ({} if choices.no_proxy is None else {"no_proxy": choices.no_proxy})
    if "://" not in choices.proxy:
        raise OnecatError(f"--proxy {choices.proxy}", expected="an address, as http://proxy.example:3128")
    return {"http_proxy": choices.proxy, "https_proxy": choices.proxy, "no_proxy": choices.no_proxy}


def named_values(texts: list[str]) -> dict[str, str]:
    """NAME=VALUE texts of --build-arg. Raises OnecatError for one without a name or an equals sign."""
    for text in texts:
        name, equals, _ = text.partition("=")
        if not name or not equals:
            raise OnecatError(f"--build-arg {text}", expected="--build-arg NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}
