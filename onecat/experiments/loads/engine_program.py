"""Sends load by the engine's own benchmark (vllm.benchmarks.serve): one process for as many blocks as are asked for.

Run by the engine's Python as a program of its own (`python -c TEXT`, so it uses nothing of onecat): on this machine, or
in a container of the engine's image. Importing the engine takes many seconds, so it is done once.

Standard input: a JSON document a line. Standard output: likewise; what the engine prints goes to standard error.

    -> {"cores": [2, 3]}                              first of all; null: it stays where it is
    <- {"ready": {"engine": "0.27.1", "python": "3.11.2", "pid": 7, "cores": [2, 3], "flags": ["--backend", ...]}}
    -> {"argv": ["--backend", "openai", ...], "key": "...", "timeout": 60.0, "stop_after": 30.0,
        "file": {"name": "prompts.jsonl", "content": "..."}}
       argv: for the engine's own parser; {file} in it is where `file` lies. key: the API key. timeout: of one request.
       stop_after: seconds from the first request after which no more are sent.
    <- {"block": {"started_at": 1764500000.0, "seconds": 12.5, "cut_short": false, "requests": [{...}]}}
    -> {"stop": true}                                 while a block runs: it is cut short, and what came so far is told
    <- {"failed": "ValueError: ...", "text": [...]}   when a block could not be sent

It ends when its standard input does. Requests that were not sent (after `stop_after` or a stop) are left out.
"""

import asyncio
import contextlib
import functools
import importlib
import json
import os
import platform
import queue
import random
import re
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

TIMED_OUT = "onecat: timed out"
CUT_OFF = "onecat: cut off"


