"""build.yaml: what a user or a company sets once for all image builds, as mirrors and proxies."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from onecat.config.schema import Record
from onecat.config.source import problems_error, read_source
from onecat.config.validate import check_data
from onecat.errors import OnecatError

PATHS = ("find_links", "ca_certificate", "pip_config", "source")


class BuildSettings(Record):
    """Values for the options of `onecat build`; those of the command line stand before them."""

    index_url: str | None = Field(None, description="Python package index")
    extra_index_urls: tuple[str, ...] = Field((), description="More Python package indexes")
    torch_index_url: str | None = Field(None, description="PyTorch's index for the CUDA version of the profile")
    find_links: str | None = Field(None, description="Folder of wheels and source archives that is looked at first")
    apt_mirror: str | None = Field(None, description="Address in place of the distribution's archive")
    ca_certificate: str | None = Field(None, description="PEM file that builds trust besides the system's")
    pip_config: str | None = Field(None, description="pip.conf for build stages, as for an index with a password")
    http_proxy: str | None = Field(None, description="Proxy of build steps for http addresses")
    https_proxy: str | None = Field(None, description="Proxy of build steps for https addresses")
    no_proxy: str | None = Field(None, description="Hosts that build steps reach without the proxy")
    source: str | None = Field(None, description="Folder that holds source archives of engines")
    max_jobs: int | None = Field(None, ge=1, le=1024, description="Compilers at once")
    builder: Literal["auto", "buildkit", "classic"] = Field("auto", description="What builds images")


def load_build_settings(path: Path) -> BuildSettings:
    """The settings in a file, its relative paths counted from its directory; all defaults when there is no such file.

    Raises OnecatError (exit code 2) that tells all problems with file, line and column.
    """
    if not path.is_file():
        return BuildSettings()
    source = read_source(path)
    checked = check_data(BuildSettings, source, frozenset())
    if isinstance(checked, list):
        raise problems_error({source.file: source.lines}, checked)
    changes = {}
    for name in PATHS:
        text = getattr(checked, name)
        if text is not None:
            try:
                changes[name] = str(path.absolute().parent / Path(text).expanduser())
            except RuntimeError:
                raise OnecatError(f"`{name}` is {text}, and there is no such home directory", where=str(path)) from None
    return checked.model_copy(update=changes)
