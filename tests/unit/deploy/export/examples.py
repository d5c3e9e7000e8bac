"""Deployments to export."""

from __future__ import annotations

from typing import Any

from onecat.config import Deployment, load_profile
from onecat.deploy.export import ExportedFile, Options, Request, find_form
from onecat.planner import make_plan
from tests.unit.planner.examples import LLAMA

PLAIN = Options()
KEY = {"api_key": {"file": "/home/me/key"}}
NASTY = {
    "PERCENT": "100%s %h %%",
    "DOLLAR": "$HOME ${HOME} $(HOME) $$ $",
    "QUOTES": "\"double\" 'single' `back` \\ \\n",
    "LINES": "one\ntwo\n\n  three: 3\t# no comment\n",
    "WORDS": "yes",
    "NUMBER": "1e3",
    "OCTAL": "0o17",
    "EMPTY": "",
    "SPACES": "  both ends  ",
    "UNICODE": "模型 é \u2028 \U0001f600",
    "YAML": "- {a: [b, *c, &d, !e]}: |",
    "LONG": "x y " * 200,
}


def request(profile: str, options: Options = PLAIN, runtime: str = "container", **changes: Any) -> Request:
    """What is exported: a model of 8B with a profile; `changes` are keys of onecat.yaml."""
    values = {"name": "chat", "profile": profile, "model": {"path": LLAMA.directory}, "runtime": runtime, **changes}
    deployment, loaded = Deployment.model_validate(values), load_profile(profile)
    return Request(deployment, loaded, make_plan(deployment, loaded, LLAMA), options)


def exported(form: str, what: Request) -> dict[str, ExportedFile]:
    """The files of an export by their paths."""
    return {each.path: each for each in find_form(form).render(what)}
