"""Kubernetes: a Deployment with its Service, or a LeaderWorkerSet where one model spans several hosts through Ray."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onecat.deploy.cache_volume import CACHE_DIRECTORY
from onecat.deploy.container_spec import SECRET_MOUNT, SERVER_PORT, environment
from onecat.deploy.export.marking import marked
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.server import (
    ENDPOINT_SECONDS,
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    LONGEST_START_SECONDS,
    ExportedServer,
    describe,
    drain_program,
    stop_seconds,
)
from onecat.deploy.export.yaml_text import Block, dump
from onecat.deploy.strategy import Room, choose
from onecat.errors import OnecatError
from onecat.planner import ray

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "kubernetes"
SERVICE_PORT = 80
_ENTRYPOINT = "/usr/local/bin/onecat-entrypoint"
_RESOURCES = {
    # https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
    "nvidia": "nvidia.com/gpu",
    # https://www.hiascend.com/document/detail/en/mindcluster/730/clustersched/schedulingug/dlug_installation_038.html
    "ascend": "huawei.com/Ascend910",
}
_SHARED_MEMORY = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - inside the container


def render(request: Request) -> tuple[ExportedFile, ...]:
    server = describe(request)
    spans = request.deployment.ray is not None
    check(request, server)
    workload = leader_worker_set(request, server) if spans else deployment(request, server)
    text = dump(service(request), workload)
    return (ExportedFile(f"{request.name}.yaml", marked(NAME, _notes(request, server, spans), text)),)


FORM = Form(NAME, "Kubernetes: Deployment or LeaderWorkerSet, and Service", True, render)


def check(request: Request, server: ExportedServer) -> None:
    """Raises OnecatError for what onecat.yaml says and a cluster has no place for."""
    if server.spec.gpu_ids:
        raise OnecatError(
            f"gpus: {', '.join(server.spec.gpu_ids)} are GPUs of one host, and Kubernetes chooses GPUs itself",
            where="gpus",
            next_steps=["leave gpus out of onecat.yaml"],
        )
    if request.deployment.container.numa_node is not None:
        raise OnecatError(
            "container.numa_node: a pod cannot choose its NUMA node",
            where="container.numa_node",
            next_steps=["leave it out, and set the kubelet's topologyManagerPolicy: single-numa-node"],
        )


def service_name(request: Request) -> str:
    """The Service's name. A LeaderWorkerSet makes a headless one of its own name, through which its pods find each
    other (https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1/, SubdomainPolicy)."""
    return request.name if request.deployment.ray is None else f"{request.name}-leader"


def service(request: Request) -> dict[str, Any]:
    selector = _selector(request)
    if request.deployment.ray is not None:
        # Workers serve no requests. LeaderWorkerSet numbers the pods of a group, the leader 0.
        selector = {**selector, "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service_name(request), "labels": _labels(request)},
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"name": "http", "port": SERVICE_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def deployment(request: Request, server: ExportedServer) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": request.name, "labels": _labels(request)},
        "spec": {
            "replicas": len(request.deployment.hosts),
            "revisionHistoryLimit": max(0, request.deployment.rollout.keep_releases - 1),
            "progressDeadlineSeconds": LONGEST_START_SECONDS + 3600,
            "strategy": strategy(request, server),
            "selector": {"matchLabels": _selector(request)},
            "template": _template(request, server, _server_container(request, server)),
        },
    }


def strategy(request: Request, server: ExportedServer) -> dict[str, Any]:
    """Two at once or one after the other, as `onecat up` decides when no GPU is free: a cluster's are not known."""
    room = Room(proxied=True, gpus_needed=server.accelerators, gpus_free=0)
    surge, unavailable = 1, 0
    if choose(request.deployment.rollout.strategy, True, room, None).name == "recreate":
        if len(request.deployment.hosts) == 1:
            return {"type": "Recreate"}
        surge, unavailable = 0, 1  # one after the other; the others serve meanwhile
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def leader_worker_set(request: Request, server: ExportedServer) -> dict[str, Any]:
    """One group of as many pods as the deployment has hosts; the first runs Ray's head and the server.

    Fields: https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1/.
    """
    size = len(request.deployment.hosts)
    per_node, left = divmod(server.accelerators, size)
    if size < 2 or left or not per_node:
        raise OnecatError(
            f"{server.accelerators} accelerators cannot be shared evenly by {size} hosts",
            expected="as many on each of two or more hosts",
            where="hosts, and serve.tensor-parallel-size x serve.pipeline-parallel-size",
            next_steps=[f"onecat plan --set pipeline-parallel-size={max(2, size)}"],
        )
    arguments = server.spec.command
    if "--distributed-executor-backend" not in arguments:
        arguments += ("--distributed-executor-backend", "ray")
    spec = replace(server.spec, command=arguments, shm_bytes=server.spec.shm_bytes + ray.SHARED_MEMORY_BYTES)
    node = replace(server, spec=spec, accelerators=per_node)
    leader = _server_container(request, node)
    leader["command"] = ["/bin/sh", "-c", Block(_escaped(_leader_script(request, per_node))), "onecat"]
    worker = _container(request, node)
    worker["command"] = ["/bin/sh", "-c", Block(_escaped(_worker_script(request, per_node)))]
    del worker["args"], worker["ports"]
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": request.name, "labels": _labels(request)},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            # The new group needs the GPUs of the old one.
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": size,
                # A pod that is gone takes its part of the model with it: all start again.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _template(request, node, leader),
                "workerTemplate": _template(request, node, worker),
            },
        },
    }


