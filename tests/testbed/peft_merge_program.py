"""Adapters made, saved and merged by the real PEFT, and what it says of names: runs in the engine's environment.

argv: a JSON object with `directory` (where all goes), `cases` (by name: `base`, `options` of LoraConfig, `dtype` of
what is saved), `targets` (options, and modules to match) and `patterns` (those, and modules). Prints a JSON object.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from safetensors.torch import load_file, save_file

LLAMA = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 96,
}  # fmt: skip
BASES = {
    "llama": transformers.LlamaConfig(**LLAMA, attention_bias=True, tie_word_embeddings=False),
    "tied": transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True),
    "gpt2": transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=96, n_positions=32),
}


def load(directory: Path) -> torch.nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


def make_adapter(base: Path, directory: Path, case: dict) -> None:
    torch.manual_seed(3)
    model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", **case["options"]))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(directory)
    if case.get("dtype") is not None:
        path = directory / "adapter_model.safetensors"
        tensors = {name: each.to(getattr(torch, case["dtype"])) for name, each in load_file(path).items()}
        save_file(tensors, path, {"format": "pt"})


def main() -> None:
    warnings.simplefilter("ignore")
    asked = json.loads(sys.argv[1])
    directory = Path(asked["directory"])
    for name in {case["base"] for case in asked["cases"].values()}:
        torch.manual_seed(1)
        transformers.AutoModelForCausalLM.from_config(BASES[name]).save_pretrained(directory / "bases" / name)
    for name, case in asked["cases"].items():
        base = directory / "bases" / case["base"]
        make_adapter(base, directory / name / "adapter", case)
        merged = PeftModel.from_pretrained(load(base), directory / name / "adapter").merge_and_unload()
        merged.save_pretrained(directory / name / "merged")
    print(json.dumps({
        "targets": [
            [bool(check_target_module_exists(LoraConfig(**options), module)) for module in modules]
            for options, modules in asked["targets"]
        ],
        "patterns": [
            [get_pattern_key(patterns, module) for module in modules] for patterns, modules in asked["patterns"]
        ],
    }))  # fmt: skip


main()