class Block:
    """One call of the engine's benchmark, and what came of its requests.

    The engine has a table of functions that send one request each. While a block runs, the one in use is wrapped:
    the engine's own function sends, reads and times; around it there are a time limit and an end.
    """

    def __init__(self, timeout: float | None, stop_after: float | None) -> None:
        self._timeout = timeout
        self._stop_after = stop_after
        self._began: float | None = None
        self._started_at = 0.0
        self._sent: list[dict[str, Any]] = []
        self._main: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.cut_short = False

    async def run(self, module: Any, arguments: Any) -> dict[str, Any]:
        self._loop = asyncio.get_running_loop()
        table = module.ASYNC_REQUEST_FUNCS
        original = table[arguments.backend]
        output_type = importlib.import_module("vllm.benchmarks.lib.endpoint_request_func").RequestFuncOutput

        async def limited(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
            return await self._send(original, output_type, request_func_input, session, pbar)

        table[arguments.backend] = limited
        result: dict[str, Any] = {}
        try:
            self._main = asyncio.ensure_future(module.main_async(arguments))
            try:
                result = await self._main
            except asyncio.CancelledError:
                if not self.cut_short:
                    raise
        finally:
            table[arguments.backend] = original
        return self._answer(result)

    def stop(self) -> None:
        """Cut it short; from another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self.cut_short = True
        if self._main is not None:
            self._main.cancel()

    async def _send(self, original: Any, output_type: Any, asked: Any, session: Any, progress: Any) -> Any:
        now = time.perf_counter()
        if self._began is None:
            self._began, self._started_at = now, time.time()
        if self.cut_short or (self._stop_after is not None and now - self._began >= self._stop_after):
            return output_type(success=False, error=CUT_OFF)
        try:
            output = await asyncio.wait_for(original(asked, session, progress), self._timeout)
        except asyncio.TimeoutError:
            output = output_type(success=False, error=TIMED_OUT, start_time=now, prompt_len=asked.prompt_len)
        ended = time.perf_counter()
        number = re.search(r"(\d+)$", str(getattr(asked, "request_id", None) or ""))
        wanted = asked.output_len if getattr(asked, "ignore_eos", False) else None
        self._sent.append(
            {
                "index": int(number[1]) if number else len(self._sent),
                "start": (output.start_time or now) - self._began,
                "input_tokens": output.prompt_len or asked.prompt_len or 0,
                "output_tokens": output.output_tokens or 0,
                "wanted_tokens": wanted,
                "ttft": output.ttft if output.success or output.ttft else None,
                "inter_token": output.itl,
                "seconds": output.latency if output.success else ended - now,
                "success": output.success,
                "error": _last_line(output.error),
            }
        )
        return output

    def _answer(self, result: dict[str, Any]) -> dict[str, Any]:
        lengths = result.get("output_lens") or []
        ended = [each["start"] + each["seconds"] for each in self._sent]
        for each in self._sent:
            # A server that does not tell how many tokens it sent: the engine has counted them by its tokenizer.
            if each["success"] and not each["output_tokens"] and each["index"] < len(lengths):
                each["output_tokens"] = int(lengths[each["index"]] or 0)
        return {
            "started_at": self._started_at,
            "seconds": max(ended, default=0.0) - min((each["start"] for each in self._sent), default=0.0),
            "cut_short": self.cut_short,
            "requests": sorted(self._sent, key=lambda each: each["index"]),
        }


def _load_lines(dataset: Any) -> None:
    """Reads prompts in place of the engine, which does it by pandas: that is not there in every runtime, and it takes
    texts that look like numbers or dates for such. The order is the engine's."""
    lines = Path(dataset.dataset_path).read_text(encoding="utf-8").split("\n")
    dataset.data = [json.loads(line) for line in lines if line]
    random.seed(dataset.random_seed)
    random.shuffle(dataset.data)


def _last_line(text: str | None) -> str:
    """What an exception says, of a whole traceback."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


class Program:
    """The conversation. answers: where they are written, which the engine cannot reach."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._asked: queue.Queue[dict[str, Any]] = queue.Queue()
        self._block: Block | None = None

    def hold(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        cores = self._asked.get().get("cores")
        if cores:
            os.sched_setaffinity(0, cores)
        try:
            module, parser = self._engine()
        except Exception as error:  # noqa: BLE001 - whatever the engine raises is told as an answer
            self._fail(error)
            return
        self._say({"ready": self._about(parser)})
        while True:
            document = self._asked.get()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    self._say({"block": self._run(module, parser, document, Path(folder))})
            except (Exception, SystemExit) as error:  # noqa: BLE001 - likewise; argparse exits
                self._fail(error)
            finally:
                self._block = None

    def _listen(self) -> None:
        for line in sys.stdin:
            document = json.loads(line)
            if "stop" not in document:
                self._asked.put(document)
            elif (block := self._block) is not None:
                block.stop()
        os._exit(0)

    def _engine(self) -> tuple[Any, Any]:
        module = importlib.import_module("vllm.benchmarks.serve")
        # Each block asks for the same tokenizer, and large ones take seconds.
        module.get_tokenizer = functools.cache(module.get_tokenizer)  # type: ignore[attr-defined]
        importlib.import_module("vllm.benchmarks.datasets").CustomDataset.load_data = _load_lines
        try:
            made = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
        except ImportError:
            made = importlib.import_module("vllm.utils").FlexibleArgumentParser
        parser = made(prog="vllm bench serve", add_help=False)
        module.add_cli_args(parser)
        return module, parser

    def _about(self, parser: Any) -> dict[str, Any]:
        return {
            "engine": str(importlib.import_module("vllm").__version__),
            "python": platform.python_version(),
            "pid": os.getpid(),
            "cores": sorted(os.sched_getaffinity(0)),
            "flags": sorted(word for action in parser._actions for word in action.option_strings),
        }

    def _run(self, module: Any, parser: Any, document: dict[str, Any], folder: Path) -> dict[str, Any]:
        argv = list(document["argv"])
        file = document.get("file")
        if file is not None:
            path = folder / file["name"]
            path.write_text(file["content"], encoding="utf-8")
            argv = [word.replace("{file}", str(path)) for word in argv]
        os.environ.pop("OPENAI_API_KEY", None)
        if document.get("key"):
            os.environ["OPENAI_API_KEY"] = document["key"]
        self._block = Block(document.get("timeout"), document.get("stop_after"))
        return asyncio.run(self._block.run(module, parser.parse_args(argv)))

    def _say(self, document: dict[str, Any]) -> None:
        self._answers.write(json.dumps(document) + "\n")
        self._answers.flush()

    def _fail(self, error: BaseException) -> None:
        text = traceback.format_exception(type(error), error, error.__traceback__)
        self._say({"failed": f"{type(error).__name__}: {error}", "text": "".join(text).splitlines()[-30:]})


def main() -> None:
    # The load goes to the server itself, never through a proxy that the environment names, nor with keys of ~/.netrc.
    os.environ.update({"NO_PROXY": "*", "no_proxy": "*", "NETRC": os.devnull, "VLLM_NO_USAGE_STATS": "1"})
    # Whatever the engine prints must not stand between answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        with contextlib.suppress(BrokenPipeError):
            Program(answers).hold()


if __name__ == "__main__":
    main()
