"""What a diagnosis repeats of a log holds no secrets: cause, evidence, JSON, live diagnoses, the first exception."""

from __future__ import annotations

import json

import pytest

from onecat.observe import Diagnoser, diagnose, to_json
from onecat.observe.secrets import SECRET, without_secrets

# Kept in pieces, so that no scanner for secrets takes this file for a leak.
TOKEN = "hf_" + "QzVbNmKjHgFdSaPoIuYtReWq"
UNKNOWN = "vllm: error: unrecognized arguments: "


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--api-key tiger9lily --port 1", "--api-key [redacted] --port 1"),
        ("--api-key 'tiger lily' --port 1", "--api-key [redacted] --port 1"),
        ("--api-key tiger9 lily8 --port 1", "--api-key [redacted] --port 1"),
        ("--api-key=tiger9lily --port 1", "--api-key=[redacted] --port 1"),
        ("['--api-key', 'tiger lily', '--port', '1']", "['--api-key', [redacted], '--port', '1']"),
        ("args: {'api_key': ['tiger', 'lily'], 'port': 1}", "args: {'api_key': [redacted], 'port': 1}"),
        (f"HF_TOKEN={TOKEN} x", "HF_TOKEN=[redacted] x"),
        (f"a {TOKEN} b", "a [redacted] b"),
        ("Authorization: Bearer tiger", "Authorization: [redacted]"),
        ("from http://amelie:lily@mirror.example/simple", "from http://[redacted]@mirror.example/simple"),
        ("AWS_SECRET_ACCESS_KEY=lily\nnext", "AWS_SECRET_ACCESS_KEY=[redacted]\nnext"),
    ],
)
def test_a_secret_is_taken_out_and_the_rest_stays(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "check the `hf_quant_config.json` file",
        "KeyError: 'layers.0.mlp.experts.w2_weight_scale'",
        "max_num_batched_tokens (2048) is smaller than max_model_len (4096)",
        "GPU KV cache size: 32,768 tokens",
        "1 validation error for ModelConfig",
        "['--tokenizer', 'slow']",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        (UNKNOWN + "--api-key tiger9lily --dry-run", "tiger9lily"),
        (UNKNOWN + "--api-key=tigerlily --dry-run", "tigerlily"),
        (UNKNOWN + f"--dry-run HF_TOKEN={TOKEN}", TOKEN),
        (UNKNOWN + "--dry-run --header Authorization: Bearer tigerlily", "tigerlily"),
        (UNKNOWN + "--dry-run http://amelie:tigerlily@proxy.example:3128/", "tigerlily"),
        ("ValueError: VLLM_PORT 'tcp://amelie:tigerlily@10.0.0.1:80' appears to be a URI", "tigerlily"),
        # The name of the secret stands far before what is told of a long line.
        ("--api-key tigerlily" + "lily" * 500 + " error: unrecognized arguments: --dry-run", "lily"),
        ("x" * 5000 + " --api-key tigerlily " + UNKNOWN + "--dry-run" + " y" * 5000, "tigerlily"),
    ],
)
def test_no_diagnosis_repeats_a_secret(line: str, secret: str) -> None:
    found = diagnose([line])
    assert found, line
    assert all(SECRET in each.text for each in found[0].evidence) or len(line) > 2000
    live = Diagnoser()
    for diagnoses in (found, live.feed(line)):
        assert secret not in json.dumps(to_json(diagnoses))
        assert secret not in repr(diagnoses)


def test_the_words_of_the_advice_are_not_taken_for_secrets() -> None:
    (found,) = diagnose([UNKNOWN + "--swap-space 4"])
    assert found.cause == "This engine version does not know: --swap-space 4"
    assert found.evidence[0].matched == "error: unrecognized arguments: --swap-space 4"


def test_the_first_exception_repeats_no_secret() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in main',
        f"ZeroDivisionError: HF_TOKEN={TOKEN}",
    ]
    diagnoser = Diagnoser()
    diagnoser.feed_lines(lines)
    found = diagnoser.first_exception()
    assert found is not None
    assert found.text == "ZeroDivisionError: HF_TOKEN=[redacted]"


def test_a_captured_value_of_a_megabyte_is_told_in_short() -> None:
    (found,) = diagnose([UNKNOWN + "--dry-run " + "x" * (1 << 20)])
    assert len(found.cause) < 500
    assert found.cause.endswith("...")
    assert len(found.evidence[0].text) < 500
