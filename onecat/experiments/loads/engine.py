"""Load by the engine's own benchmark, in the engine's own runtime: `vllm bench serve`, started once for many blocks."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.loads import CutShort, engine_program
from onecat.experiments.loads.answers import block_of
from onecat.experiments.loads.arguments import bench_argv, check_flags, prompts_file
from onecat.experiments.loads.cores import Pinning
from onecat.experiments.records import Arrivals, Block, Endpoint, Workload
from onecat.hosts import Conversation

START_SECONDS = 600.0
"""Importing the engine takes 5 s to a minute on a quick disk, minutes from one over the network."""
REQUEST_SECONDS = 600.0
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 1.0


def program_words(python: str) -> list[str]:
    """The command line of the program that sends the load. python: the runtime's interpreter."""
    return [python, "-I", "-c", Path(engine_program.__file__).read_text(encoding="utf-8")]


class EngineLoadDriver:
    """See LoadDriver.

    Parameters:
        start: starts the program (`program_words`).
        where: the machine it runs on, for people; runtime: what it runs in.
        pinning: which cores it stays on.
        tokenizer_words: options by which the server reads its tokenizer, as --trust-remote-code.
        request_seconds: after so many a request counts as timed out; may be changed between blocks.
    """

    def __init__(
        self,
        start: Callable[[], Conversation],
        *,
        where: str,
        runtime: str,
        pinning: Pinning,
        tokenizer_words: Sequence[str] = (),
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._where = where
        self._runtime = runtime
        self._pinning = pinning
        self._tokenizer_words = tuple(tokenizer_words)
        self.request_seconds = request_seconds
        self._files: dict[str, str] = {}
        began = time.monotonic()
        self._conversation = start()
        try:
            self._send({"cores": pinning.cores})
            answer = self._answer(time.monotonic() + START_SECONDS)
            if "ready" not in answer:
                raise self._failed(answer, "the engine's benchmark cannot be loaded")
        except BaseException:
            self._conversation.close()
            raise
        self._about = answer["ready"]
        self.start_seconds = time.monotonic() - began

    @property
    def pid(self) -> int:
        """The program's process id, as it sees it: in a container that is a number of the container's own."""
        return int(self._about["pid"])

    def run(
        self,
        endpoint: Endpoint,
        workload: Workload,
        arrivals: Arrivals,
        *,
        number: int,
        arm: str = "",
        warm_up: bool = False,
        stop_after: float | None = None,
    ) -> Block:
        """See LoadDriver.run."""
        if endpoint.tokenizer is None:
            raise OnecatError(
                "nothing tells how many tokens a text has",
                expected="the checkpoint's directory, for its tokenizer",
                where=endpoint.base_url,
                next_steps=["name it: --tokenizer DIRECTORY"],
            )
        argv = bench_argv(
            endpoint, workload, arrivals, tokenizer=endpoint.tokenizer, tokenizer_words=self._tokenizer_words
        )
        check_flags(argv, self._about["flags"], f"vLLM {self._about['engine']}")
        request: dict[str, Any] = {
            "argv": argv,
            "key": key_of(endpoint),
            "timeout": self.request_seconds,
            "stop_after": stop_after,
        }
        if workload.path is not None:
            name, content = prompts_file(self._text(workload), workload, workload.path)
            request["file"] = {"name": name, "content": content}

        def made(answer: dict[str, Any]) -> Block:
            told = answer["block"]
            return block_of(told, endpoint, workload, arrivals, number=number, arm=arm, warm_up=warm_up)

        self._send(request)
        try:
            answer = self._answer(None)
        except KeyboardInterrupt as interrupt:
            cut = self._cut_short()
            if cut is None:
                # It ends with its input: nothing may be sent while what served before is put back.
                self._conversation.close_input()
            block = None if cut is None else made(cut)
            raise CutShort(block if block is not None and block.requests else None) from interrupt
        if "block" not in answer:
            raise self._failed(answer, "the engine's benchmark could not send the load")
        return made(answer)

    def describe(self) -> dict[str, Any]:
        """See LoadDriver.describe."""
        return {
            "name": "vllm bench serve",
            "version": self._about["engine"],
            "python": self._about["python"],
            "where": self._where,
            "runtime": self._runtime,
            "cores": self._about["cores"],
            "pinned": self._pinning.cores is not None,
            "pinning": self._pinning.why,
        }

    def close(self) -> None:
        """See LoadDriver.close."""
        self._conversation.close()

    def __enter__(self) -> EngineLoadDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _text(self, workload: Workload) -> str:
        """The workload's file, which must be the same for all blocks: one with another digest is refused."""
        path = str(workload.path)
        if path not in self._files:
            self._files[path] = read_prompts(path)
        if workload.digest not in (None, digest_of(self._files[path])):
            raise OnecatError(
                "the file of prompts has changed since the experiment began",
                expected=f"SHA-256 {workload.digest}",
                where=path,
                next_steps=["restore it, or begin a new experiment"],
            )
        return self._files[path]

    def _send(self, document: dict[str, Any]) -> None:
        try:
            self._conversation.send(json.dumps(document).encode() + b"\n")
        except OnecatError as error:
            raise self._ended() from error

    def _answer(self, deadline: float | None) -> dict[str, Any]:
        while True:
            try:
                line = self._conversation.line(_LOOK_SECONDS)
            except TimeoutError:
                if deadline is not None and time.monotonic() > deadline:
                    raise OnecatError(
                        f"the engine's benchmark was not loaded within {START_SECONDS:g} s",
                        where=self._where,
                        details=self._said(),
                        code=ExitCode.UNREACHABLE,
                    ) from None
                continue
            if line is None:
                raise self._ended()
            return dict(json.loads(line))

    def _cut_short(self) -> dict[str, Any] | None:
        """Stop the block that runs. Returns the answer that there is then."""
        try:
            self._send({"stop": True})
            answer = self._answer(time.monotonic() + _STOP_SECONDS)
        except (OnecatError, KeyboardInterrupt):
            return None
        return answer if "block" in answer else None

    def _said(self) -> list[str]:
        return self._conversation.errors.decode(errors="replace").splitlines()[-8:]

    def _ended(self) -> OnecatError:
        return OnecatError(
            "the program that sends the load has ended",
            expected=f"{self._runtime} that goes on until onecat ends it",
            where=self._where,
            details=self._said(),
            next_steps=["is memory short there? see: free -m; dmesg | tail"],
            code=ExitCode.UNREACHABLE,
        )

    def _failed(self, answer: dict[str, Any], found: str) -> OnecatError:
        why = str(answer.get("failed", "it gave no answer"))
        # What argparse has against its words stands on standard error alone.
        details = self._said()[-3:] if why.startswith("SystemExit") else answer.get("text", [])[-3:]
        return OnecatError(f"{found}: {why}", where=self._where, details=details, code=ExitCode.NEEDS_PERSON)


def key_of(endpoint: Endpoint) -> str | None:
    """The API key of an endpoint. Raises OnecatError when its file cannot be read or is empty."""
    if endpoint.key is not None:
        return endpoint.key.reveal()
    if endpoint.key_file is None:
        return None
    try:
        key = Path(endpoint.key_file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OnecatError(
            f"the API key cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}",
            where=endpoint.key_file,
        ) from error
    if not key:
        raise OnecatError("the file of the API key is empty", where=endpoint.key_file)
    return key


def read_prompts(path: str) -> str:
    """The text of a file of prompts. Raises OnecatError."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise OnecatError(f"the file of prompts cannot be read: {why}", where=path) from error


def digest_of(text: str) -> str:
    """SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()