def _ray_node(request: Request, gpus: int) -> tuple[ray.RayCluster, ray.RayNode]:
    assert request.deployment.ray is not None
    ports = ray.RayPorts(request.deployment.ray.port)
    head = ray.RayNode("leader", "$LWS_LEADER_ADDRESS", "eth0", gpus, ports)
    return ray.RayCluster((head,)), ray.RayNode("pod", "$POD_IP", "eth0", gpus, ports)


def _leader_script(request: Request, gpus: int) -> str:
    cluster, here = _ray_node(request, gpus)
    start = [word for word in ray.head_argv(ray.RayCluster((here,))) if word != "--block"]
    count = (
        "import ray; ray.init(address='auto', logging_level='ERROR', log_to_driver=False); "
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )
    return (
        "set -eu\n"
        f"{_shell(start)}\n"
        "# However long it takes until every node is there: nodes pull images of many GB.\n"
        f'until [ "$(python3 -c "{count}" | tail -n 1)" = "$LWS_GROUP_SIZE" ]; do sleep 5; done\n'
        f'exec {_ENTRYPOINT} "$@"\n'
    )


def _worker_script(request: Request, gpus: int) -> str:
    cluster, here = _ray_node(request, gpus)
    return (
        "set -eu\n"
        f'until ray health-check --address "{cluster.address}"; do sleep 5; done\n'
        f"exec {_shell(ray.worker_argv(cluster, here))}\n"
    )


def _shell(words: list[str]) -> str:
    """Words in double quotes, in which the shell fills variables in; they are ours and have no other special letter."""
    return " ".join(f'"{word}"' if "$" in word else word for word in words)


# --- pods -------------------------------------------------------------------------------------------------------------


def _labels(request: Request) -> dict[str, str]:
    """https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/"""
    return {
        **_selector(request),
        "app.kubernetes.io/version": request.plan.engine_version,
        "app.kubernetes.io/component": "model-server",
        "app.kubernetes.io/managed-by": "onecat",
    }


def _selector(request: Request) -> dict[str, str]:
    """What cannot be changed later."""
    return {"app.kubernetes.io/name": request.plan.engine, "app.kubernetes.io/instance": request.name}


