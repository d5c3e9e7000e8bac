"""A single request, and identical ones one after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass

from onecat.deploy.smoke import QUESTION, Answer, SmokeFailure, ask
from onecat.live.preflight.look import Unknown
from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject

ANSWER_SECONDS = 300.0
REPEATED_TOKENS = 32


@dataclass(frozen=True)
class SingleAnswer:
    """What came of one question. answer: None where none came, then `failure` says why. most_tokens: it was allowed."""

    question: str
    most_tokens: int
    answer: Answer | None
    failure: str = ""


@dataclass(frozen=True)
class Repeats:
    """Identical requests at temperature 0, one after the other. seconds: that each took.

    in_between: requests of others that the server answered or had at some moment meanwhile; None: not known.
    """

    question: str
    texts: tuple[str, ...]
    seconds: tuple[float, ...]
    failure: str = ""
    in_between: int | None = None


@observer(SingleAnswer, place=30)
def observe_answer(subject: Subject) -> SingleAnswer:
    """The deployment's first smoke prompt, else onecat's own question."""
    look = subject.look
    question = look.deployment.smoke[0].prompt if look.deployment.smoke else QUESTION
    tokens = look.limits.answer_tokens
    try:
        answer = ask(
            subject.server_url, look.plan.served_name, question, tokens, timeout=ANSWER_SECONDS, api_key=subject.api_key
        )
    except SmokeFailure as failure:
        return SingleAnswer(question, tokens, None, failure.reason)
    return SingleAnswer(question, tokens, answer)


@observer(Repeats, place=40)
def observe_repeats(subject: Subject) -> Repeats | Unknown:
    """One request that is not counted, since it fills the prefix cache, then as many as the limits say."""
    look = subject.look
    question = look.deployment.smoke[0].prompt if look.deployment.smoke else QUESTION
    texts: list[str] = []
    seconds: list[float] = []
    before = _finished(subject)
    for number in range(look.limits.repeats + 1):
        begin = time.monotonic()
        try:
            answer = ask(
                subject.server_url,
                look.plan.served_name,
                question,
                REPEATED_TOKENS,
                timeout=ANSWER_SECONDS,
                api_key=subject.api_key,
            )
        except SmokeFailure as failure:
            return Repeats(question, tuple(texts), tuple(seconds), failure.reason)
        if number:
            texts.append(answer.text)
            seconds.append(time.monotonic() - begin)
    after = _finished(subject)
    others = None if before is None or after is None else max(0, round(after - before) - look.limits.repeats - 1)
    return Repeats(question, tuple(texts), tuple(seconds), in_between=others)


def _finished(subject: Subject) -> float | None:
    """How many requests the server has finished since its start; None where it does not count them."""
    import re

    import httpx

    try:
        text = httpx.get(f"{subject.server_url}/metrics", timeout=5.0, trust_env=False).text
    except httpx.HTTPError:  # others are then told as not known
        return None
    counts = re.findall(r"^vllm:request_success_total(?:\{[^}]*\})? ([0-9.e+]+)$", text, re.MULTILINE)
    return sum(map(float, counts)) if counts else None
