"""One real question after start: a server that is healthy and answers nonsense has not started.

`judge_*` are pure functions of the answer's JSON; `run_smoke_test` asks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onecat.config.schema import SmokePrompt

QUESTION = "Count from one to ten in words."
QUESTION_TOKENS = 16
# Fewer tokens than this say nothing about repetition ("no, no, no").
LEAST_TOKENS_FOR_REPETITION = 4
# vLLM writes -inf as this number, because JSON has no infinity (vllm/entrypoints/openai, chat completion logprobs).
VLLM_MINUS_INFINITY = -9999.0


@dataclass(frozen=True)
class Answer:
    """What a completion came to.

    logprobs: None where the server gave none for a token. finish_reason: why it ended, as stop or length.
    """

    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    seconds: float = 0.0
    finish_reason: str | None = None


class SmokeFailure(Exception):
    """The answer is not acceptable. reason: one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def chat_answer(document: Mapping[str, Any]) -> Answer:
    """The answer in a chat completion (POST /v1/chat/completions with logprobs)."""
    choice = document["choices"][0]
    message = choice.get("message") or {}
    text = "".join(message.get(part) or "" for part in ("reasoning_content", "reasoning", "content"))
    content = (choice.get("logprobs") or {}).get("content") or ()
    return Answer(
        text,
        tuple(item["token"] for item in content),
        tuple(item.get("logprob") for item in content),
        finish_reason=choice.get("finish_reason"),
    )


def text_answer(document: Mapping[str, Any]) -> Answer:
    """The answer in a text completion (POST /v1/completions with logprobs)."""
    choice = document["choices"][0]
    logprobs = choice.get("logprobs") or {}
    return Answer(
        choice.get("text") or "",
        tuple(logprobs.get("tokens") or ()),
        tuple(logprobs.get("token_logprobs") or ()),
        finish_reason=choice.get("finish_reason"),
    )


def judge(answer: Answer, allow_repeated_token: bool) -> str | None:
    """Why the answer is a failed start, or None when it is fine."""
    if not answer.logprobs or any(value is None for value in answer.logprobs):
        return "the answer came without log-probabilities, so nothing can be said about its numbers"
    for token, value in zip(answer.tokens, answer.logprobs, strict=False):
        assert value is not None
        if math.isnan(value) or math.isinf(value) or value <= VLLM_MINUS_INFINITY:
            return f"the log-probability of token {token!r} is {value}: the model computes NaN or infinite numbers"
    if not allow_repeated_token and len(answer.tokens) >= LEAST_TOKENS_FOR_REPETITION and len(set(answer.tokens)) == 1:
        return f"the answer is one token {len(answer.tokens)} times: {answer.tokens[0]!r}"
    return None


def judge_expected(answer: Answer, prompt: SmokePrompt) -> str | None:
    """Why the answer to a configured prompt is a failed start, or None when it is fine."""
    if prompt.expect and not any(part in answer.text for part in prompt.expect):
        wanted = ", ".join(repr(part) for part in prompt.expect)
        return f"the answer to {prompt.prompt!r} is {answer.text!r} and holds none of {wanted}"
    return None


def run_smoke_test(
    url: str,
    model: str,
    prompts: Sequence[SmokePrompt],
    allow_repeated_token: bool,
    api_key: str | None,
    timeout: float,
) -> Answer:
    """Ask the server at `url` one question, then the configured prompts; returns the answer to the first.

    Parameters:
        model: name the server must list under /v1/models.
        timeout: longest wait in seconds for one answer.

    Raises SmokeFailure.
    """
    with _client(url, api_key, timeout) as client, _told():
        served = [entry["id"] for entry in _document(client.get("/v1/models"))["data"]]
        if model not in served:
            raise SmokeFailure(f"the server serves {', '.join(served)}, not {model}")
        first = _ask(client, model, QUESTION, QUESTION_TOKENS)
        problem = judge(first, allow_repeated_token)
        for prompt in prompts:
            if problem is not None:
                break
            problem = judge_expected(_ask(client, model, prompt.prompt, prompt.max_tokens), prompt)
    if problem is not None:
        raise SmokeFailure(problem)
    return first


def ask(url: str, model: str, question: str, max_tokens: int, timeout: float, api_key: str | None = None) -> Answer:
    """Ask the server at `url`, or the proxy before it, one question. Raises SmokeFailure when there is no answer."""
    with _client(url, api_key, timeout) as client, _told():
        return _ask(client, model, question, max_tokens)


def _client(url: str, api_key: str | None, timeout: float) -> Any:
    import httpx

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Failed requests and answers of another form as SmokeFailure."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise SmokeFailure(f"the request failed: {error or type(error).__name__}") from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SmokeFailure(f"the answer is not in OpenAI's form: {error!r}") from error


def _ask(client: Any, model: str, question: str, max_tokens: int) -> Answer:
    """A chat completion; for a model without a chat template a text completion."""
    from dataclasses import replace

    common = {"model": model, "max_tokens": max_tokens, "temperature": 0}
    messages = [{"role": "user", "content": question}]
    response = client.post("/v1/chat/completions", json={**common, "messages": messages, "logprobs": True})
    if response.status_code == 400 and "chat template" in response.text:
        response = client.post("/v1/completions", json={**common, "prompt": question, "logprobs": 1})
        answer = text_answer(_document(response))
    else:
        answer = chat_answer(_document(response))
    return replace(answer, seconds=response.elapsed.total_seconds())


def _document(response: Any) -> dict[str, Any]:
    text = response.text
    if response.status_code != 200:
        if "not JSON compliant" in text:
            raise SmokeFailure("the model computes NaN or infinite numbers (the server could not write them as JSON)")
        raise SmokeFailure(f"{response.request.url.path} answered {response.status_code}: {text.strip()[:300]}")
    document = response.json()
    if not isinstance(document, dict):
        raise SmokeFailure(f"{response.request.url.path} answered no JSON object: {text.strip()[:300]}")
    return document
