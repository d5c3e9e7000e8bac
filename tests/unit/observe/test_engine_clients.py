"""What clients write is no fault of the server, wherever vLLM 0.27.1 puts it in its log."""

from __future__ import annotations

import pytest

from onecat.observe import diagnose

FAULTS = [
    "CUDA out of memory",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "vllm: error: unrecognized arguments: --dry-run",
    "Illegal instruction (core dumped)",
    "[Errno 98] Address already in use",
]
HEAD = "(APIServer pid=7) ERROR 11-29 17:00:00 "
# Each as the place named in onecat/observe/lines.py formats it.
FORMS = {
    "a model's name": HEAD
    + "[serving.py:208] Error with model error=ErrorInfo(message='The model `{}` does not exist.', "
    "type='NotFoundError', param='model', code=404)",
    "a request's name": HEAD + "[server_utils.py:500] RequestValidationError caught. Request id: {}",
    "another one": HEAD + "[server_utils.py:366] Engine Exception caught. Request id: {}",
    "a value": "  Input should be a valid dictionary [type=dict_type, input_value='{}', input_type=str]",
    "all values": "fastapi.exceptions.RequestValidationError: 1 validation error: {{'type': 'missing', 'input': '{}'}}",
    "a bad request": HEAD.replace("ERROR", "INFO") + "[async_llm.py:627] Request chatcmpl-1 failed (bad request): {}.",
    "an answer": HEAD.replace("ERROR", "INFO") + "[server_utils.py:305] response_body={{{}}}",
    "a tool call": HEAD.replace("ERROR", "WARNING")
    + "[olmo3_tool_parser.py:100] Regex timeout occurred when matching user input: {}",
    "a prompt": HEAD.replace("ERROR", "DEBUG") + "[request_logger.py:54] Request chatcmpl-1 details: prompt: '{}'",
    "a path": '(APIServer pid=7) INFO:     10.0.0.1:4242 - "GET /v1/{} HTTP/1.1" 404 Not Found',
}

CUT_OFF = {"a model's name", "a value"}
"""Those that the engine or pydantic cuts off where they are long."""


@pytest.mark.parametrize("words", FAULTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_clients_words_are_no_cause(form: str, words: str) -> None:
    assert diagnose([words]), "it would be one by itself"
    found = diagnose([FORMS[form].format(words)], every=True)
    assert [each.signature for each in found if not each.signature.startswith("request.")] == []


@pytest.mark.parametrize("form", sorted(FORMS.keys() - CUT_OFF))
def test_nor_are_they_after_long_ones(form: str) -> None:
    found = diagnose([FORMS[form].format("x" * 60_000 + " " + FAULTS[0])], every=True)
    assert [each.signature for each in found if not each.signature.startswith("request.")] == []


def test_what_the_server_says_itself_is_a_cause_still() -> None:
    line = (
        HEAD
        + "[serving.py:208] Error with model error=ErrorInfo(message='The model `gpt-4o` does not exist.', code=404)"
    )
    (found,) = diagnose([line], every=True)
    assert "gpt-4o" in found.cause
    assert [each.signature for each in diagnose([HEAD + "[core.py:1] " + FAULTS[1]])] != []
