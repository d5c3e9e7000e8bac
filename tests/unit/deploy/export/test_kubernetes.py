"""Manifests against Kubernetes' published schemas, and what schemas do not say."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from onecat.config import list_profiles
from onecat.deploy.export import Options
from onecat.deploy.export.forms.kubernetes import _escaped
from onecat.errors import OnecatError
from tests.unit.deploy.export.examples import KEY, NASTY, exported, request

VERSIONS = ("1.25", "1.31", "1.37")
RAY = {"hosts": ["gpu1", "gpu2"], "ray": {}}


def manifests(what: Any) -> list[Any]:
    (file,) = exported("kubernetes", what).values()
    return list(yaml.safe_load_all(file.text))


def workload(what: Any) -> Any:
    return manifests(what)[1]


def pod(what: Any) -> Any:
    return workload(what)["spec"]["template"]["spec"]


def expanded(text: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a value: `$$` is `$`, `$(NAME)` a variable; an unknown one stays.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return re.sub(
        r"\$\$|\$\((.*?)\)", lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", list_profiles())
def test_every_profile_is_valid(profile: str, version: str) -> None:
    changes = {"secrets": KEY, "env": NASTY, "container": {"memory_gib": 64, "cpus": 7.5}}
    for options in (Options(), Options(model_claim="models/llama/8b", groups=(1000,))):
        found = manifests(request(profile, options, **changes))
        assert [each["kind"] for each in found] == ["Service", "Deployment"]
        for each in found:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_are_asked_for_real() -> None:
    broken = workload(request("cpu"))
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("profile", ["v100x2-pcie", "h100x2", "cpu"])
def test_a_pod_meets_the_restricted_security_standard(profile: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    spec = pod(request(profile, Options(model_claim="models"), secrets=KEY))
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert {kind for each in spec["volumes"] for kind in each} - {"name"} <= {
        "emptyDir",
        "persistentVolumeClaim",
        "secret",
    }


def test_every_mount_has_its_volume() -> None:
    for what in (request("ascend910b", secrets=KEY), request("v100x2-pcie"), request("cpu", Options(model_claim="m"))):
        spec = pod(what)
        mounted = [each["name"] for each in spec["containers"][0]["volumeMounts"]]
        assert mounted == [each["name"] for each in spec["volumes"]]


def test_loading_is_never_cut_off_and_the_last_answer_is_waited_for() -> None:
    spec = pod(request("v100x2-pcie", rollout={"drain_seconds": 120}))
    (container,) = spec["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600
    *_, wait, drain = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (wait, drain) == ("10", "120")
    assert spec["terminationGracePeriodSeconds"] >= 10 + 120 + 30
    assert workload(request("cpu"))["spec"]["progressDeadlineSeconds"] > 24 * 3600


@pytest.mark.parametrize(
    ("profile", "changes", "strategy"),
    [
        ("v100x2-pcie", {}, {"type": "Recreate"}),
        ("cpu", {}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
        ("cpu", {"rollout": {"strategy": "recreate"}}, {"type": "Recreate"}),
        (
            "v100x2-pcie",
            {"rollout": {"strategy": "blue-green"}},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        ),
        (
            "v100x2-pcie",
            {"hosts": ["gpu1", "gpu2"]},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        ),
    ],
)
def test_the_strategy_is_the_one_that_up_would_take(
    profile: str, changes: dict[str, Any], strategy: dict[str, Any]
) -> None:
    found = workload(request(profile, **changes))["spec"]
    assert found["strategy"] == strategy
    assert found["replicas"] == len(changes.get("hosts", ["one"]))


def test_accelerators_and_shared_memory() -> None:
    limits = {name: pod(request(name))["containers"][0]["resources"]["limits"] for name in ("a100x2-80g", "ascend910b")}
    assert limits == {"a100x2-80g": {"nvidia.com/gpu": "2"}, "ascend910b": {"huawei.com/Ascend910": "1"}}
    assert "resources" not in pod(request("cpu"))["containers"][0]
    (shm,) = [each for each in pod(request("a100x2-80g"))["volumes"] if each["name"] == "shm"]
    assert shm["emptyDir"]["medium"] == "Memory" and int(shm["emptyDir"]["sizeLimit"]) >= 64 * 2**20
    shared = pod(request("cpu", container={"host_ipc": True}))
    assert shared["hostIPC"] is True and "shm" not in [each["name"] for each in shared["volumes"]]


def test_services_put_no_variables_into_the_server() -> None:
    assert pod(request("cpu"))["enableServiceLinks"] is False


def test_nasty_variables_arrive_as_they_are() -> None:
    (container,) = pod(request("cpu", env=NASTY))["containers"]
    found = {each["name"]: expanded(each["value"], {"HOME": "/tmp"}) for each in container["env"]}
    assert found.items() >= NASTY.items()


@given(st.text(alphabet="$(){}A \\", max_size=12))
def test_no_text_is_expanded(text: str) -> None:
    assert expanded(_escaped(text), {"A": "expanded"}) == text


def test_a_cluster_chooses_gpus_itself() -> None:
    with pytest.raises(OnecatError, match="Kubernetes chooses GPUs itself"):
        manifests(request("v100x2-pcie", gpus=[0, 1]))
    with pytest.raises(OnecatError, match="NUMA"):
        manifests(request("v100x2-pcie", container={"numa_node": 0}))


# --- LeaderWorkerSet: its CRD is in no package, so its own fields are checked against its API's documentation ---------

# Fields and values of leaderworkerset.x-k8s.io/v1: https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1/.
LWS_FIELDS = {
    "spec": {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"},
    "leaderWorkerTemplate": {
        *("leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy"),
        *("volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy"),
    },
    "rolloutStrategy": {"type", "rollingUpdateConfiguration"},
    "rollingUpdateConfiguration": {"partition", "maxUnavailable", "maxSurge"},
}


def lws() -> Any:
    return workload(request("v100x2-pcie", secrets=KEY, **RAY))


def test_one_model_across_hosts_is_a_leader_worker_set() -> None:
    found = lws()
    assert (found["apiVersion"], found["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    spec = found["spec"]
    group = spec["leaderWorkerTemplate"]
    update = spec["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert set(spec) <= LWS_FIELDS["spec"]
    assert set(group) <= LWS_FIELDS["leaderWorkerTemplate"]
    assert set(spec["rolloutStrategy"]) <= LWS_FIELDS["rolloutStrategy"]
    assert set(update) <= LWS_FIELDS["rollingUpdateConfiguration"]
    assert spec["startupPolicy"] in ("LeaderCreated", "LeaderReady")
    assert spec["rolloutStrategy"]["type"] == "RollingUpdate"
    assert update["maxUnavailable"] or update["maxSurge"], "not both may be 0"
    assert group["restartPolicy"] in ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None")
    assert group["size"] == 2


@pytest.mark.parametrize("template", ["leaderTemplate", "workerTemplate"])
@pytest.mark.parametrize("version", VERSIONS)
def test_its_pods_are_valid(template: str, version: str) -> None:
    found = lws()["spec"]["leaderWorkerTemplate"][template]
    kubernetes_validate.validate({"apiVersion": "v1", "kind": "PodTemplate", "template": found}, version, strict=True)
    (container,) = found["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert ("startupProbe" in container) == (template == "leaderTemplate")


def test_its_service_leads_to_the_leader_and_has_a_name_of_its_own() -> None:
    """LeaderWorkerSet makes a headless Service with the name of the set."""
    service, found = manifests(request("v100x2-pcie", **RAY))
    assert service["metadata"]["name"] != found["metadata"]["name"]
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


def test_its_scripts_are_shell_and_use_variables_of_the_pod() -> None:
    import subprocess
    import sys
    from pathlib import Path

    for template in ("leaderTemplate", "workerTemplate"):
        (container,) = lws()["spec"]["leaderWorkerTemplate"][template]["spec"]["containers"]
        script = "#!/bin/sh\n" + expanded(container["command"][2], {})
        done = subprocess.run(
            [str(Path(sys.executable).with_name("shellcheck")), "-"], input=script, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
        assert "$POD_IP" in script and "--num-gpus=1" in script
        assert "POD_IP" in [each["name"] for each in container["env"]]
    assert 'exec /usr/local/bin/onecat-entrypoint "$@"' in expanded(
        lws()["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]["command"][2], {}
    )


def test_accelerators_must_share_evenly() -> None:
    with pytest.raises(OnecatError, match="cannot be shared evenly by 3 hosts"):
        manifests(request("v100x2-pcie", hosts=["a", "b", "c"], ray={}))
