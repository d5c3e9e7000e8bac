"""Which token a pull shows to its source: that of a file, else that of the environment where it belongs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onecat.pull.records import PullRequest
from onecat.pull.sources import HUB, Source, is_private, origin, shown
from onecat.pull.token import Token, environment_token, read_token


def token_for(
    request: PullRequest, source: Source, environment: Mapping[str, str], say: Callable[[str], None]
) -> Token | None:
    """The token of --token-file; without it that of HF_TOKEN, which is the hub's and goes to no other host.

    Raises OnecatError for a token that cannot be read, or is none.
    """
    if request.token_file is not None:
        return read_token(request.token_file)
    found = environment_token(environment)
    hub = request.endpoint or environment.get("HF_ENDPOINT") or HUB
    if found is None or (source.origin == origin(hub) and is_private(source.origin)):
        return found
    say(f"HF_TOKEN is not sent: it is for {shown(hub)}, by https")
    return None
