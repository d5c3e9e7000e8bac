"""Fills onecat's Jinja templates; a variable that is not given is an error."""

from __future__ import annotations

from typing import Any

from onecat.resources import resource_directory


def render(name: str, **values: Any) -> str:
    """The template templates/`name` filled with `values`."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_directory("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - configuration files, not HTML
    )
    return environment.get_template(name).render(**values)
