"""The data that ships with onecat: where templates, profiles, patches and models lie, templates filled, tables.

In a wheel they lie inside the package; in a checkout (also an editable install) at the top of the repository.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = Path(__file__).resolve().parent


def resource_directory(name: str) -> Path:
    """The directory `templates`, `profiles`, `patches`, `models` or `requirements`.

    Raises FileNotFoundError when the installation is broken.
    """
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"onecat's own directory {name}/ is missing beside {_PACKAGE}: reinstall onecat")


def small_model() -> Path:
    """The directory of the small real model: a checkpoint, text that it has not seen (held_out.txt), SHA256SUMS.

    Raises FileNotFoundError when the installation is broken.
    """
    return resource_directory("models") / "small"


def parse_table(text: str) -> Any:
    """The plain data of a YAML text that ships with onecat; what people write is read by onecat.config."""
    import yaml

    # libyaml's loader reads the same ten times faster; PyYAML is also built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - both are the safe loader


def read_table(path: Path) -> Any:
    """The plain data of a YAML file that ships with onecat."""
    return parse_table(path.read_text(encoding="utf-8"))


def render_template(name: str, **values: Any) -> str:
    """The template templates/`name` filled with `values`; a variable that is not given is an error."""
    return _environment().get_template(name).render(**values)


@functools.cache
def _environment() -> Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_directory("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - configuration files and scripts, not HTML
    )
