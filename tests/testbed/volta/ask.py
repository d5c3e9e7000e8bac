"""Answers all questions for one device: `python ask.py DOCUMENT`, the answers as JSON on standard output.

DOCUMENT (JSON): capability ([7, 0]), flash_attention (whether its extensions load), plugin (an entry point as
`vllm_volta.plugin:register` that is called as vLLM calls its general plugins, or null).
Answers: {"group/subject": {"answer": ...} or {"refused": "ValueError: ..."}}, and the log under "log".
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from typing import Any

import fake_cuda  # type: ignore[import-not-found]
import questions  # type: ignore[import-not-found]


class Log(logging.Handler):
    """Keeps what vLLM says, to tell why a kernel was chosen."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> None:
    """Write the answers."""
    request = json.loads(sys.argv[1])
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    fake_cuda.install(fake_cuda.DEVICES[tuple(request["capability"])], flash_attention=request["flash_attention"])
    log = Log()
    logging.getLogger("vllm").addHandler(log)
    if request["plugin"]:
        module, _, function = request["plugin"].partition(":")
        getattr(importlib.import_module(module), function)()
    from vllm.config import VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig()):
        answers = {name: answer(question) for name, question in questions.all_questions().items()}
    json.dump({"answers": answers, "log": log.lines}, output)


def answer(question: Any) -> dict[str, Any]:
    """One answer: vLLM refuses with exceptions of many types."""
    try:
        return {"answer": question()}
    except Exception as error:  # noqa: BLE001
        return {"refused": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
