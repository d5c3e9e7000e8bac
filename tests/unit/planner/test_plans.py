"""Plans: the arguments a server gets, in which order, and the reason and origin of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.checkpoints import Checkpoint
from onecat.config import load_deployment, load_profile
from onecat.errors import OnecatError
from onecat.planner import Plan, Reason, make_plan, to_json
from tests.unit.planner.examples import LLAMA, llama

GOLDEN = Path(__file__).parents[2] / "fixtures" / "plans"

COMPUTED = (
    *("per_gpu", "kv_tokens", "max_concurrency", "max_model_len", "largest_max_model_len", "short_of_gib", "assumed"),
    *("candidates", "estimated", "warnings", "rough_seconds_per_token"),
)
"""What the memory model says: its own tests hold it."""


def reason(plan: Plan, argument: str) -> Reason:
    return next(each for each in plan.reasons if each.arg == argument)


@pytest.mark.parametrize("profile", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_the_plan_of_each_profile_is_the_one_on_file(planned: Callable[..., Plan], profile: str) -> None:
    expected = json.loads((GOLDEN / f"{profile}.json").read_text(encoding="utf-8"))
    made = json.loads(json.dumps(to_json(planned(profile))))
    # What the engine chooses by itself depends on memory, too.
    made["reasons"] = [each for each in made["reasons"] if each["origin"] != "engine"]
    assert {name: value for name, value in made.items() if name not in COMPUTED} == expected


def test_a_native_server_listens_where_onecat_yaml_says(planned: Callable[..., Plan]) -> None:
    plan = planned("cpu", {"port": 9001})
    assert plan.server_args[:7] == (
        "/srv/models/llama-8b",
        "--served-model-name",
        "llama-8b",
        "--host",
        "127.0.0.1",
        "--port",
        "9001",
    )
    assert plan.container is None


def test_a_container_gets_the_model_mounted_and_only_its_published_port_is_the_deployments(
    planned: Callable[..., Plan],
) -> None:
    plan = planned("cpu", {"runtime": "container", "port": 9001, "model.served_name": "org/chat 8B"})
    assert plan.container is not None
    assert (plan.container.image, plan.container.gpus) == ("onecat/vllm-cpu:0.27.1", 0)
    assert plan.container.model_mount == "/models/org-chat-8B"
    assert plan.server_args[:7] == (
        "/models/org-chat-8B",
        "--served-model-name",
        "org/chat 8B",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
    )
    assert (plan.host, plan.port) == ("127.0.0.1", 9001)


def test_layers_win_over_those_below_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "onecat.yaml"
    path.write_text(
        "name: chat\nprofile: cpu\nmodel: {path: m}\nserve:\n  max-model-len: 1024\n  max-num-seqs: 8\n"
        "env: {VLLM_CPU_KVCACHE_SPACE: '4'}\n"
    )
    plan = make_plan(load_deployment(path), load_profile("cpu"), LLAMA, command_line={"max-num-seqs": "4"})
    length, sequences = reason(plan, "--max-model-len"), reason(plan, "--max-num-seqs")
    assert (length.value, length.origin, length.why) == (
        "1024",
        "onecat.yaml",
        f"set in {path}:5:18, over the profile's 2048",
    )
    assert (sequences.value, sequences.origin, sequences.why) == (
        "4",
        "command line",
        "set on the command line, over onecat.yaml's 8",
    )
    assert reason(plan, "--dtype").origin == "profile"
    space = reason(plan, "VLLM_CPU_KVCACHE_SPACE")
    assert (space.value, space.why) == ("4", f"set in {path}:7:31, over the profile's 1")
    assert dict(plan.env)["VLLM_CPU_KVCACHE_SPACE"] == "4"


def test_a_profiles_context_is_lowered_to_a_checkpoint_that_has_less(planned: Callable[..., Plan]) -> None:

    plan = planned("cpu", checkpoint=llama(max_position_embeddings=512))
    length = reason(plan, "--max-model-len")
    assert (length.value, length.origin) == ("512", "planner")
    assert "the profile's 2048 is longer" in length.why
    assert plan.refusals == ()


def test_a_flag_switched_off_takes_its_negation(planned: Callable[..., Plan]) -> None:
    plan = planned("cpu", {"serve.enforce-eager": False})
    assert "--no-enforce-eager" in plan.server_args
    assert "--enforce-eager" not in plan.server_args


def test_the_layout_decides_how_many_gpus_a_container_gets(planned: Callable[..., Plan]) -> None:
    plan = planned("a100x2-80g", {"serve.tensor-parallel-size": 1, "serve.pipeline-parallel-size": 2})
    assert (plan.layout.tensor_parallel, plan.layout.pipeline_parallel) == (1, 2)
    assert plan.container is not None
    assert plan.container.gpus == 2


def test_whether_it_fits_is_unknown_without_a_config_and_said_to_be(planned: Callable[..., Plan]) -> None:
    document = to_json(planned("h200", checkpoint=Checkpoint("/srv/models/empty")))
    assert (document["schema"], document["fits"], document["per_gpu"]) == ("onecat.plan/1", None, ())
    assert "no config.json" in document["unknown"]
    assert any(document["unknown"] in each for each in document["warnings"])


def test_float32_on_a_16_bit_checkpoint_tells_its_price(planned: Callable[..., Plan]) -> None:
    assert any("29.9 GiB" in each for each in planned("cpu").warnings)


@pytest.mark.parametrize(
    ("serve", "where", "found", "advice"),
    [
        ("max-modl-len: 5", "5:3", "vllm 0.27.1 has no flag `max-modl-len`", "did you mean `max-model-len`?"),
        ("max_model_len: 5", "5:3", "vllm 0.27.1 has no flag `max_model_len`", "did you mean `max-model-len`?"),
        ("--seed: 5", "5:3", "vllm 0.27.1 has no flag `--seed`", "did you mean `seed`?"),
        ("no-enforce-eager: true", "5:3", "vllm 0.27.1 has no flag `no-enforce-eager`", "write `enforce-eager: false`"),
        (
            "swap-space: 4",
            "5:3",
            "vllm 0.27.1 has no flag `swap-space`",
            "see https://github.com/vllm-project/vllm/pull/36216",
        ),
        (
            "dtype: flaot16",
            "5:10",
            "`dtype` is 'flaot16', which vllm 0.27.1 does not accept",
            "did you mean `float16`?",
        ),
        ("max-num-seqs: '8'", "5:17", "`max-num-seqs` is '8', which vllm 0.27.1 does not accept", None),
    ],
)
def test_flags_the_engine_does_not_have_are_told_at_their_place(
    tmp_path: Path, serve: str, where: str, found: str, advice: str | None
) -> None:
    path = tmp_path / "onecat.yaml"
    path.write_text(f"name: chat\nprofile: cpu\nmodel: {{path: m}}\nserve:\n  {serve}\n")
    with pytest.raises(OnecatError) as caught:
        make_plan(load_deployment(path), load_profile("cpu"), LLAMA)
    assert (caught.value.where, caught.value.found) == (f"{path}:{where}", found)
    assert caught.value.next_steps == (() if advice is None else (advice,))


def test_all_wrong_flags_are_told_at_once(planned: Callable[..., Plan]) -> None:
    with pytest.raises(OnecatError) as caught:
        planned("cpu", {"serve.dtype": "half-ish"}, sede=1, port=3)
    assert [each.split(" (")[0] for each in caught.value.details] == [
        "also at command line: vllm 0.27.1 has no flag `sede`",
        "also at command line: `port` is set by onecat itself",
    ]
