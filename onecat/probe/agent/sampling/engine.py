"""The metrics of a server on this host, over HTTP."""

# socket.timeout: a TimeoutError only from Python 3.10 on.
# ruff: noqa: UP041
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import socket
import time

MOST_BYTES = 16 << 20


class Engine:
    """A server's /metrics.

    keep: names of metrics, or their beginnings: only their lines are told, for all are 60 KB. None: all are.
    """

    def __init__(self, url, keep):
        rest = url.split("://", 1)[-1]
        place, _, path = rest.partition("/")
        host, _, port = place.rpartition(":")
        self.host = host.strip("[]")
        self.port = int(port)
        self.place = place
        self.path = "/" + path
        self.keep = tuple(keep)

    def ask(self, deadline):
        """The text that the server answers, as {"text": ..., "seconds": ...}, or {"error": ...}."""
        start = time.monotonic()
        try:
            status, body = self.get(deadline)
        except socket.timeout:
            return {"error": f"no answer from {self.place} within {deadline - start:.1f} s"}
        except OSError as error:
            return {"error": f"{self.place}: {error.strerror or error}"}
        except ValueError as error:
            return {"error": f"{self.place}: {error}"}
        if status != 200:
            return {"error": f"{self.place}{self.path} answers {status}"}
        return {"text": self.kept(body.decode("utf-8", "replace")), "seconds": round(time.monotonic() - start, 4)}

    def get(self, deadline):
        """Status and body of the answer. Raises OSError, or ValueError when it is not HTTP."""
        request = f"GET {self.path} HTTP/1.0\r\nHost: {self.place}\r\nAccept: text/plain\r\n\r\n"
        connected = socket.create_connection((self.host, self.port), max(0.01, deadline - time.monotonic()))
        try:
            connected.sendall(request.encode("ascii"))
            answer = b""
            while True:
                # Each wait anew: a server that sends a byte now and then must not hold the tick up.
                connected.settimeout(max(0.01, deadline - time.monotonic()))
                data = connected.recv(1 << 18)
                if not data:
                    break
                answer += data
                if len(answer) > MOST_BYTES:
                    raise ValueError(f"it answers more than {MOST_BYTES >> 20} MB")
                if time.monotonic() > deadline:
                    raise socket.timeout()
        finally:
            connected.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        if not head.startswith(b"HTTP/") or len(words) < 2 or not words[1][:3].isdigit():
            raise ValueError("it does not answer in HTTP")
        if b"transfer-encoding: chunked" in head.lower():
            body = unchunked(body)
        return int(words[1][:3]), body

    def kept(self, text):
        if not self.keep:
            return text
        beginnings = self.keep + tuple("# TYPE " + name for name in self.keep)
        return "".join(line + "\n" for line in text.split("\n") if line.startswith(beginnings))


def unchunked(body):
    """The content of an answer in pieces."""
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        content += body[:length]
        body = body[length + 2 :]
    return content