def _template(request: Request, server: ExportedServer, container: dict[str, Any]) -> dict[str, Any]:
    uid, gid = server.user
    security: dict[str, Any] = {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": gid,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if server.spec.groups:
        security["supplementalGroups"] = list(server.spec.groups)
    pod: dict[str, Any] = {
        # Variables of services would clash with the server's own: VLLM_PORT, for one.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": stop_seconds(request),
        "securityContext": security,
    }
    if server.spec.host_ipc:
        pod["hostIPC"] = True
    if server.accelerators:
        resource = _RESOURCES[server.accelerator]
        pod["tolerations"] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    pod["containers"] = [container]
    pod["volumes"] = _volumes(request, server)
    annotations = {name: value for name, value in server.spec.labels.items() if name != "io.onecat.deployment"}
    return {"metadata": {"labels": _labels(request), "annotations": annotations}, "spec": pod}


def _container(request: Request, server: ExportedServer) -> dict[str, Any]:
    variables: list[dict[str, Any]] = [
        {"name": name, "value": _escaped(value)} for name, value in environment(server.spec).items() if _is_plain(name)
    ]
    if request.deployment.ray is not None:
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        variables = [
            {"name": "POD_IP", "valueFrom": address},
            {"name": "VLLM_HOST_IP", "valueFrom": address},
            {"name": "RAY_AUTH_MODE", "value": "token"},
            {"name": "RAY_AUTH_TOKEN_PATH", "value": ray.TOKEN_MOUNT},
            *variables,
        ]
    container: dict[str, Any] = {
        "name": "server",
        "image": server.spec.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [_escaped(word) for word in server.spec.command],
        "env": variables,
        "ports": [{"name": "http", "containerPort": SERVER_PORT, "protocol": "TCP"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(request, server),
    }
    limits: dict[str, Any] = {}
    if server.accelerators:
        limits[_RESOURCES[server.accelerator]] = str(server.accelerators)
    if server.spec.memory_bytes is not None:
        limits["memory"] = str(server.spec.memory_bytes)
    if server.spec.cpus is not None:
        limits["cpu"] = f"{round(server.spec.cpus * 1000)}m"
    if limits:
        container["resources"] = {"limits": limits}
    return container


def _server_container(request: Request, server: ExportedServer) -> dict[str, Any]:
    """The container that answers requests: with probes, and an end after the last answer."""
    health = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": HEALTH_SECONDS}
    often = {"periodSeconds": HEALTH_SECONDS}
    drain = request.deployment.rollout.drain_seconds
    address = f"http://127.0.0.1:{SERVER_PORT}"
    stop = ["python3", "-c", Block(drain_program()), address, str(ENDPOINT_SECONDS), str(drain)]
    return {
        **_container(request, server),
        "startupProbe": {**health, **often, "failureThreshold": LONGEST_START_SECONDS // HEALTH_SECONDS},
        "readinessProbe": {**health, **often, "failureThreshold": 2},
        "livenessProbe": {**health, **often, "failureThreshold": HEALTH_RETRIES},
        "lifecycle": {"preStop": {"exec": {"command": stop}}},
    }


def _mounts(request: Request, server: ExportedServer) -> list[dict[str, Any]]:
    _, path = _claim(request)
    mounts: list[dict[str, Any]] = [
        {
            "name": "model",
            "mountPath": server.spec.model_mount,
            "readOnly": True,
            **({"subPath": path} if path else {}),
        },
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside the container
        {"name": "cache", "mountPath": CACHE_DIRECTORY},
    ]
    if not server.spec.host_ipc:
        mounts.append(_SHARED_MEMORY)
    if server.has_key:
        mounts.append(_secret_mount("api-key", SECRET_MOUNT))
    if request.deployment.ray is not None:
        mounts.append(_secret_mount("ray-token", ray.TOKEN_MOUNT))
    for number, (_, target) in enumerate(server.spec.mounts):
        mounts.append({"name": f"driver-{number}", "mountPath": target, "readOnly": True})
    return mounts


def _secret_mount(volume: str, path: str) -> dict[str, Any]:
    """One file: a whole directory there would hide what Kubernetes puts beside it."""
    return {"name": volume, "mountPath": path, "subPath": path.rpartition("/")[2], "readOnly": True}


def _volumes(request: Request, server: ExportedServer) -> list[dict[str, Any]]:
    claim, _ = _claim(request)
    if claim is not None:
        model: dict[str, Any] = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    else:
        model = {"hostPath": {"path": server.spec.model_directory, "type": "Directory"}}
    volumes: list[dict[str, Any]] = [
        {"name": "model", **model},
        {"name": "tmp", "emptyDir": {}},
        {"name": "cache", "emptyDir": {}},
    ]
    if not server.spec.host_ipc:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(server.spec.shm_bytes)}})
    if server.has_key:
        volumes.append(_secret_volume(request, "api-key", SECRET_MOUNT))
    if request.deployment.ray is not None:
        volumes.append(_secret_volume(request, "ray-token", ray.TOKEN_MOUNT))
    for number, (source, _) in enumerate(server.spec.mounts):
        volumes.append({"name": f"driver-{number}", "hostPath": {"path": source}})
    return volumes


def _secret_volume(request: Request, volume: str, path: str) -> dict[str, Any]:
    """A Secret as a file that the server's user may read. Its owner is root, and a group for it (fsGroup) would make
    the kubelet change the owner of every file of the model's volume too; only this pod sees the file."""
    key = path.rpartition("/")[2]
    return {
        "name": volume,
        "secret": {
            "secretName": f"{request.name}-{volume}",
            "defaultMode": 0o444,
            "items": [{"key": key, "path": key}],
        },
    }


def _claim(request: Request) -> tuple[str | None, str]:
    """The PersistentVolumeClaim with the model and the directory in it."""
    name, _, path = (request.options.model_claim or "").partition("/")
    return (name or None), path.strip("/")


def _escaped(text: str) -> str:
    """A text in which Kubernetes puts nothing in the place of `$(NAME)`; it reads `$$` as one `$`
    (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/)."""
    return text.replace("$", "$$")


def _is_plain(name: str) -> bool:
    """Whether Kubernetes takes a variable's name. Raises OnecatError when it does not."""
    if not name or not name.isascii() or not name.isprintable() or "=" in name:
        raise OnecatError(f"env.{name!r} is no name of a variable", expected="printable ASCII letters, no =")
    return True


def _notes(request: Request, server: ExportedServer, spans: bool) -> list[str]:
    name = request.name
    claim, path = _claim(request)
    steps = [f"the image must be in a registry that the nodes pull from (export with --image): {server.spec.image}"]
    if claim:
        steps.append(f"the PersistentVolumeClaim {claim} must hold the model" + (f" in {path}" if path else ""))
    else:
        steps.append(f"every node must have the model in {server.spec.model_directory}, or export with --model-claim;")
        steps.append("the pod security level `restricted` forbids such a hostPath")
    steps.append(f"user {server.user[0]} must be able to read the model: chmod -R a+rX")
    if server.has_key:
        steps.append(f"kubectl create secret generic {name}-api-key --from-file=api_key=KEYFILE")
    if spans:
        secret = f"kubectl create secret generic {name}-ray-token --from-file=ray_token=TOKENFILE"
        steps.append(f"openssl rand -hex 32 > TOKENFILE; {secret}")
        steps.append("the cluster needs LeaderWorkerSet (https://lws.sigs.k8s.io), and the image needs ray")
    if server.accelerators:
        steps.append(f"the nodes need the device plugin that offers {_RESOURCES[server.accelerator]}")
    if server.accelerator == "ascend":
        steps.append("and Ascend Docker Runtime; groups that own the device nodes: export with --group")
    lines = [
        "",
        f"Serves {request.plan.served_name} at http://{service_name(request)}/v1 in its namespace. What to do first:",
        *(f"- {each}" for each in steps),
        f"Then: kubectl apply --filename {name}.yaml",
        "",
        *(() if server.spec.host_ipc else ("/dev/shm is memory and counts against the pod's memory limit.",)),
        "Kubernetes knows no deadline on silence, as onecat up does, and 40 GB from an old disk may take half an hour:",
        f"the startup probe gives up after {LONGEST_START_SECONDS // 3600} h, which loading never meets.",
        "The preStop hook waits for the last answer; until then the pod counts as terminating.",
    ]
    if not spans:
        kind = strategy(request, server)["type"]
        lines.append(f"Strategy {kind}: " + _WHY[kind])
    return lines


_WHY = {
    "Recreate": "the old server stops first, because the GPUs are taken to be needed, and there is a gap. With free\n"
    "ones write rollout.strategy: blue-green in onecat.yaml.",
    "RollingUpdate": "others serve while a new server starts.",
}
