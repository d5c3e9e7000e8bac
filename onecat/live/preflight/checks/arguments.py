"""The server's arguments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.arguments import Arguments


@check(
    "preflight.arguments",
    title="The engine takes the arguments that it would be started with again",
    why="A server that runs was started once; after an update of its runtime or image the same words may be refused, "
    "and then a restart after a crash ends at once.",
    fix=("onecat plan checks them before a start", "correct the flag under serve in onecat.yaml"),
    source=("https://docs.vllm.ai/en/latest/cli/serve.html",),
    requires=needs(Arguments),
    group="server",
    place=1,
)
def arguments(look: Look) -> Iterator[Verdict]:
    """The engine's own parser, in the native runtime or in a container of the release's image, reads them without
    starting anything; and onecat's schema of that engine version."""
    seen = look.of(Arguments)
    count = sum(word.startswith("--") for word in seen.words)
    line = f"vllm serve {shlex.join(seen.words)}"
    fix = (f"correct the flag under serve in the onecat.yaml of {look.name}", "onecat up")
    if seen.refused is not None:
        yield Verdict("fail", f"{seen.asked} refuses them: {seen.refused}", evidence=(line,), fix=fix)
        return
    if seen.asked:
        yield Verdict("pass", f"{count} flags, taken by the parser of {seen.asked}", evidence=(line,))
        return
    if seen.schema is None:
        yield Verdict("skip", f"Not checked: {seen.why_not}; and onecat does not know this engine's flags")
    elif seen.unlike:
        yield Verdict("fail", f"They do not fit: {seen.unlike[0]}", evidence=(*seen.unlike[1:], line), fix=fix)
    else:
        told = f"{count} flags fit onecat's schema of {seen.schema} only"
        yield Verdict("pass", told, evidence=(f"the engine's parser was not asked: {seen.why_not}", line))
