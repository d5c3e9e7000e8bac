"""Run by the engine's own Python: what Transformers makes of the small model, and of random weights of its shape.

Argument: a JSON object {model: directory, prompt, tokens: of the greedy answer, samples: texts for the tokenizer}.
Prints {decoded: each sample through the tokenizer and back, chat, text, random_text, perplexity: of held_out.txt}.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

CONTEXT = 256  # tokens of a window, as in the model's README.md


def perplexity(model: Any, tokens: list[int]) -> float:
    losses = []
    for start in range(0, len(tokens) - CONTEXT, CONTEXT):
        window = torch.tensor([tokens[start : start + CONTEXT + 1]])
        logarithms = torch.log_softmax(model(window[:, :-1]).logits.double(), -1)
        losses.append(-logarithms.gather(-1, window[:, 1:, None]).mean().item())
    return math.exp(sum(losses) / len(losses))


@torch.inference_mode()
def main() -> None:
    told = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    directory = Path(told["model"])
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    random = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)

    def greedy(which: Any) -> str:
        prompt = tokenizer(told["prompt"], return_tensors="pt")
        whole = which.generate(**prompt, do_sample=False, max_new_tokens=told["tokens"])
        return tokenizer.decode(whole[0, prompt["input_ids"].shape[1] :])

    messages = [{"role": "system", "content": "First."}, {"role": "user", "content": "Second"}]
    answer = {
        "decoded": [tokenizer.decode(tokenizer(sample)["input_ids"]) for sample in told["samples"]],
        "chat": tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
        "text": greedy(model),
        "random_text": greedy(random),
        "perplexity": perplexity(model, tokenizer((directory / "held_out.txt").read_text())["input_ids"]),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
