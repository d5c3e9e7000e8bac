"""A proxy that makes a server slower by known times: before the first byte of an answer, and at each chunk of it.

It reads the answers as HTTP, so that a delay goes to each chunk as the server wrote it (a token of a stream), however
the kernel puts them together. Chunks follow each other at the given distance at least: where it is longer than the
server takes for a token, what a client sees is the delay alone, to the accuracy of a timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = 1 << 16


@dataclass(frozen=True)
class Delays:
    """Seconds. first_byte: before an answer begins; chunk: before each chunk of a chunked answer."""

    first_byte: float = 0.0
    chunk: float = 0.0

    def slower(self, share: float) -> Delays:
        """Longer by a share of themselves: 0.05 for five percent."""
        return Delays(self.first_byte * (1 + share), self.chunk * (1 + share))


@dataclass
class DelayingProxy:
    """Hands on connections to a server of this machine.

    delays: may be changed while it runs; answers that begin then have the new ones. port: on 127.0.0.1, where it
    listens.
    """

    target: tuple[str, int]
    delays: Delays
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            server_in, server_out = await asyncio.open_connection(*self.target, limit=_LINE)
            requests = asyncio.ensure_future(_copy(client_in, server_out))
            try:
                while await self._answer(server_in, client_out):
                    pass
            finally:
                requests.cancel()
                server_out.close()
        client_out.close()

    async def _answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> bool:
        """Hand one answer on; False when there is none any more."""
        try:
            head = await server.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as end:
            if end.partial:
                raise
            return False
        delays, loop = self.delays, asyncio.get_running_loop()
        due = loop.time() + delays.first_byte
        await _until(due)
        client.write(head)
        fields = dict(_fields(head))
        if fields.get(b"transfer-encoding", b"").lower() != b"chunked":
            client.write(await server.readexactly(int(fields.get(b"content-length", b"0"))))
            await client.drain()
            return True
        while True:
            line = await server.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            chunk = await server.readexactly(size + 2)
            if size:
                due = max(due + delays.chunk, loop.time())
                await _until(due)
            client.write(line + chunk)
            await client.drain()
            if not size:
                return True


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while content := await reader.read(_LINE):
            writer.write(content)
            await writer.drain()
        writer.write_eof()


def _fields(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            yield name.strip().lower(), value.strip()


async def _until(due: float) -> None:
    loop = asyncio.get_running_loop()
    left = due - loop.time()
    if left > 0:
        await asyncio.sleep(left)


@contextlib.contextmanager
def running(*proxies: DelayingProxy) -> Iterator[None]:
    """The proxies, all in one thread of this process: what slows one down slows the others down as well."""
    loop = asyncio.new_event_loop()
    listening = threading.Event()
    servers: list[asyncio.Server] = []

    async def listen() -> None:
        for proxy in proxies:
            server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0, limit=_LINE)
            proxy.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        listening.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.create_task(listen())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert listening.wait(10)
    try:
        yield
    finally:
        for server in servers:
            loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
