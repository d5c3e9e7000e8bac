"""What an nginx program is: its version and how it was built. Pure reading of what `nginx -V` prints."""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True)
class NginxBuild:
    """One nginx program. version: as (1, 22, 1); options: the arguments of its configure script."""

    version: Version
    options: str = ""

    def has(self, module: str) -> bool:
        """Whether a module that is off by default was built in, as `http_v2`."""
        return f"--with-{module}_module" in self.options

    def lacks(self, module: str) -> bool:
        """Whether a module that is on by default was left out, as `http_scgi`."""
        return f"--without-{module}_module" in self.options

    def path(self, option: str) -> str | None:
        """A path it was built with, as `conf-path`; relative ones are below `prefix`."""
        found = re.search(rf"--{re.escape(option)}=(\S+)", self.options)
        if found is None:
            return None
        path = found[1]
        return path if path.startswith("/") else f"{self.path('prefix') or '/usr/local/nginx'}/{path}"


OLDEST = NginxBuild((1, 18, 0), "--with-http_ssl_module --with-http_v2_module")
"""The oldest nginx that our files are for; what is written for it, later ones take as well."""


def parse_build(text: str) -> NginxBuild | None:
    """What `nginx -V` printed tells; None when it is no nginx's."""
    version = re.search(r"nginx version: \S*?/(\d+)\.(\d+)\.(\d+)", text)
    if version is None:
        return None
    options = re.search(r"configure arguments:(.*)", text)
    major, minor, patch = (int(part) for part in version.groups())
    return NginxBuild((major, minor, patch), options[1].strip() if options else "")
