"""Lines that say where a server's run begins, ends and serves, and which engine it is."""

from __future__ import annotations

from onecat.observe.patterns import Pattern, compile_pattern

TRACEBACK = compile_pattern(r"^Traceback \(most recent call last\):")
# https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/entrypoints/serve/utils/api_utils.py and, for the first form,
# https://github.com/vllm-project/vllm/blob/v0.6.4/vllm/entrypoints/openai/api_server.py
START = compile_pattern(r"^(?:vLLM API server version |non-default args: )")
# Uvicorn and vLLM say it when the model is loaded.
READY = compile_pattern(r"^Application startup complete\.")
# onecat's supervisor ends a run so.
END = compile_pattern(r"^onecat: server (?:exited|killed|stopped)\b")
VERSION = compile_pattern(
    r"(?:vLLM API server version |LLM engine \(v|█.* version )v?(?P<version>\d{1,3}\.\d{1,4}[\w.+]{0,40})"
)

MARKS: dict[str, Pattern] = {
    "#traceback": TRACEBACK,
    "#start": START,
    "#ready": READY,
    "#end": END,
    "#version": VERSION,
}
"""By names that no signature has."""
