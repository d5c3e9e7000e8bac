"""What `--from` reads: saved facts, captures, directories, standard input, and what it says when it cannot."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts, to_json
from onecat.probe import read_hosts, saved

GPU = "GPU 0: Tesla T4 (UUID: GPU-1)\n"
KERNEL = "[  10.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
SELINUX = "Enforcing\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpus.txt").write_text(GPU)
    (tmp_path / "dmesg.txt").write_text(KERNEL)
    (tmp_path / "gpu7.json").write_text(json.dumps(to_json(Facts("local", user="seven"))))
    (tmp_path / "gpu8.json").write_text(json.dumps(to_json(Facts("gpu8", user="eight"))))
    (tmp_path / "rack" / "gpu1").mkdir(parents=True)
    (tmp_path / "rack" / "gpu1" / "smi").write_text(GPU)
    (tmp_path / "rack" / "gpu1" / "kernel").write_text(KERNEL)
    return tmp_path


def failure(*arguments: str) -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        read_hosts(arguments)
    assert caught.value.code is ExitCode.USAGE
    return caught.value


def test_captures_of_one_command_line_are_one_host(folder: Path) -> None:
    (facts,) = read_hosts(["gpus.txt", "dmesg.txt"])
    assert facts.host == "captures"
    assert facts.sources == ("nvidia-smi -L", "kernel log")
    assert facts.nvidia is not None and facts.nvidia.gpus[0].name == "Tesla T4"
    assert facts.kernel_events is not None and facts.kernel_events[0].xid == 79


def test_a_single_capture_names_its_host(folder: Path) -> None:
    assert [facts.host for facts in read_hosts(["gpus.txt"])] == ["gpus"]


def test_saved_facts_stand_each_for_a_host(folder: Path) -> None:
    hosts = read_hosts(["gpu7.json", "gpu8.json", "dmesg.txt"])
    assert [(facts.host, facts.user) for facts in hosts] == [("gpu7", "seven"), ("gpu8", "eight"), ("dmesg", None)]


def test_saved_facts_with_the_same_name_are_told_apart_by_their_file(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "facts.json").write_text(json.dumps(to_json(Facts(host="local"))))
    hosts = read_hosts([str(folder / "a" / "facts.json"), str(folder / "b" / "facts.json")])
    assert [host.host for host in hosts] == ["facts", f"facts ({folder}/b/facts.json)"]


def test_an_argument_that_names_nothing_is_not_the_working_directory() -> None:
    with pytest.raises(OnecatError, match="'' names no file"):
        read_hosts([""])


def test_a_directory_is_one_host_named_after_it(folder: Path) -> None:
    (facts,) = read_hosts(["rack/gpu1/"])
    assert facts.host == "gpu1"
    assert facts.nvidia is not None and facts.kernel_events


def test_a_named_capture_adds_to_its_host(folder: Path) -> None:
    hosts = read_hosts(["a=gpus.txt", "b=dmesg.txt", "a=dmesg.txt", "gpu1=dmesg.txt", "rack/gpu1"])
    assert [facts.host for facts in hosts] == ["a", "b", "gpu1"]
    assert hosts[0].nvidia is not None and hosts[0].kernel_events
    assert hosts[1].nvidia is None
    assert hosts[2].nvidia is not None and hosts[2].kernel_events is not None
    assert hosts[2].kernel_events[0].count == 1, "two readings of one log tell of one event"


def test_captures_add_to_saved_facts_of_the_same_name(folder: Path) -> None:
    (facts,) = read_hosts(["x=gpu8.json", "x=gpus.txt"])
    assert (facts.host, facts.user, facts.sources) == ("x", "eight", ("nvidia-smi -L",))
    assert facts.nvidia is not None


def test_an_existing_path_with_an_equals_sign_is_a_path(folder: Path) -> None:
    (folder / "a=b.txt").write_text(GPU)
    assert [facts.host for facts in read_hosts(["a=b.txt"])] == ["a=b"]


def test_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GPU.encode("utf-16"))))
    (facts,) = read_hosts(["-"])
    assert facts.host == "standard input"
    assert facts.nvidia is not None and facts.nvidia.gpus[0].uuid == "GPU-1"


def test_a_report_holds_the_facts_in_a_block(folder: Path) -> None:
    document = json.dumps(to_json(Facts("host-1", user="someone")))
    (folder / "report.md").write_text(f"# onecat report\n\ntext\n\n```json\n{document}\n```\n\nmore\n")
    assert [(facts.host, facts.user) for facts in read_hosts(["report.md"])] == [("host-1", "someone")]


def test_a_file_that_nobody_knows_in_a_directory_becomes_a_note(folder: Path) -> None:
    (folder / "rack" / "gpu1" / "shopping").write_text("milk\n")
    (folder / "rack" / "gpu1" / ".hidden").write_text("milk\n")
    (facts,) = read_hosts(["rack/gpu1"])
    assert [(note.source, note.kind) for note in facts.notes] == [("shopping", "error")]


def test_an_unknown_text_names_the_forms_and_the_nearest(folder: Path) -> None:
    (folder / "odd.txt").write_text("my kernel said something about dmesg\n")
    error = failure("odd.txt")
    assert "nearest to kernel log" in error.found
    assert error.where == "odd.txt"
    assert error.expected is not None and "nvidia-smi -q" in error.expected and "npu-smi info" in error.expected


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("empty.txt", "", "empty"),
        ("blank.txt", " \n\n", "empty"),
        ("facts.json", '{"schema": "onecat.facts/9", "host": "x"}', "cannot be read: schema is 'onecat.facts/9'"),
        ("broken.json", '{"schema": "onecat.facts/1", "host": 7}', "facts.host: expected str"),
        ("config.json", '{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}', "no importer knows"),
        ("deep.json", "[" * 100000, "no importer knows"),
    ],
)
def test_what_cannot_be_read_is_told(folder: Path, name: str, text: str, found: str) -> None:
    (folder / name).write_text(text)
    assert found in failure(name).found


def test_what_is_not_there_or_forbidden_is_told(folder: Path) -> None:
    assert "does not exist" in failure("absent.txt").found
    assert "does not exist" in failure("a=absent.txt").found
    (folder / "empty").mkdir()
    assert "holds no files" in failure("empty").found
    (folder / "empty" / "x").write_text("milk")
    assert "no file that onecat can read" in failure("empty").found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_told(folder: Path) -> None:
    (folder / "gpus.txt").chmod(0)
    assert "Permission denied" in failure("gpus.txt").found


def test_a_file_that_is_too_large_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "LARGEST_FILE", 1024 * 1024)
    (folder / "large.txt").write_bytes(b"x" * (1024 * 1024 + 1))
    error = failure("large.txt")
    assert "larger than 1 MiB" in error.found
    assert error.next_steps == ("tail -c 1M large.txt > shorter.txt",)


def test_saved_facts_given_twice_for_one_host_are_refused(folder: Path) -> None:
    assert "saved facts twice" in failure("a=gpu7.json", "a=gpu8.json").found


def test_the_text_of_no_file_can_be_a_traceback(folder: Path) -> None:
    (folder / "binary.bin").write_bytes(bytes(range(256)) * 64)
    assert "no importer knows" in failure("binary.bin").found


def test_the_facts_of_several_hosts_are_read_from_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "fleet.jsonl"
    file.write_text("".join(json.dumps(to_json(Facts(host=name))) + "\n" for name in ("gpu1", "gpu2")))
    assert [facts.host for facts in read_hosts([str(file)])] == ["gpu1", "gpu2"]
