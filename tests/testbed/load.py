"""Clients that ask an OpenAI-style server without pause, and know of every request what became of it.

Half of them stream, and half keep their connection: four kinds in all. An answer counts only when it is whole: as many
tokens as were asked for, and for a stream the last event `[DONE]`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_ANSWER_SECONDS = 60.0


class NoAnswerYet(Exception):
    """A kept connection was closed before any byte of the answer: every client library asks again on a new one."""


@dataclass
class Tally:
    """What became of the requests. on_kept: asked on a connection that had been used before.

    asked_again: kept connections that nginx had closed before any byte of the answer, asked again on a fresh one.

    refused: well-formed 503s, with the seconds since the load began; lost: everything else that is no whole answer.
    """

    answered: int = 0
    streams: int = 0
    on_kept: int = 0
    asked_again: int = 0
    refused: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Load:
    """Clients in a thread of their own: `with Load(endpoint) as load: ...; load.tally`.

    Parameters:
        endpoint: address without /v1. clients: how many ask at the same time. tokens: least and most of an answer.
        pause: seconds that each client waits between an answer and its next question.
    """

    def __init__(
        self,
        endpoint: str,
        clients: int = 50,
        tokens: tuple[int, int] = (4, 24),
        model: str = "tiny",
        pause: float = 0.0,
    ) -> None:
        parts = urlsplit(endpoint)
        assert parts.hostname is not None and parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._clients, self._tokens, self._model, self._pause = clients, tokens, model, pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.began = 0.0
        self.tally = Tally()

    def __enter__(self) -> Load:
        self.began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask nothing new, and wait for the answers that are on their way."""
        self._stopping.set()
        self._thread.join()

    def wait_for(self, answers: int, seconds: float = 60) -> None:
        """Until so many requests have been answered in all."""
        limit = time.monotonic() + seconds
        while self.tally.answered < answers:
            assert time.monotonic() < limit, self.tally
            time.sleep(0.05)

    async def _run(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(self._clients)))

    async def _client(self, number: int) -> None:
        stream, kept = number % 2 == 0, number // 2 % 2 == 0
        connection: Connection | None = None
        count = 0
        while not self._stopping.is_set():
            count += 1
            least, most = self._tokens
            tokens = least + (number * 7 + count * 5) % (most - least + 1)
            try:
                connection = await self._ask(connection, kept, stream, tokens)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError, KeyError) as error:
                self.tally.lost.append(f"{self._since():.2f} s: client {number}: {type(error).__name__}: {error}")
                connection = None
            await asyncio.sleep(self._pause)
        if connection is not None:
            connection.close()

    async def _ask(self, connection: Connection | None, kept: bool, stream: bool, tokens: int) -> Connection | None:
        """Ask once; returns the connection to ask the next time, or None."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": "count"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": stream,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        }
        fresh = connection is None
        self.tally.on_kept += not fresh
        connection = connection or await Connection.open(self._address)
        try:
            answer = await asyncio.wait_for(connection.ask(body, kept), _ANSWER_SECONDS)
        except NoAnswerYet as closed:
            connection.close()
            if fresh:
                raise ValueError("a fresh connection was closed before any byte of the answer") from closed
            self.tally.asked_again += 1
            connection = await Connection.open(self._address)
            answer = await asyncio.wait_for(connection.ask(body, kept), _ANSWER_SECONDS)
        self._count(answer, stream, tokens)
        if kept and answer.headers.get("connection") != "close":
            return connection
        connection.close()
        return None

    def _count(self, answer: Answer, stream: bool, tokens: int) -> None:
        if answer.status == 503:
            error = json.loads(answer.body)["error"]
            assert_form = {"message", "type", "code"} <= set(error) and int(answer.headers["retry-after"]) > 0
            if not assert_form or "application/json" not in answer.headers["content-type"]:
                raise ValueError(f"a 503 of another form: {answer}")
            self.tally.refused.append(self._since())
            return
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {answer.body[:200]!r}")
        counted = _streamed_tokens(answer.body) if stream else json.loads(answer.body)["usage"]["completion_tokens"]
        if counted != tokens:
            raise ValueError(f"{counted} tokens of {tokens}: {answer.body[-200:]!r}")
        self.tally.answered += 1
        self.tally.streams += stream

    def _since(self) -> float:
        return time.monotonic() - self.began


def _streamed_tokens(body: bytes) -> int:
    """How many tokens a whole stream holds. Raises ValueError when it was cut off."""
    events = [line.removeprefix("data: ") for line in body.decode().split("\n") if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        raise ValueError(f"a stream that was cut off after {len(events)} events")
    usages = [found for event in events[:-1] if (found := json.loads(event).get("usage"))]
    return int(usages[-1]["completion_tokens"])


class Connection:
    """One HTTP/1.1 connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Connection:
        return cls(*await asyncio.open_connection(*address))

    def close(self) -> None:
        self._writer.close()

    async def ask(self, body: dict[str, Any], kept: bool) -> Answer:
        """Send one request and read its whole answer."""
        content = json.dumps(body).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: onecat\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: {'keep-alive' if kept else 'close'}\r\n\r\n"
        )
        try:
            self._writer.write(head.encode() + content)
            await self._writer.drain()
            first = await self._reader.readline()
        except ConnectionError as error:
            raise NoAnswerYet from error
        if not first:
            raise NoAnswerYet
        status = int(first.split()[1])
        headers = {}
        while (line := await self._line()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Answer(status, headers, await self._body(headers))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(headers["content-length"]))
        parts = []
        while (size := int(await self._line(), 16)) > 0:
            parts.append(await self._reader.readexactly(size))
            await self._line()
        await self._line()
        return b"".join(parts)

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ValueError("an answer that was cut off")
        return line[:-2].decode()
