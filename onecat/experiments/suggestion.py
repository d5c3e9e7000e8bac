"""What a sweep ends in: a profile of one's own that has the better values, with the evidence for each. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import yaml

from onecat.engines import flag_schema, typed

if TYPE_CHECKING:
    from onecat.config import Profile
    from onecat.deploy import UpRequest
    from onecat.experiments.variants import Settings

_LONGEST_NAME = 60


def profile_override(profile: Profile, reference: str, settings: Settings, evidence: str, file: str) -> str:
    """The text of a profile that is another one with some flags changed, as `onecat profile validate` takes it.

    Parameters:
        reference: the other one, as onecat.yaml names it. settings: flags with their values as text.
        evidence: a sentence, which each flag gets as its reason. file: where the measurements are.
    """
    schema = flag_schema(profile.engine.name, profile.engine.version, profile.image.patches)
    rows = []
    for name, text in settings:
        flag = schema.flag(name, text)
        rows.append({"arg": name, "value": text if flag is None else typed(flag, text), "why": evidence})
    document = {
        "name": tuned_name(profile.name),
        "extends": [reference],
        "summary": f"{profile.summary}, tuned by onecat bench sweep",
        "launch": {"args": rows},
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return f"# Measured by onecat bench sweep: {PurePath(file).name}\n{text}"


@dataclass(frozen=True)
class Suggestion:
    """What to make of a winner. name, profile: of a profile of one's own, and its text. notes: what is to be known."""

    name: str
    profile: str
    notes: tuple[str, ...]


def suggestion_for(request: UpRequest, settings: Settings, evidence: str, file: str) -> Suggestion:
    """What makes these flags last. request: of what serves. evidence, file: see `profile_override`."""
    deployment, name = request.deployment, tuned_name(request.profile.name)
    notes = [f"to use it: save it beside onecat.yaml, put profile: ./{name}.yaml there, then onecat up"]
    typed_flags = {each.arg.removeprefix("--") for each in request.plan.reasons if each.origin == "command line"}
    for flag, _ in settings:
        if flag in deployment.serve:
            notes.append(f"onecat.yaml sets {flag} itself, which wins over a profile: take it out of serve")
        elif flag in typed_flags:
            notes.append(f"{flag} was typed as --set of onecat up, which wins over a profile: leave it out there")
    text = profile_override(request.profile, deployment.profile, settings, evidence, file)
    return Suggestion(name, text, tuple(notes))


def tuned_name(name: str) -> str:
    """The name of the profile that is made of one."""
    plain = re.sub(r"-tuned$", "", name)
    return f"{plain[:_LONGEST_NAME]}-tuned"
