"""HTML and SVG as text in which nothing but our own tags is markup."""

from __future__ import annotations

import html

from onecat.render.columns import harmless


def text(value: object) -> str:
    """What others wrote, as text: no markup, and nothing that steers or that XML forbids."""
    return html.escape(harmless(str(value), "\N{REPLACEMENT CHARACTER}"), quote=True)


def tag(name: str, /, *content: str, **attributes: object) -> str:
    """An element. content: markup, made by `tag` or `text`.

    attributes: as values, escaped here; None leaves one out. `class_` is class, and other underscores are hyphens.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def void_tag(name: str, /, **attributes: object) -> str:
    """An element without content, closed so that both HTML's void elements and XML take it."""
    return tag(name, **attributes).removesuffix(f"></{name}>") + "/>"
