"""The engine's own statistics, which other commands read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check

FLAG = "disable-log-stats"
METRICS = "https://docs.vllm.ai/en/latest/usage/metrics/"
_IN_A_LOG = re.compile(r"disable_log_stats['\"]?\s*[:=]\s*True\b")
_ARGUMENTS_IN_A_LOG = "non-default args: "


@check(
    "serving.statistics",
    title="The server keeps its statistics",
    why="With --disable-log-stats the engine counts nothing: /metrics has no queue, no KV cache and no latencies, and "
    "canary, top and preflight, which read them, see a server that looks idle.",
    fix=("take --disable-log-stats out of the server's arguments, and start it again",),
    source=(METRICS, "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/engine/arg_utils.py"),
)
def serving_statistics(context: Context) -> Iterator[Verdict]:
    """The flags of onecat.yaml and of the profile, the command lines of systemd units that start vLLM, and the
    arguments that a server's log begins with."""
    stopped = [*_asked(context), *_started(context), *_logged(context)]
    yield from stopped
    if stopped:
        return
    units = context.facts.systemd_units or ()
    in_units = any("vllm" in command for unit in units for command in unit.values("ExecStart"))
    in_logs = any(_ARGUMENTS_IN_A_LOG in line for log in context.facts.server_logs for line in log.lines)
    if context.settings.serve is not None or in_units or in_logs:
        yield Verdict("pass", "No server is told to stop its statistics")
    else:
        yield Verdict("skip", "Not checked: the arguments of no server are known")


def _asked(context: Context) -> Iterator[Verdict]:
    asked = [(f"serve.{name} of onecat.yaml", name, value) for name, value in context.settings.serve or ()]
    if context.profile is not None:
        asked += [(f"profile {context.profile.name}", each.arg, each.value) for each in context.profile.launch.args]
    for where, name, value in asked:
        if _is_flag(name) and value is True:
            yield _stopped(where, f"{name}: true", (f"take the line `{name}: true` out", "onecat up"))


def _started(context: Context) -> Iterator[Verdict]:
    for unit in context.facts.systemd_units or ():
        for command in unit.values("ExecStart"):
            if any(_is_flag(word) for word in command.split() if word.startswith("--")):
                fix = (f"sudo systemctl edit --full {unit.name}", f"sudo systemctl restart {unit.name}")
                yield _stopped(unit.name, f"ExecStart={command[:200]}", fix)


def _logged(context: Context) -> Iterator[Verdict]:
    for log in context.facts.server_logs:
        line = next((each for each in log.lines if _IN_A_LOG.search(each)), None)
        if line is not None:
            yield _stopped(log.name, line.strip()[:200], (f"take --{FLAG} out of that server's command",))


def _is_flag(word: str) -> bool:
    return word.lstrip("-").replace("_", "-") == FLAG


def _stopped(subject: str, evidence: str, fix: tuple[str, ...]) -> Verdict:
    return Verdict("warn", "The server is told to keep no statistics", subject, (evidence,), fix=fix)
