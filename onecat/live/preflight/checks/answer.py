"""A single request."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.deploy.smoke import judge
from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.answers import SingleAnswer

_QUOTED = 60


@check(
    "preflight.answer",
    title="A single request is answered to its end",
    why="finish_reason `stop` says that the model ended its answer itself; `length` that it was cut off, as by a model "
    "without its end-of-text token or chat template, which then talks on until the limit in every answer.",
    fix=("onecat logs NAME", "check the chat template and eos_token_id: onecat model inspect DIRECTORY"),
    source=("https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",),
    requires=needs(SingleAnswer),
    group="answers",
    place=1,
)
def answer(look: Look) -> Iterator[Verdict]:
    """The deployment's first smoke prompt, else a question of onecat's, at temperature 0: that there is an answer, that
    it ended by itself within preflight.answer_tokens, that its log-probabilities are finite numbers."""
    seen = look.of(SingleAnswer)
    found = seen.answer
    logs = f"onecat logs {look.name}{look.host_option}"
    if found is None:
        yield Verdict("fail", f"No answer: {seen.failure}", evidence=(f"asked: {seen.question}",), fix=(logs,))
        return
    quoted = found.text if len(found.text) <= _QUOTED else found.text[:_QUOTED] + "..."
    evidence = (f"asked: {seen.question!r}", f"answered: {quoted!r}")
    problem = judge(found, look.deployment.start.allow_repeated_token)
    told = f"{len(found.tokens)} tokens in {found.seconds:.2f} s"
    if problem is not None:
        yield Verdict("fail", problem[0].upper() + problem[1:], evidence=evidence, fix=(logs,))
    elif not found.text.strip():
        yield Verdict("fail", "The answer is empty", evidence=evidence, fix=(logs,))
    elif found.finish_reason == "length":
        yield Verdict(
            "warn",
            f"The answer was cut off after {told}: finish_reason length",
            evidence=(*evidence, f"allowed: {seen.most_tokens} tokens"),
            fix=(
                "let it have more: preflight.answer_tokens in onecat.yaml",
                "if it never ends: check eos_token_id and the chat template: onecat model inspect "
                + look.plan.model_directory,
            ),
        )
    elif found.finish_reason != "stop":
        yield Verdict("fail", f"finish_reason is {found.finish_reason!r}, not stop", evidence=evidence, fix=(logs,))
    else:
        finite = "log-probabilities: all finite"
        yield Verdict("pass", f"finish_reason stop; {told}", evidence=(*evidence, finite))
