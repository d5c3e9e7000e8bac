"""A small real HTTP server with OpenAI's paths and a child process like vLLM's EngineCore; starts in milliseconds.

Tests of onecat's own steps use it where the engine does not matter. It takes the words after `vllm serve` that it
needs (model, --host, --port, --served-model-name, --max-num-seqs) and these, which make it misbehave in one way each:
  --fail-with TEXT      print TEXT and exit with status 1 at once
  --exit-code N         status for --fail-with
  --hang                print one line, then do nothing at all
  --memory MIB          take so much memory before serving
  --busy SECONDS        print nothing but use CPU for so long before serving
  --chatty SECONDS      print a line now and then, and use no CPU, for so long before serving
  --say-file FILE       print the lines of a file before anything else, as those of a real engine
  --answer MODE         words (default) | repeated | nan | no-logprobs | no-chat-template | error | endless (cut off at
                        max_tokens) | changing (another text each time) | empty
  --orphans             the child ignores SIGTERM and the parent's death
  --die-when-asked      exit with status 1 at the first question
  --errors-after N      answer 500 once N questions were answered
  --word-seconds S      time for each word of an answer (0 at once, but 0.05 in a stream)
A request with ignore_eos gets as many words as its max_tokens, as with vLLM; /metrics counts what is being answered.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ["one", " two", " three", " four", " five", " six", " seven", " eight"]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default="tiny")
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--fail-with")
    parser.add_argument("--exit-code", type=int, default=1)
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--busy", type=float, default=0)
    parser.add_argument("--chatty", type=float, default=0)
    parser.add_argument("--say-file")
    parser.add_argument("--answer", default="words")
    parser.add_argument("--errors-after", type=int)
    parser.add_argument("--orphans", action="store_true")
    parser.add_argument("--die-when-asked", action="store_true")
    parser.add_argument("--word-seconds", type=float)
    return parser.parse_known_args(arguments)[0]


class Server(ThreadingHTTPServer):
    """Counts the requests that it answers."""

    request_queue_size = 128
    running = 0
    begun = 0
    counting = threading.Lock()

    def count(self, change: int) -> None:
        with self.counting:
            self.running += change
            self.begun += change > 0


def start_engine(orphans: bool) -> int:
    pid = os.fork()
    if pid == 0:
        if orphans:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    return pid


def handler_for(options: argparse.Namespace) -> type[BaseHTTPRequestHandler]:
    key = os.environ.get("VLLM_API_KEY")
    at_once = None if options.max_num_seqs is None else threading.BoundedSemaphore(options.max_num_seqs)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server: Server

        def _send(self, status: int, text: str, kind: str = "application/json") -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _authorized(self) -> bool:
            if key and self.headers.get("Authorization") != f"Bearer {key}":
                self._send(401, '{"error": "Unauthorized"}')
                return False
            return True

        def do_GET(self) -> None:
            if self.path == "/health":
                self._send(200, "", "text/plain")
            elif self.path == "/metrics":
                self._send(200, f"vllm:num_requests_running {float(self.server.running)}\n", "text/plain")
            elif self.path == "/v1/headers":  # what has come here through a proxy
                if self._authorized():
                    self._send(200, json.dumps({name.lower(): value for name, value in self.headers.items()}))
            elif self.path == "/v1/models":
                if self._authorized():
                    self._send(200, json.dumps({"object": "list", "data": [{"id": options.served_model_name}]}))
            else:
                self._send(404, '{"detail": "Not Found"}')

        def do_POST(self) -> None:
            if options.die_when_asked:
                os._exit(1)
            self.server.count(1)
            try:
                with at_once or contextlib.nullcontext():
                    self._post()
            finally:
                self.server.count(-1)

        def _post(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self._authorized():
                return
            tired = options.errors_after is not None and self.server.begun > options.errors_after
            if options.answer == "error" or tired:
                self._send(500, '{"error": {"message": "Out of range float values are not JSON compliant: nan"}}')
            elif request.get("stream"):
                self._stream(request)
            elif self.path == "/v1/chat/completions" and options.answer == "no-chat-template":
                message = "As of transformers v4.44, default chat template is no longer allowed"
                self._send(400, json.dumps({"error": {"message": message, "code": 400}}))
            else:
                words = self._words(request)
                time.sleep((options.word_seconds or 0) * len(words))
                self._send(200, json.dumps(self._answer(self.path, words)))

        def _words(self, request: dict[str, object]) -> list[str]:
            cut_off = options.answer == "endless" or request.get("ignore_eos")
            most = request.get("max_completion_tokens") or request.get("max_tokens")
            count = int(str(most)) if cut_off else len(WORDS)
            first = self.server.begun if options.answer == "changing" else 0
            same = {"repeated": "!", "empty": ""}.get(options.answer)
            return [WORDS[(first + at) % len(WORDS)] if same is None else same for at in range(count)]

        def _answer(self, path: str, tokens: list[str]) -> dict[str, object]:
            value = float("nan") if options.answer == "nan" else -0.5
            if path == "/v1/completions":
                logprobs: object = {"tokens": tokens, "token_logprobs": [value] * len(tokens)}
                choice: dict[str, object] = {"text": "".join(tokens)}
            else:
                logprobs = {"content": [{"token": token, "logprob": value} for token in tokens]}
                choice = {"message": {"role": "assistant", "content": "".join(tokens)}}
            choice |= {"index": 0, "finish_reason": "stop" if len(tokens) == len(WORDS) else "length"}
            if options.answer != "no-logprobs":
                choice["logprobs"] = logprobs
            return {"object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": len(tokens)}}

        def _stream(self, request: dict[str, object]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            words = self._words(request)
            for word in words:
                self._event(json.dumps({"choices": [{"delta": {"content": word}}]}))
                time.sleep(0.05 if options.word_seconds is None else options.word_seconds)
            if request.get("stream_options"):
                self._event(json.dumps({"choices": [], "usage": {"completion_tokens": len(words)}}))
            self._event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")

        def _event(self, data: str) -> None:
            part = f"data: {data}\n\n".encode()
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()

    return Handler


def main() -> None:
    options = parse(sys.argv[1:])
    if options.fail_with:
        print(options.fail_with, flush=True)
        sys.exit(options.exit_code)
    if options.hang:
        print("INFO now nothing happens", flush=True)
        while True:
            time.sleep(60)
    if options.say_file:
        with open(options.say_file, encoding="utf-8") as lines:  # noqa: PTH123 - runs in small images too
            sys.stdout.writelines(lines)
    print(f"INFO Starting vLLM server on http://{options.host}:{options.port}", flush=True)
    taken = [b"x" * 2**20 for _ in range(options.memory)]
    print(f"INFO {len(taken)} MiB taken", flush=True) if taken else None
    until = time.monotonic() + options.busy
    while time.monotonic() < until:
        pass
    until = time.monotonic() + options.chatty
    while time.monotonic() < until:
        print(f"INFO Loading safetensors checkpoint shards: {until - time.monotonic():.0f} s left", flush=True)
        time.sleep(0.5)
    engine = start_engine(options.orphans)
    print(f"INFO engine pid={engine}", flush=True)
    server = Server((options.host, options.port), handler_for(options))

    def stop(*_: object) -> None:
        if not options.orphans:
            os.kill(engine, signal.SIGTERM)
        print("INFO shutdown triggered", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    print("INFO:     Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
