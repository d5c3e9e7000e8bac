"""prometheus: what to scrape, alert rules, and the counters that dcgm-exporter shall tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onecat.deploy.export.marking import marked
from onecat.deploy.export.records import ExportedFile, Form
from onecat.deploy.export.signals import DCGM_COUNTERS, DCGM_PORT, Alert, alerts, signals_of
from onecat.deploy.export.yaml_text import dump
from onecat.deploy.releases import reachable
from onecat.deploy.site import site_of
from onecat.hosts import parse_target

if TYPE_CHECKING:
    from onecat.deploy.export.records import Request

NAME = "prometheus"
SCRAPE_SECONDS = 15


def render(request: Request) -> tuple[ExportedFile, ...]:
    signals = signals_of(request)
    has_gpus = request.profile.hardware.accelerator == "nvidia"
    rules, counters = (f"{request.name}.{end}" for end in ("rules.yml", "dcgm.csv"))
    whole = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [rules],
        "scrape_configs": _jobs(request, has_gpus),
    }
    files = [
        ExportedFile("prometheus.yml", marked(NAME, _notes(request, rules, counters, has_gpus), dump(whole))),
        ExportedFile(
            rules,
            marked(
                NAME,
                ["For rule_files. The runbook of each alert is the command that shows why."],
                dump({"groups": [{"name": request.name, "rules": _rules(alerts(signals, has_gpus=has_gpus))}]}),
            ),
        ),
    ]
    if has_gpus:
        lines = "".join(f"{field}, {kind}, {words}\n" for field, kind, words in DCGM_COUNTERS)
        notes = [f"For dcgm-exporter on every host: dcgm-exporter -f {counters}"]
        files.append(ExportedFile(counters, marked(NAME, notes, lines)))
    return tuple(files)


FORM = Form(NAME, "scrape configuration and alert rules for Prometheus", False, render)


def _jobs(request: Request, has_gpus: bool) -> list[dict[str, Any]]:
    signals = signals_of(request)
    job: dict[str, Any] = {"job_name": signals.job, "metrics_path": "/metrics"}
    if _through_nginx(request):
        site = site_of(request.deployment)
        port = site.listen.rpartition(":")[2]
        if site.tls is not None:
            job["scheme"] = "https"
            if site.server_name != "_":
                job["tls_config"] = {"server_name": site.server_name}
    else:
        port = str(request.plan.port)
    hosts = _server_hosts(request)
    job["static_configs"] = [_target(request, host, port) for host in hosts]
    jobs = [job]
    if has_gpus:
        targets = [_target(request, host, str(DCGM_PORT)) for host in request.deployment.hosts]
        jobs.append({"job_name": signals.gpu_job, "static_configs": targets})
    return jobs


def _target(request: Request, host: str, port: str) -> dict[str, Any]:
    return {
        "targets": [f"{_address(host)}:{port}"],
        "labels": {"deployment": request.deployment.name, "host": host},
    }


def _address(host: str) -> str:
    target = parse_target(host)
    return "127.0.0.1" if target.is_local else reachable(target.host)


def _through_nginx(request: Request) -> bool:
    """nginx keeps its port while releases come and go on others; one before several hosts would mix their counters."""
    return request.deployment.proxy.kind == "nginx" and len(_server_hosts(request)) == 1


def _server_hosts(request: Request) -> tuple[str, ...]:
    """The hosts with a server; of one model across hosts that is the first."""
    deployment = request.deployment
    return deployment.hosts if deployment.ray is None else deployment.hosts[:1]


def _rules(found: tuple[Alert, ...]) -> list[dict[str, Any]]:
    return [
        {
            "alert": each.name,
            "expr": each.expression,
            "for": each.lasting,
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary, "runbook": each.command},
        }
        for each in found
    ]


def _notes(request: Request, rules: str, counters: str, has_gpus: bool) -> list[str]:
    deployment = request.deployment
    notes = [
        "",
        "A whole configuration, for a Prometheus of its own; one that is there gets the jobs and the file of rules.",
        "What to do first:",
    ]
    if _through_nginx(request):
        allowed = ", ".join(deployment.proxy.metrics_from)
        notes += [
            f"- Prometheus' address must be in proxy.metrics_from of onecat.yaml, which now says {allowed}",
            "- while a canary is tried, nginx answers with either release's counters: look at that by onecat top",
        ]
    else:
        notes.append("- the servers' own ports are asked: they must be open to Prometheus")
        if request.plan.host in ("127.0.0.1", "::1"):
            notes.append(
                "- each server listens on its own host only: give it an address (host of its flags in onecat.yaml)"
            )
    if any(parse_target(host).is_local for host in deployment.hosts):
        notes.append("- 127.0.0.1 is the deployment's host: run Prometheus there, or write the host's address")
    if has_gpus:
        notes.append(f"- on every host dcgm-exporter, port {DCGM_PORT}, with the counters of {counters}")
    notes.append(f"Then: promtool check config prometheus.yml && promtool check rules {rules}")
    return [*notes, ""]
