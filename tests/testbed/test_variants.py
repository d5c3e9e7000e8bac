"""Variants of a deployment serve one after the other, and what served before serves again, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from onecat import deploy
from onecat.errors import ExitCode, OnecatError
from onecat.experiments.records import Endpoint
from onecat.experiments.targets import NativeSender, Target
from onecat.experiments.variants import Variant, VariantServers, uninterrupted
from tests.testbed.deployments import SmallDeployment

SEQS = Variant((("max-num-seqs", "7"),))
WAS_FLAG = ("--max-num-seqs", "7")


def variants(small: SmallDeployment, b: Variant = SEQS, **changes: object) -> VariantServers:
    release = small.store.current()
    assert release is not None
    serves = Target(
        Endpoint("demo", release.endpoint, release.model), {}, small.machine, NativeSender("python"), store=small.store,
        release=release,
    )  # fmt: skip
    return VariantServers(serves, {"A": Variant(), "B": b}, small.report, **changes)  # type: ignore[arg-type]


def served_words(small: SmallDeployment) -> list[str]:
    """The arguments of the server that runs now, which must answer through nginx."""
    assert httpx.get(f"{small.store.current().endpoint}/health", trust_env=False).status_code == 200  # type: ignore[union-attr]
    # The server has a child with the same words.
    (line,) = {each for each in small.processes() if "openai_server.py" in each and "--served-model-name" in each}
    return line.split()


def has_flag(small: SmallDeployment) -> bool:
    words = served_words(small)
    return any(words[at : at + 2] == list(WAS_FLAG) for at in range(len(words)))


def test_each_serves_in_its_turn_and_the_first_again_in_the_end(small: SmallDeployment) -> None:
    small.up()
    before = served_words(small)
    made = variants(small)
    assert made.targets["B"].endpoint.label == "demo, max-num-seqs=7"
    assert "B: --max-num-seqs 7" in made.differences
    told = made.targets["B"].arm
    assert (told["engine_version"], told["profile"], told["layout"]["tensor_parallel"]) == ("0.27.1", "cpu", 1)
    assert not has_flag(small)  # nothing was changed yet
    with made:
        numbers = []
        for arm in ("A", "B", "B", "A", "B"):
            endpoint = made.to(arm)
            assert has_flag(small) is (arm == "B")
            assert endpoint.base_url == f"http://127.0.0.1:{small.proxy_port}"
            numbers.append(small.store.current().number)  # type: ignore[union-attr]
        assert numbers == [2, 3, 4, 5, 6]  # a start for each, also for the same again
    assert not has_flag(small)
    after = served_words(small)
    port = before.index("--port") + 1
    assert before[:port] + before[port + 1 :] == after[:port] + after[port + 1 :]
    current = small.store.current()
    assert current is not None and (current.purpose, current.origin) == ("rollback", 1)
    # What experiments started is nothing to go back to, and pushes nothing out.
    assert small.store.load(1) is not None
    with pytest.raises(OnecatError, match="no earlier release"):
        deploy.rollback(small.store)


def test_the_last_one_stays_where_it_is_what_served_before(small: SmallDeployment) -> None:
    small.up()
    with variants(small) as made:
        made.to("B")
        made.to("A")
        last = small.store.current()
    current = small.store.current()
    assert last is not None and current is not None
    assert current.number == last.number == 3
    assert (current.purpose, current.origin, current.fingerprint) == ("rollback", 1, small.store.load(1).fingerprint)  # type: ignore[union-attr]


def test_an_experiment_that_fails_or_is_interrupted_leaves_nothing_of_itself(small: SmallDeployment) -> None:
    small.up()
    for error in (RuntimeError("the driver broke"), KeyboardInterrupt()):
        with pytest.raises(type(error)), variants(small) as made:  # noqa: PT012
            made.to("B")
            assert has_flag(small)
            raise error
        assert not has_flag(small)


def test_ctrl_c_while_a_variant_starts(small: SmallDeployment) -> None:
    """A real signal, to this process, between the start of B and its answer."""
    small.up()
    made = variants(small)
    started = threading.Event()

    def interrupt() -> None:
        while not started.is_set():
            if len(list((Path(small.store.directory) / "releases").iterdir())) > 1:
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.002)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt), made:  # noqa: PT012
        thread.start()
        made.to("B")
        started.set()
    thread.join()
    assert not has_flag(small)
    assert small.status().state == "serving"


def test_ctrl_c_while_a_variant_puts_away_what_it_replaced(small: SmallDeployment) -> None:
    """B serves already, and nobody was told its number."""
    small.up()
    made = variants(small)
    made._quiet = small.report  # type: ignore[method-assign]
    small.reactions["stopping release 1"] = interrupt_ourselves
    with pytest.raises(KeyboardInterrupt), made:
        made.to("B")
    assert not small.reactions
    assert "interrupted; the new release already serves and stays" in small.reported
    assert not has_flag(small)
    assert (small.store.current().purpose, small.store.current().origin) == ("rollback", 1)  # type: ignore[union-attr]


def test_a_second_ctrl_c_on_the_way_back_from_a_start_leaves_nothing_stopped(small: SmallDeployment) -> None:
    small.up(rollout={"strategy": "recreate"})
    made = variants(small)
    made._quiet = small.report  # type: ignore[method-assign]
    small.reactions |= {"ready after": interrupt_ourselves, "starting release 1 again": interrupt_ourselves}
    with pytest.raises(KeyboardInterrupt):
        made.to("B")
    assert not small.reactions
    assert small.status().state != "serving"
    made.put_back()
    assert not has_flag(small)
    assert small.status().state == "serving"


def interrupt_ourselves() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_does_not_end_the_way_back(small: SmallDeployment) -> None:
    small.up()
    made = variants(small)
    made.to("B")

    def interrupt() -> None:
        while not any(line.startswith("putting release") for line in small.reported):
            time.sleep(0.002)
        for _ in range(3):
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        made.put_back()
    thread.join()
    assert not has_flag(small)
    assert "it is being put back first; this takes as long as a start" in small.reported


def test_a_variant_that_does_not_start_leaves_what_served(small: SmallDeployment, tmp_path: Path) -> None:
    small.up()
    broken = tmp_path / "gone"
    with variants(small) as made:
        made.to("A")
        with pytest.raises(OnecatError):
            made.to("C", Variant(model=str(broken)))
        assert not has_flag(small)
        made.to("B")
    assert not has_flag(small)


def test_releases_and_checkpoints_are_variants_too(small: SmallDeployment, tmp_path: Path, tiny_model: Path) -> None:
    small.up("--word-seconds", "0.001")
    small.up()
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    with variants(small, Variant(release=1)) as made:
        made.to("B")
        assert "--word-seconds" in served_words(small)
        made.to("C", Variant(model=str(other)))
        assert str(other) in served_words(replace(small, model=other))
    assert "--word-seconds" not in served_words(small) and str(other) not in served_words(small)


def test_what_somebody_else_deploys_meanwhile_stays(small: SmallDeployment) -> None:
    small.up()
    made = variants(small)
    made.to("B")
    theirs = small.up("--word-seconds", "0.001")
    with pytest.raises(OnecatError, match="now has release") as error:
        made.put_back()
    assert error.value.code is ExitCode.NEEDS_PERSON
    assert small.store.current().number == theirs.number  # type: ignore[union-attr]


def test_after_a_kill_the_way_back_is_told(small: SmallDeployment) -> None:
    """As a kill -9 leaves it: B serves, and nobody puts anything back."""
    small.up()
    variants(small).to("B")
    with pytest.raises(OnecatError, match="serves for an experiment") as error:
        variants(small)
    assert error.value.next_steps == ("onecat rollback demo",)
    assert deploy.rollback(small.store).origin == 1
    assert not has_flag(small)


def test_the_experiment_that_was_killed_is_gone_on_with(small: SmallDeployment) -> None:
    small.up()
    variants(small).to("B")
    with variants(small, original=1) as made:
        made.to("B")
    assert not has_flag(small)


def test_wrong_flags_are_told_before_anything_is_changed(small: SmallDeployment) -> None:
    small.up()
    with pytest.raises(OnecatError, match="max-num-seqz"):
        variants(small, Variant((("max-num-seqz", "7"),)))
    with pytest.raises(OnecatError, match="no release 9"):
        variants(small, Variant(release=9))
    assert [each.number for each in small.store.releases()] == [1]


def test_signals_count_after_what_must_not_be_interrupted() -> None:
    told: list[str] = []
    reached = False
    with pytest.raises(KeyboardInterrupt), uninterrupted(lambda: told.append("later")):  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        reached = True
    assert reached and told == ["later", "later"]


def test_requests_are_kept_as_they_were_typed(small: SmallDeployment, free_port: Callable[[], int]) -> None:
    """The release that is put back is made from what lies beside it, with its own configuration."""
    small.up(serve={"max-num-seqs": 3})
    with variants(small) as made:
        made.to("B")
    current = small.store.current()
    assert current is not None
    saved = json.loads(Path(current.directory, "request.json").read_text())
    assert saved["deployment"]["serve"] == {"max-num-seqs": 3}
