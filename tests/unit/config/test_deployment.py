"""What onecat.yaml means, and what is said at which place when it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.config import Deployment, Origin, deployment_from, load_deployment, load_profile
from onecat.config.combinations import LOOKS_SECRET
from onecat.errors import ExitCode, OnecatError

Load = Callable[[str], Deployment]

HEAD = "name: chat\nprofile: cpu\nmodel:\n  path: models/tiny\n"
"""Four lines that load; tests append from line 5 on."""


def refused(load: Load, text: str) -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        load(text)
    assert caught.value.code == ExitCode.USAGE
    return caught.value


def test_four_lines_are_enough_and_the_rest_has_defaults(load: Load) -> None:
    deployment = load(HEAD)
    assert (deployment.name, deployment.profile, deployment.hosts) == ("chat", "cpu", ("local",))
    assert (deployment.host, deployment.port, deployment.proxy.listen) == ("127.0.0.1", 8000, "127.0.0.1:8080")


def test_paths_count_from_the_file_and_not_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "onecat.yaml").write_text(HEAD + "secrets: {api_key: {file: key}}\nproxy: {keys_file: clients}\n")
    deployment = load_deployment(tmp_path / "onecat.yaml")
    assert deployment.model.path == str(tmp_path / "models/tiny")
    assert deployment.secrets.api_key is not None
    assert deployment.secrets.api_key.file == str(tmp_path / "key")
    assert deployment.proxy.keys_file == str(tmp_path / "clients")


def test_on_needs_no_quotes_as_a_key(load: Load) -> None:
    assert load(HEAD + "hosts: [gpu1, gpu2]\nproxy: {on: gpu2}\n").proxy.on == "gpu2"


def test_a_profile_of_ones_own_is_a_file_told_from_onecat_yaml(tmp_path: Path, load: Load) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "mine.yaml").write_text("name: mine\nextends: [h200]\n")
    text = HEAD.replace("profile: cpu", "profile: profiles/mine.yaml")
    deployment = load(text)
    assert deployment.profile == str(tmp_path / "profiles" / "mine.yaml")
    assert load_profile(deployment.profile).engine.name == "vllm"
    assert refused(load, text + "runtime: native\n").found == "profile `mine` has no runtime `native`"
    assert refused(load, text.replace("mine", "yours")).found.endswith("profiles/yours.yaml does not exist")


def test_each_value_knows_where_it_came_from(load: Load) -> None:
    load(HEAD + "serve:\n  dtype: float16\n")
    deployment = load_deployment(Path("onecat.yaml"), {"port": 9000, "serve.seed": 1})
    assert deployment.origin("serve", "dtype") == Origin("onecat.yaml", "onecat.yaml:6:10", "onecat.yaml:6:3")
    assert (
        deployment.origin("port")
        == deployment.origin("serve", "seed")
        == Origin("command line", "command line", "command line")
    )
    assert deployment.origin("host") == Origin("default")
    assert (deployment.port, deployment.serve) == (9000, {"dtype": "float16", "seed": 1})


def test_a_path_is_told_without_detours_unless_a_link_makes_it_another_place(tmp_path: Path, load: Load) -> None:
    (tmp_path / "disk" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "deep")
    assert load(HEAD.replace("models/tiny", "models/../tiny")).model.path == str(tmp_path / "tiny")
    assert load(HEAD.replace("models/tiny", "link/../tiny")).model.path == str(tmp_path / "link" / ".." / "tiny")
    assert load(HEAD.replace("models/tiny", "./link")).model.path == str(tmp_path / "link")


def test_a_deployment_can_be_made_from_options_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deployment = deployment_from({"name": "chat", "profile": "cpu", "model.path": "m"})
    assert deployment.model.path == str(tmp_path / "m")
    with pytest.raises(OnecatError, match="`port` is the number 70000") as caught:
        deployment_from({"name": "chat", "profile": "cpu", "model.path": "m", "port": 70000})
    assert caught.value.where == "command line"


@pytest.mark.parametrize(
    ("text", "where", "found", "advice"),
    [
        pytest.param(
            HEAD + "porxy:\n  kind: none\n",
            "onecat.yaml:5:1",
            "unknown key `porxy`",
            "did you mean `proxy`?",
            id="unknown-key-points-to-the-key",
        ),
        pytest.param(
            HEAD + "proxy:\n  Listen: 127.0.0.1:80\n",
            "onecat.yaml:6:3",
            "unknown key `Listen` in `proxy`",
            "did you mean `listen`?",
            id="unknown-nested-key",
        ),
        pytest.param(
            HEAD + 'port: "8001"\n',
            "onecat.yaml:5:7",
            '`port` is the text "8001"',
            "take the quotes away: 8001",
            id="number-in-quotes-is-not-converted",
        ),
        pytest.param(
            "name: 0.27\n" + HEAD.split("\n", 1)[1],
            "onecat.yaml:1:7",
            "`name` is the number 0.27",
            'put it in quotes: "0.27"',
            id="version-like-text-is-a-float",
        ),
        pytest.param(
            "name: on\n" + HEAD.split("\n", 1)[1],
            "onecat.yaml:1:7",
            "`name` is true (YAML 1.1 reads on as true)",
            'put it in quotes: "on"',
            id="on-is-a-boolean",
        ),
        pytest.param(
            HEAD + "env:\n  VLLM_TIMEOUT: 1:30\n",
            "onecat.yaml:6:17",
            "`env.VLLM_TIMEOUT` is the number 90 (YAML reads 1:30 as the number 90)",
            'put it in quotes: "1:30"',
            id="base-sixty-number",
        ),
        pytest.param(
            HEAD + "proxy: {listen: 2026-11-29}\n",
            "onecat.yaml:5:17",
            "`proxy.listen` is 2026-11-29 (YAML reads 2026-11-29 as a date)",
            'put it in quotes: "2026-11-29"',
            id="date",
        ),
        pytest.param(
            HEAD + "runtime: contianer\n",
            "onecat.yaml:5:10",
            '`runtime` is the text "contianer"',
            "did you mean `container`?",
            id="choice",
        ),
        pytest.param(
            "name: chat\nprofile: cpu\n",
            "onecat.yaml:1:1",
            "the key `model` is missing",
            "add a line `model: ...`",
            id="missing-key",
        ),
        pytest.param(
            "name: chat\nprofile: cpu\nmodel: {}\n",
            "onecat.yaml:3:1",
            "the key `path` is missing in `model`",
            "add `path` in `model`",
            id="missing-nested-key-points-to-its-group",
        ),
        pytest.param(
            HEAD + "serve:\n  speculative-config: {num: 3}\n",
            "onecat.yaml:6:23",
            "`serve.speculative-config` is a group of nested keys",
            None,
            id="json-flags-are-text",
        ),
        pytest.param(
            HEAD + "hosts: local\n", "onecat.yaml:5:8", '`hosts` is the text "local"', None, id="text-for-a-list"
        ),
        pytest.param(
            "name: Chat 7B\nprofile: cpu\nmodel: {path: m}\n",
            "onecat.yaml:1:7",
            '`name` is the text "Chat 7B"',
            None,
            id="name-form",
        ),
        pytest.param(HEAD + "port: 0\n", "onecat.yaml:5:7", "`port` is the number 0", None, id="number-too-small"),
        pytest.param(
            "name: chat\nprofile: v100-pcie\nmodel: {path: m}\n",
            "onecat.yaml:2:10",
            "there is no profile `v100-pcie`",
            "did you mean `v100x2-pcie`?",
            id="unknown-profile",
        ),
        pytest.param(
            "name: chat\nprofile: h200\nmodel: {path: m}\nruntime: native\n",
            "onecat.yaml:4:10",
            "profile `h200` has no runtime `native`",
            "write `runtime: container`, or leave the line out",
            id="runtime-the-profile-lacks",
        ),
        pytest.param(
            HEAD + "port: 8080\n",
            "onecat.yaml:1:1",
            "the proxy and the server both want port 8080",
            "write `port: 8081` for the server",
            id="one-port-for-both-when-the-proxy-port-is-a-default",
        ),
        pytest.param(
            HEAD + "proxy:\n  listen: 0.0.0.0:8000\n",
            "onecat.yaml:6:11",
            "the proxy and the server both want port 8000",
            "write `port: 8001` for the server",
            id="one-port-for-both",
        ),
        pytest.param(
            HEAD + "secrets:\n  api_key:\n    file: a\n    env: B\n",
            "onecat.yaml:6:3",
            "`secrets.api_key` has both `file` and `env`",
            None,
            id="secret-from-two-places",
        ),
        pytest.param(
            HEAD + "secrets:\n  api_key: {}\n",
            "onecat.yaml:6:3",
            "`secrets.api_key` has neither `file` nor `env`",
            None,
            id="secret-from-nowhere",
        ),
        pytest.param(
            HEAD + "env: {VLLM_API_KEY: hush}\n",
            "onecat.yaml:5:7",
            "`env.VLLM_API_KEY` would put a secret into onecat.yaml",
            "write `secrets.api_key: {file: PATH}` and remove `env.VLLM_API_KEY`",
            id="secret-as-plain-variable",
        ),
        pytest.param(
            HEAD + "env: {HF_TOKEN: hush}\n",
            "onecat.yaml:5:7",
            "`env.HF_TOKEN` looks like a secret, and everybody may read what stands under `env`: it is shown by "
            "`onecat plan` and written into the plan, the systemd unit and Docker's command line",
            "remove `env.HF_TOKEN`: the model is served from a local directory and needs no token",
            id="another-secret-as-plain-variable",
        ),
        pytest.param(
            HEAD + "serve:\n  port: 1\n",
            "onecat.yaml:6:3",
            "`serve.port` is set by onecat itself",
            "move the value to `port`",
            id="flag-that-onecat-sets",
        ),
        pytest.param(
            HEAD + "serve: {--api-key: x}\n",
            "onecat.yaml:5:9",
            "`serve.--api-key` is set by onecat itself",
            "move the value to `secrets.api_key`",
            id="key-flag-with-dashes",
        ),
        pytest.param(
            HEAD + "smoke:\n  - prompt: Hello\n    expect: [a, '']\n",
            "onecat.yaml:7:13",
            "an expected substring is empty: every answer contains it",
            None,
            id="smoke-expectation-that-cannot-fail",
        ),
        pytest.param(
            HEAD.replace("cpu", "v100x2-pcie") + "ray: {}\n",
            "onecat.yaml:5:1",
            "`ray` shares one model among hosts, and `hosts` names one",
            None,
            id="ray-on-one-host",
        ),
        pytest.param(
            HEAD.replace("cpu", "v100x2-pcie") + "hosts: [a, b]\nray: {port: 65000}\n",
            "onecat.yaml:6:13",
            "ray.port 65000: a node takes the ports after it",
            None,
            id="ray-port-too-high",
        ),
        pytest.param(
            HEAD.replace("cpu", "v100x2-pcie") + "hosts: [a, b]\nray: {}\nserve: {distributed-executor-backend: mp}\n",
            "onecat.yaml:7:39",
            "the backend mp with `ray`",
            None,
            id="ray-without-its-backend",
        ),
        pytest.param(
            HEAD.replace("cpu", "v100x2-pcie") + "hosts: [a, b]\nray: {}\nservice: systemd\n",
            "onecat.yaml:7:10",
            "`service: systemd` with `ray`",
            None,
            id="ray-under-systemd",
        ),
        pytest.param(
            HEAD + "hosts: [gpu1, gpu1]\n",
            "onecat.yaml:5:15",
            "the host `gpu1` is listed 2 times",
            None,
            id="host-twice",
        ),
        pytest.param(
            HEAD + "hosts: [gpu1]\naddresses: {gpu2: 10.0.0.2}\n",
            "onecat.yaml:6:13",
            "`addresses` names gpu2, which is none of the hosts",
            None,
            id="address-of-no-host",
        ),
        pytest.param(
            HEAD + "hosts: [gpu1, gpu2]\naddresses: {gpu1: 10.0.0.2, gpu2: 10.0.0.2}\n",
            "onecat.yaml:6:35",
            "2 hosts have the address 10.0.0.2 in `addresses`: nginx would ask the same one for all",
            None,
            id="address-twice",
        ),
        pytest.param(
            HEAD + "hosts: [gpu1, gpu2]\nproxy: {on: gpu3}\n",
            "onecat.yaml:6:13",
            "`proxy.on` is gpu3, which is none of the hosts",
            None,
            id="proxy-on-no-host",
        ),
        pytest.param(
            HEAD.replace("cpu", "v100x2-pcie") + "gpus: [0, 1, 0]\n",
            "onecat.yaml:5:14",
            "the GPU 0 is listed twice",
            None,
            id="gpu-twice",
        ),
        pytest.param(
            HEAD.replace("cpu", "v100x2-pcie") + "gpus: [-1]\n",
            "onecat.yaml:5:8",
            "no GPU has the index -1",
            None,
            id="gpu-below-0",
        ),
        pytest.param(
            HEAD + "gpus: [0]\n", "onecat.yaml:5:1", "`gpus`, and profile `cpu` uses none", None, id="gpus-without-gpus"
        ),
        pytest.param(
            HEAD + "runtime: native\nservice: systemd\n",
            "onecat.yaml:6:10",
            "`service: systemd` with the native runtime, which onecat looks after itself",
            None,
            id="native-under-systemd",
        ),
        pytest.param(
            HEAD + "container: {cpus: 2}\n",
            "onecat.yaml:5:13",
            "`container.cpus` with the native runtime",
            None,
            id="container-limits-without-a-container",
        ),
        pytest.param(
            HEAD + "port: 08000\n",
            "onecat.yaml:5:7",
            '`port` is the text "08000"',
            "write it with digits alone: 8000",
            id="zero-in-front-of-a-digit-above-7-is-text",
        ),
        pytest.param(
            HEAD + "port: 1e3\n",
            "onecat.yaml:5:7",
            '`port` is the text "1e3"',
            "write it with digits alone: 1000",
            id="exponent-without-a-point-is-text",
        ),
        pytest.param(
            HEAD + "port: 010000\n",
            "onecat.yaml:5:7",
            "`port` is the number 4096 (YAML reads 010000 as the number 4096)",
            None,
            id="octal-number",
        ),
        pytest.param(
            HEAD + "serve: {seed: 1:30}\n",
            "onecat.yaml:5:15",
            "`serve.seed` is the number 90 (YAML reads 1:30 as the number 90)",
            None,
            id="base-sixty-number-where-a-number-is-right",
        ),
        pytest.param(HEAD + "hosts: []\n", "onecat.yaml:5:8", "`hosts` is empty", None, id="no-host"),
        pytest.param(
            HEAD.replace("models/tiny", '""'), "onecat.yaml:4:9", "`model.path` is empty", None, id="empty-path"
        ),
        pytest.param(
            HEAD.replace("models/tiny", "~no-such-user/m"),
            "onecat.yaml:4:9",
            "`model.path` is ~no-such-user/m, and there is no such home directory",
            None,
            id="home-of-nobody",
        ),
        pytest.param(
            HEAD + "host: --uds\n",
            "onecat.yaml:5:7",
            '`host` is the text "--uds"',
            None,
            id="host-that-would-be-an-option",
        ),
        pytest.param(
            HEAD + "env: {A=B: x}\n", "onecat.yaml:5:7", "`A=B` is no name of a variable", None, id="variable-name"
        ),
        pytest.param(
            HEAD + 'env: {A: "b\\0c"}\n', "onecat.yaml:5:10", "`env.A` holds a zero byte", None, id="zero-byte"
        ),
        pytest.param(
            HEAD + "restart: {backoff_seconds: 60}\n",
            "onecat.yaml:5:10",
            "the longest wait (30 s) is below the first (60 s)",
            None,
            id="back-off-that-shrinks",
        ),
    ],
)
def test_wrong_values_are_told_at_their_place(
    load: Load, text: str, where: str, found: str, advice: str | None
) -> None:
    error = refused(load, text)
    assert (error.where, error.found) == (where, found)
    assert error.next_steps == (() if advice is None else (advice,))


def test_the_offending_line_is_shown_with_a_mark_below_it(load: Load) -> None:
    error = refused(load, HEAD + 'port: "8001" # the usual\n')
    assert error.details == ('port: "8001" # the usual', "      ^")
    assert error.expected == "a whole number without quotes"


def test_all_problems_are_told_at_once_in_the_order_of_the_file(load: Load) -> None:
    error = refused(load, HEAD + 'prot: 1\nport: "8"\nproxy: {kind: ngnix}\n')
    assert error.where == "onecat.yaml:5:1"
    assert [each for each in error.details if each.startswith("also at")] == [
        'also at onecat.yaml:6:7: `port` is the text "8" (expected a whole number without quotes)',
        'also at onecat.yaml:7:15: `proxy.kind` is the text "ngnix" (expected one of: nginx, none)',
    ]
    assert error.next_steps == ("did you mean `port`?", "take the quotes away: 8", "did you mean `nginx`?")


def test_a_missing_file_is_named_with_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OnecatError, match="onecat.yaml does not exist") as caught:
        load_deployment(Path("onecat.yaml"))
    assert caught.value.where == str(tmp_path / "onecat.yaml")
    assert caught.value.next_steps[0] == "onecat init"


def test_of_many_problems_the_first_twenty_are_told_and_the_others_counted(load: Load) -> None:
    error = refused(load, HEAD + "".join(f"key{number}: x\n" for number in range(50)))
    assert error.where == "onecat.yaml:5:1"
    assert [each for each in error.details if each.startswith("also at")][-1].startswith("also at onecat.yaml:24:1:")
    assert error.details[-1] == "and 30 more"


@pytest.mark.parametrize("endless", ["/dev/zero", "x: " + "1" * 200_000])
def test_a_file_that_no_person_wrote_is_not_read_to_its_end(load: Load, endless: str) -> None:
    with pytest.raises(OnecatError, match="is too large"):
        load_deployment(Path(endless)) if endless.startswith("/") else load(endless)


@pytest.mark.parametrize(
    ("group", "keys"), [("model: /srv/m", "path, served_name"), ("secrets: {api_key: sk-1}", "file, env")]
)
def test_a_group_written_as_a_value_is_told_the_keys_of_the_group(load: Load, group: str, keys: str) -> None:
    text = HEAD.split("model")[0] + group + "\n" + ("" if group.startswith("model") else "model: {path: m}\n")
    assert refused(load, text).expected == f"nested keys: {keys}"


KEYS = st.sampled_from(
    ["name", "profile", "model", "path", "serve", "env", "proxy", "listen", "secrets", "api_key", "on"]
)
SCALARS = st.sampled_from(["chat", "cpu", "8000", '"x"', "yes", "0.27", "1:30", "~", "127.0.0.1:99999", "'2'", ".nan"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.dictionaries(KEYS, inner, max_size=4).map(
            lambda each: "{" + ", ".join(f"{key}: {value}" for key, value in each.items()) + "}"
        )
        | st.lists(inner, max_size=3).map(lambda each: "[" + ", ".join(each) + "]")
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(
    text=st.text(max_size=60)
    | st.dictionaries(KEYS, VALUES).map(lambda each: "".join(f"{key}: {value}\n" for key, value in each.items()))
)
def test_any_text_is_a_deployment_or_one_clear_error(load: Load, text: str) -> None:
    try:
        loaded = load(text)
    except OnecatError as error:
        assert error.code == ExitCode.USAGE
        assert error.found
    else:
        assert isinstance(loaded, Deployment)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("CLIENT_SECRET", True),
        ("DB_PASSWORD_1", True),
        ("token", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("VLLM_MAX_TOKENS", False),
        ("VLLM_CPU_KVCACHE_SPACE", False),
        ("MONKEY", False),
        ("NCCL_KEYS_DIR", False),
    ],
)
def test_variables_that_look_like_secrets(name: str, secret: bool) -> None:
    assert bool(LOOKS_SECRET.search(name)) is secret
