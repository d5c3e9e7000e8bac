"""What a person chooses for one build: where packages come from, and how much of the machine the compiler may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PackageOrigins:
    """Where the steps of a build find packages; None and empty leave it to the base image and the machine.

    index_url, extra_index_urls: Python package indexes. torch_index_url: PyTorch's index for one CUDA version.
    find_links: a folder of wheels and source archives that is looked at first; copied into the build context.
    apt_mirror: address that takes the place of the distribution's own in the base image. ca_certificate: a PEM file
    that the build trusts besides the system's. http_proxy, https_proxy, no_proxy: as the variables of these names.
    offline: no step may use a network. pip_config: a pip.conf for what must not be an argument, such as an index with a
    password; only build stages see it, and no layer of the finished image has it.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    torch_index_url: str | None = None
    find_links: Path | None = None
    apt_mirror: str | None = None
    ca_certificate: Path | None = None
    http_proxy: str | None = None
    https_proxy: str | None = None
    no_proxy: str | None = None
    offline: bool = False
    pip_config: Path | None = None


@dataclass(frozen=True)
class LockedPackage:
    """One Python package as a lock file names it.

    sha256: in hex, of every file that may be installed for it.
    """

    name: str
    version: str
    sha256: tuple[str, ...]


@dataclass(frozen=True)
class BuildOptions:
    """One build.

    max_jobs: compiler processes at once; None: from the build host's memory. wheel: a wheel of the engine that was
    built before and takes the place of compiling. wheel_only: folder that gets the wheel; no image is made then.
    source: folder that holds the engine's source archive, asked before any index. packages: what a lock file names for
    an image whose packages pip chooses: pip installs these, checks their hashes, chooses nothing; empty without one.
    """

    origins: PackageOrigins = PackageOrigins()
    max_jobs: int | None = None
    wheel: Path | None = None
    wheel_only: Path | None = None
    source: Path | None = None
    packages: tuple[LockedPackage, ...] = ()
