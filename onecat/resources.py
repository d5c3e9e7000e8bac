"""Where the data that ships with onecat lies: templates, profiles and patches.

In a wheel they lie inside the package; in a checkout (also an editable install) at the top of the repository.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_directory(name: str) -> Path:
    """The directory `templates`, `profiles` or `patches`. Raises FileNotFoundError when the installation is broken."""
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"onecat's own directory {name}/ is missing beside {_PACKAGE}: reinstall onecat")
