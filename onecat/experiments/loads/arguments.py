"""What is asked of the engine's benchmark for a block: the words behind `vllm bench serve`.

Options of vLLM 0.18 and 0.27.1 (vllm/benchmarks/serve.py and datasets), which are the same in what is used here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from onecat.errors import OnecatError
from onecat.experiments.records import Arrivals, Endpoint, Workload

FILE = "{file}"
"""Stands for the path of the workload's file, where the driver has put it."""

REQUEST_PREFIX = "onecat-"


def bench_argv(
    endpoint: Endpoint,
    workload: Workload,
    arrivals: Arrivals,
    *,
    tokenizer: str,
    tokenizer_words: Sequence[str] = (),
) -> list[str]:
    """The words. tokenizer: where its files are for the driver. tokenizer_words: how the server reads it."""
    backend, path = ("openai-chat", "/v1/chat/completions") if workload.chat else ("openai", "/v1/completions")
    argv = ["--backend", backend, "--base-url", endpoint.base_url, "--endpoint", path]
    argv += ["--model", endpoint.model, "--served-model-name", endpoint.model]
    argv += ["--tokenizer", tokenizer, *tokenizer_words]
    argv += _dataset(workload)
    argv += ["--num-prompts", str(workload.requests), "--seed", str(workload.seed)]
    argv += ["--request-id-prefix", REQUEST_PREFIX, "--disable-tqdm", "--ready-check-timeout-sec", "0"]
    # Its own default is the server's, which may be the checkpoint's: then two servers could be asked different things.
    argv += ["--temperature", "0", "--save-detailed"]
    if workload.ignore_eos:
        argv.append("--ignore-eos")
    if endpoint.server_name is not None:
        argv += ["--header", f"Host={endpoint.server_name}"]
    if not endpoint.verify:
        argv.append("--insecure")
    if arrivals.concurrency is not None:
        argv += ["--max-concurrency", str(arrivals.concurrency)]
    if arrivals.rate is not None:
        argv += ["--request-rate", f"{arrivals.rate:g}", "--burstiness", f"{arrivals.burstiness:g}"]
    return argv


def _dataset(workload: Workload) -> list[str]:
    output = None if workload.output_tokens is None else str(workload.output_tokens)
    if workload.source == "random":
        argv = ["--dataset-name", "random", "--random-input-len", str(workload.input_tokens)]
        # {} is no number of tokens: None has no meaning for random prompts, whose answers have no length of their own.
        argv += ["--random-output-len", output or "128"]
        return [*argv, "--random-range-ratio", f"{workload.range_ratio:g}"]
    if workload.source == "sharegpt":
        argv = ["--dataset-name", "sharegpt", "--dataset-path", FILE]
        return argv if output is None else [*argv, "--sharegpt-output-len", output]
    # -1: the file says. Prompts go as they are: a server applies its chat template itself, where it is asked to chat.
    argv = ["--dataset-name", "custom", "--dataset-path", FILE, "--skip-chat-template"]
    return [*argv, "--custom-output-len", output or "-1"]


def check_flags(argv: Sequence[str], known: Collection[str], engine: str) -> None:
    """Raises OnecatError when the engine's benchmark has not what is asked for."""
    missing = [word for word in argv if word.startswith("--") and word not in known]
    if missing:
        raise OnecatError(
            f"the benchmark of this engine ({engine}) has no {', '.join(missing)}",
            expected="vLLM 0.18 or later",
            next_steps=["send the load with another engine: --driver-profile, see onecat profile list"],
        )


def prompts_file(text: str, workload: Workload, where: str) -> tuple[str, str]:
    """The workload's file as the engine's benchmark reads it: name and content.

    Parameters:
        text: the file's. where: its path, for messages.

    Raises OnecatError when it is not as it should be.
    """
    if workload.source == "sharegpt":
        _check_sharegpt(text, where)
        return "prompts.json", text
    rows = _rows(text, where)
    if workload.output_tokens is None:
        without = next((number for number, row in enumerate(rows, 1) if "output_tokens" not in row), None)
        if without is not None:
            raise OnecatError(
                f"prompt {without} does not say how many tokens its answer shall have",
                expected='"output_tokens": N in each line, or --output-tokens for all of them',
                where=where,
                next_steps=["add: --output-tokens 128"],
            )
    return "prompts.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _rows(text: str, where: str) -> list[dict[str, object]]:
    # Not splitlines: JSON texts may hold other characters that it takes for the end of a line.
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise OnecatError("there is no prompt in it", where=where, expected="a prompt a line, or JSON lines")
    if not all(line.lstrip().startswith("{") for _, line in lines):
        return [{"prompt": line} for _, line in lines]
    rows = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise OnecatError(f"this line is no JSON: {error}", where=f"{where}:{number}") from error
        if not isinstance(row.get("prompt"), str):
            raise OnecatError(
                "this line has no prompt", expected='{"prompt": "...", "output_tokens": N}', where=f"{where}:{number}"
            )
        rows.append({key: row[key] for key in ("prompt", "output_tokens") if key in row})
    return rows


def _check_sharegpt(text: str, where: str) -> None:
    try:
        document = json.loads(text)
        usable = [each for each in document if len(each.get("conversations", ())) >= 2]
    except (ValueError, TypeError, AttributeError) as error:
        raise _no_sharegpt(where, str(error)) from error
    if not usable:
        raise _no_sharegpt(where, "no conversation has two turns")


def _no_sharegpt(where: str, why: str) -> OnecatError:
    return OnecatError(
        f"this is no file of conversations: {why}",
        expected='[{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}, ...]',
        where=where,
        next_steps=["prompts in lines: --prompts FILE"],
    )
