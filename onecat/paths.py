"""Where onecat keeps what it makes on this machine.

`ONECAT_HOME` moves everything below one directory (used by tests and by people with a small home partition).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """onecat's directories on this machine.

    data: runtimes, deployments, quickstart model; losing it loses deployments.
    cache: downloaded wheels and source archives; may be deleted at any time.
    """

    data: Path
    cache: Path

    @property
    def runtimes(self) -> Path:
        return self.data / "runtimes"

    @property
    def deployments(self) -> Path:
        return self.data / "deployments"

    @property
    def quickstart(self) -> Path:
        return self.data / "quickstart"

    @property
    def wheels(self) -> Path:
        return self.cache / "wheels"

    @property
    def sources(self) -> Path:
        return self.cache / "sources"


def home() -> Home:
    """The directories of the current user, read from the environment at the time of the call.

    `ONECAT_HOME` holds both; `ONECAT_CACHE` moves only the cache (CI keeps it between runs). Raises
    NotADirectoryError when one of them begins with the home directory of a user that there is not.
    """
    import platformdirs

    root = _from_environment("ONECAT_HOME")
    data = root or Path(platformdirs.user_data_dir("onecat"))
    cache = _from_environment("ONECAT_CACHE")
    if cache is not None:
        return Home(data, cache)
    return Home(data, data / "cache" if root else Path(platformdirs.user_cache_dir("onecat")))


def build_settings_file() -> Path:
    """Where this user's settings for image builds are (the file may not exist): build.yaml in ONECAT_HOME, else in the
    configuration directory of the user ($XDG_CONFIG_HOME/onecat)."""
    import platformdirs

    return (_from_environment("ONECAT_HOME") or Path(platformdirs.user_config_dir("onecat"))) / "build.yaml"


def _from_environment(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise NotADirectoryError(
            errno.ENOTDIR, f"{variable} begins with a home directory that does not exist", value
        ) from error
