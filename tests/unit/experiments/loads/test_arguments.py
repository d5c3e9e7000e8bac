"""What is asked of the engine's benchmark, and the files of prompts that it gets."""

from __future__ import annotations

import json

import pytest

from onecat.errors import OnecatError
from onecat.experiments.loads.arguments import bench_argv, check_flags, prompts_file
from onecat.experiments.records import ApiKey, Arrivals, Endpoint, Workload

ENDPOINT = Endpoint("chat", "http://127.0.0.1:8080", "llama", tokenizer="/models/llama", key=ApiKey("sk-secret"))


def options(argv: list[str]) -> dict[str, str | None]:
    """Each option with the word behind it, or None where that is an option too."""
    return {
        word: argv[at + 1] if at + 1 < len(argv) and not argv[at + 1].startswith("--") else None
        for at, word in enumerate(argv)
        if word.startswith("--")
    }


def made(workload: Workload, arrivals: Arrivals, endpoint: Endpoint = ENDPOINT) -> dict[str, str | None]:
    return options(bench_argv(endpoint, workload, arrivals, tokenizer="/models/llama"))


def test_a_closed_loop_of_random_prompts() -> None:
    found = made(Workload(requests=50, input_tokens=100, output_tokens=20, range_ratio=0.5, seed=7), Arrivals(8))
    assert found["--dataset-name"] == "random"
    assert (found["--random-input-len"], found["--random-output-len"]) == ("100", "20")
    assert (found["--random-range-ratio"], found["--num-prompts"], found["--seed"]) == ("0.5", "50", "7")
    assert found["--max-concurrency"] == "8"
    assert "--request-rate" not in found
    assert "--ignore-eos" in found
    assert found["--endpoint"] == "/v1/completions"


def test_arrivals_at_a_rate() -> None:
    found = made(Workload(), Arrivals(rate=2.5, burstiness=0.25))
    assert (found["--request-rate"], found["--burstiness"]) == ("2.5", "0.25")
    assert "--max-concurrency" not in found


def test_chats_from_a_file_end_where_the_file_says() -> None:
    workload = Workload(source="file", path="/p", output_tokens=None, ignore_eos=False, chat=True)
    found = made(workload, Arrivals(1))
    assert (found["--backend"], found["--endpoint"]) == ("openai-chat", "/v1/chat/completions")
    assert (found["--dataset-name"], found["--dataset-path"]) == ("custom", "{file}")
    assert found["--custom-output-len"] == "-1"
    assert "--ignore-eos" not in found


def test_the_key_is_never_among_the_words() -> None:
    assert not any("sk-secret" in word for word in bench_argv(ENDPOINT, Workload(), Arrivals(), tokenizer="/t"))
    assert "sk-secret" not in repr(ENDPOINT)


def test_a_site_is_named_and_its_certificate_left_alone() -> None:
    endpoint = Endpoint("chat", "https://127.0.0.1:8443", "llama", "/t", server_name="models.example", verify=False)
    found = made(Workload(), Arrivals(), endpoint)
    assert found["--header"] == "Host=models.example"
    assert "--insecure" in found


def test_an_engine_without_an_option_is_told_before_anything_is_sent() -> None:
    argv = bench_argv(ENDPOINT, Workload(), Arrivals(), tokenizer="/t")
    known = {word for word in argv if word.startswith("--")}
    check_flags(argv, known, "vLLM 0.27.1")
    with pytest.raises(OnecatError) as refused:
        check_flags(argv, known - {"--temperature"}, "vLLM 0.4")
    assert "--temperature" in refused.value.found


def test_plain_lines_become_json_lines_with_all_their_characters() -> None:
    name, content = prompts_file('Sag "hallo"\n\nzwei\t2\n', Workload(source="file", output_tokens=8), "p.txt")
    assert name.endswith(".jsonl")  # the engine reads no other ending
    assert [json.loads(line) for line in content.splitlines()] == [{"prompt": 'Sag "hallo"'}, {"prompt": "zwei\t2"}]


def test_only_line_feeds_end_a_line() -> None:
    text = '{"prompt": "a\u2028b\x85c"}\r\n{"prompt": "d"}\r\n'
    _, content = prompts_file(text, Workload(source="file", output_tokens=8), "p.jsonl")
    assert [json.loads(line)["prompt"] for line in content.split("\n") if line] == ["a\u2028b\x85c", "d"]


def test_json_lines_keep_what_is_used() -> None:
    text = '{"prompt": "a", "output_tokens": 3, "id": 9}\n{"prompt": "b", "output_tokens": 4}\n'
    _, content = prompts_file(text, Workload(source="file", output_tokens=None), "p.jsonl")
    assert [json.loads(line) for line in content.splitlines()] == [
        {"prompt": "a", "output_tokens": 3},
        {"prompt": "b", "output_tokens": 4},
    ]


@pytest.mark.parametrize(
    ("text", "output", "told"),
    [
        ("\n\n", 8, "no prompt"),
        ('{"prompt": "a"}\n{"prompt": 4}\n', 8, "p:2"),
        ('{"prompt": "a"}\n{"prompt"\n', 8, "p:2"),
        ('{"prompt": "a", "output_tokens": 3}\n{"prompt": "b"}\n', None, "prompt 2"),
        ("only text\n", None, "prompt 1"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_the_place(text: str, output: int | None, told: str) -> None:
    with pytest.raises(OnecatError) as refused:
        prompts_file(text, Workload(source="file", output_tokens=output), "p")
    assert told in f"{refused.value.found} {refused.value.where}"


def test_conversations_need_two_turns() -> None:
    workload = Workload(source="sharegpt")
    text = '[{"conversations": [{"value": "a"}, {"value": "b"}]}]'
    assert prompts_file(text, workload, "p") == ("prompts.json", text)
    for wrong in ("[]", "{}", "no", '[{"conversations": [{"value": "a"}]}]', "[4]"):
        with pytest.raises(OnecatError):
            prompts_file(wrong, workload, "p")
