"""Greedy text of several engines, one after the other: `python generate.py JOB RESULT`, both JSON files.

JOB: {"engines": {name: arguments of vllm.LLM}, "held_out": a text file, "pieces": [[first character, characters], ...],
the prompts, "tokens": how many are generated for each}.

RESULT, written anew after each engine: per name {"alone": [...], "together": [...], "again": [...], "pieces",
"prompt_tokens", "cached_tokens", "speculated", "seconds": {...}} or {"failed"}. "alone": each prompt by itself, so that
one token is computed at a time; "together": all at once, with nothing of them in the cache; "again": the same with what
"together" left in the cache (only with prefix caching; "cached_tokens" counts those that were not computed anew). Each
is a list, one entry a prompt, of {"tokens", "logprobs" (of the tokens), "margins" (to the second best token)}.
"speculated": how many tokens were drafted and accepted, [0, 0] without speculative decoding.

This process itself never touches a GPU, so that engines can be forked from it, which saves them the imports.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

CLEAR_PIECES = (
    (24382, 12),
    (8361, 40),
    (18758, 90),
    (13993, 150),
    (21614, 250),
    (6083, 400),
    (5763, 700),
    (5892, 1500),
)
"""Where the prompts begin in the small model's held_out.txt, and their characters: 3 to 500 tokens. Of 40 random lines
for each length, these are among the clearest: in the text that vLLM's CPU engine makes of the small model's plain copy,
the second best token is never nearer than 0.05 (log probability) in 96 tokens."""
SHORT_PIECES = CLEAR_PIECES[:6]
LONG_PIECES = ((1200, 2400), (0, 4500), (9000, 9000), (0, 24000))
"""780 to 8,014 tokens: 4,500 characters are more than 1,024 tokens, so that a sliding window of 1,024 has left the
beginning behind; the longest begins with the same 1,529 tokens, and both need more than a step of 2,048 tokens."""


def main() -> None:
    """Run all engines; the exit code is 1 when one of them failed."""
    job = json.loads(Path(sys.argv[1]).read_text())
    result = Path(sys.argv[2])
    import vllm

    prompts = make_prompts(Path(job["held_out"]).read_text(), job["pieces"])
    found: dict[str, Any] = {}
    for name, arguments in job["engines"].items():
        print(f"=== {name}", flush=True)
        try:
            found[name] = run(vllm, arguments, prompts, job["tokens"]) | {"pieces": job["pieces"]}
        except Exception:  # noqa: BLE001 - the next engine shall still run; the failure is in the result
            found[name] = {"failed": traceback.format_exc()}
            traceback.print_exc()
        result.write_text(json.dumps(found))
        gc.collect()
    sys.exit(any("failed" in answer for answer in found.values()))


def make_prompts(text: str, pieces: Iterable[Sequence[int]]) -> list[str]:
    """The prompts, cut out of the text."""
    return [text[start : start + length].rstrip() for start, length in pieces]


def run(vllm: Any, arguments: dict[str, Any], prompts: list[str], tokens: int) -> dict[str, Any]:
    """Start one engine, let it answer, end it."""
    seconds = {}
    started = time.monotonic()
    engine = vllm.LLM(**arguments)
    seconds["start"] = time.monotonic() - started
    sampling = vllm.SamplingParams(temperature=0, max_tokens=tokens, logprobs=2, ignore_eos=True)
    modes = {"alone": [[prompt] for prompt in prompts], "together": [prompts]}
    if arguments["enable_prefix_caching"]:
        modes["again"] = [prompts]
    answers: dict[str, Any] = {"cached_tokens": {}}
    try:
        for mode, batches in modes.items():
            if mode == "together" and arguments["enable_prefix_caching"] and not engine.reset_prefix_cache():
                raise RuntimeError("the prefix cache could not be emptied")
            started = time.monotonic()
            outputs = [out for batch in batches for out in engine.generate(batch, sampling, use_tqdm=False)]
            seconds[mode] = time.monotonic() - started
            answers[mode] = [answer(output.outputs[0]) for output in outputs]
            answers["cached_tokens"][mode] = sum(output.num_cached_tokens or 0 for output in outputs)
        answers["prompt_tokens"] = [len(output.prompt_token_ids) for output in outputs]
        answers["speculated"] = speculated(engine) if "speculative_config" in arguments else [0, 0]
    finally:
        engine.llm_engine.engine_core.shutdown()
    return answers | {"seconds": seconds}


def speculated(engine: Any) -> list[int]:
    """Tokens that were drafted, and those of them that were accepted."""
    counted = {metric.name: metric.value for metric in engine.get_metrics() if hasattr(metric, "value")}
    return [int(counted[f"vllm:spec_decode_num_{kind}_tokens"]) for kind in ("draft", "accepted")]


def answer(output: Any) -> dict[str, Any]:
    """One prompt's tokens, their log probabilities, and how far behind the second best token is."""
    pairs = [sorted((each.logprob for each in choices.values()), reverse=True) for choices in output.logprobs]
    return {
        "tokens": list(output.token_ids),
        "logprobs": [choices[token].logprob for token, choices in zip(output.token_ids, output.logprobs, strict=True)],
        "margins": [best - second for best, second, *_ in pairs],
    }


if __name__ == "__main__":
    main()
