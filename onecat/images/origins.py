"""Where the steps of a build find packages: as build arguments, and as files of the build context."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from onecat.errors import OnecatError
from onecat.images.options import BuildOptions, PackageOrigins
from onecat.images.stored_file import StoredFile
from onecat.images.wheels import file_sha256

if TYPE_CHECKING:
    from onecat.config.schema import Profile

PACKAGE_ENDINGS = (".whl", ".tar.gz", ".zip")
CERTIFICATE_BYTES = 64 * 1024
"""Most bytes of a certificate file: in base64 it is one variable of a build step, and Linux takes 128 KiB for one."""


def build_arguments(options: BuildOptions) -> dict[str, str]:
    """The values of the Dockerfile's arguments; without those that are not chosen.

    The proxies are arguments that Docker knows by itself and keeps out of the image's history.

    Raises:
        OnecatError: no address, one with a password, which the history would keep, or no usable certificate.
    """
    origins = options.origins
    for address in (origins.index_url, *origins.extra_index_urls, origins.torch_index_url, origins.apt_mirror):
        if address is not None:
            _refuse_what_is_no_address(address)
            _refuse_password(address)
    values = {
        "APT_MIRROR": origins.apt_mirror,
        "CA_CERTIFICATE": _certificate(origins.ca_certificate) if origins.ca_certificate else None,
        "ONECAT_OFFLINE": "yes" if origins.offline else None,
        "PIP_INDEX_URL": origins.index_url,
        "PIP_EXTRA_INDEX_URL": " ".join(origins.extra_index_urls),
        "TORCH_INDEX_URL": origins.torch_index_url,
        "MAX_JOBS": str(options.max_jobs) if options.max_jobs else None,
        **{name: value for proxy, value in _proxies(origins) for name in (proxy, proxy.upper())},
    }
    return {name: value for name, value in values.items() if value}


def refusal_without_torch(profile: Profile, origins: PackageOrigins) -> OnecatError | None:
    """Why a build that needs PyTorch for one CUDA version cannot start: nothing is named that could have it."""
    named = (origins.torch_index_url, origins.index_url, origins.find_links, origins.pip_config)
    if any(named) or origins.extra_index_urls:
        return None
    torch, cuda = profile.image.variables.get("torch"), profile.image.variables.get("cuda")
    return OnecatError(
        f"it is not said where torch {torch} comes from",
        expected=f"PyTorch's wheel index for CUDA {cuda} as pytorch.org (Start Locally) shows it, a mirror of it, or a "
        "folder with its wheels",
        next_steps=[
            f"onecat build --profile {profile.reference} --torch-index-url URL",
            f"onecat build --profile {profile.reference} --find-links FOLDER",
        ],
    )


def _proxies(origins: PackageOrigins) -> Iterator[tuple[str, str | None]]:
    yield "http_proxy", origins.http_proxy
    yield "https_proxy", origins.https_proxy
    yield "no_proxy", origins.no_proxy


def _refuse_what_is_no_address(address: str) -> None:
    if "://" not in address:
        raise OnecatError(
            f"{address} is no address",
            expected="one with its scheme, as https://mirror.example/simple; a folder is for --find-links",
        )


def _refuse_password(address: str) -> None:
    parts = urlsplit(address)
    if parts.username is None and parts.password is None:
        return
    shown = parts._replace(netloc=f"***@{parts.netloc.rpartition('@')[2]}").geturl()
    raise OnecatError(
        f"an address with a user name or password: {shown}",
        expected="an address that the image's history may show: build arguments are kept there",
        next_steps=[
            "write it into a file of pip's configuration and give that: --pip-config FILE (only build stages see it)",
            "or give a mirror that wants no password",
        ],
    )


def _certificate(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OnecatError(f"{path}: {error.strerror}", expected="a PEM file with a certificate") from error
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY-----" in content:
        raise OnecatError(f"{path} holds no certificate alone", expected="a PEM file with certificates and no key")
    if len(content) > CERTIFICATE_BYTES:
        raise OnecatError(
            f"{path} has {len(content)} bytes",
            expected=f"at most {CERTIFICATE_BYTES}: only what the build trusts besides the system's certificates",
        )
    return base64.b64encode(content).decode()


def stored_files(options: BuildOptions) -> tuple[StoredFile, ...]:
    """The files that the options bring into the build context. Reads each to know its hash.

    Raises OnecatError when one of them is not there or is no wheel.
    """
    found = []
    origins = options.origins
    if origins.pip_config is not None:
        found.append(_stored("origins/pip.conf", origins.pip_config, "pip's configuration file", origin=True))
    if origins.find_links is not None:
        if not origins.find_links.is_dir():
            raise OnecatError(f"{origins.find_links} is no folder", expected="a folder of wheels and source archives")
        for path in sorted(origins.find_links.iterdir()):
            if path.is_file() and path.name.endswith(PACKAGE_ENDINGS):
                found.append(_stored(f"origins/packages/{path.name}", path, "a package"))
    if options.wheel is not None:
        if not options.wheel.name.endswith(".whl"):
            raise OnecatError(f"{options.wheel} is no wheel", expected="a file NAME-VERSION-...whl, its name unchanged")
        found.append(_stored(f"wheel/{options.wheel.name}", options.wheel, "a wheel of the engine"))
    return tuple(found)


def _stored(name: str, path: Path, what: str, origin: bool = False) -> StoredFile:
    try:
        return StoredFile(name, file_sha256(path), path.stat().st_size, path, origin)
    except OSError as error:
        raise OnecatError(f"{path}: {error.strerror}", expected=what) from error
