"""What a server needs from the network side of a host."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.context import Context
from onecat.doctor.packages import install
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key

LEAST_NGINX = "1.15.3"
"""The first with keepalive_timeout in an upstream block, which onecat's configuration sets."""
WITHOUT_PROXY = "or set `proxy: {kind: none}` in onecat.yaml"


def _judge_port(context: Context, port: int, purpose: str) -> Verdict:
    listeners = context.facts.listeners
    if listeners is None:
        return Verdict("skip", f"Not checked: {context.why_absent('listeners', 'the ports in use are not known')}")
    taken = [each for each in listeners if each.port == port]
    if not taken:
        return Verdict("pass", f"Port {port} is free for {purpose}", f"port {port}")
    if port in context.settings.own_ports:
        return Verdict("pass", f"Port {port}, for {purpose}, is held by a deployment of onecat", f"port {port}")
    return Verdict(
        "warn",
        f"Port {port}, for {purpose}, is in use",
        f"port {port}",
        tuple(f"{each.process or 'something'} listens on {each.address} port {each.port}" for each in taken),
        fix=(
            f"see what it is: sudo ss -ltnp 'sport = :{port}'",
            "end it, or choose another port in onecat.yaml",
        ),
    )


@check(
    "serving.port",
    title="The port of the server is free",
    why="Two programs cannot listen on one port: the server would not start.",
    fix=("sudo ss -ltnp", "end the other program, or set `port` in onecat.yaml"),
    source=("https://man7.org/linux/man-pages/man8/ss.8.html",),
)
def serving_port(context: Context) -> Iterator[Verdict]:
    """TCP listeners of any address in /proc/net/tcp and tcp6; port 8000 unless onecat.yaml says otherwise."""
    yield _judge_port(context, context.settings.port, "the server")


@check(
    "serving.proxy-port",
    title="The port of the proxy is free",
    why="nginx answers clients on this port.",
    fix=("sudo ss -ltnp", "end the other program, or set `proxy.listen` in onecat.yaml"),
    source=("https://man7.org/linux/man-pages/man8/ss.8.html",),
)
def serving_proxy_port(context: Context) -> Iterator[Verdict]:
    """TCP listeners as for serving.port; port 8080 unless onecat.yaml says otherwise."""
    if context.settings.proxy_port is None:
        yield Verdict("skip", "Not checked: the deployment has no proxy")
    else:
        yield _judge_port(context, context.settings.proxy_port, "the proxy")


@check(
    "serving.nginx",
    title="nginx is installed, and new enough",
    why="nginx stands in front of the server: limits on size, time and connections, TLS. The server works without it.",
    fix=("Debian, Ubuntu: sudo apt-get install nginx", "or set `proxy: {kind: none}` in onecat.yaml"),
    source=(
        "https://nginx.org/en/docs/install.html",
        "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive_timeout",
    ),
)
def serving_nginx(context: Context) -> Iterator[Verdict]:
    """The program nginx in PATH and the usual directories; its version against what onecat's configuration uses."""
    tools = context.facts.tools
    if context.settings.proxy_port is None:
        yield Verdict("skip", "Not checked: the deployment has no proxy")
    elif tools is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('tools', 'the installed programs are not known')}")
    elif path := tools.path("nginx"):
        version = tools.version("nginx") or ""
        if version_key(version) and version_key(version) < version_key(LEAST_NGINX):
            yield Verdict(
                "warn",
                f"nginx {version} is too old for the configuration that onecat writes",
                evidence=(f"{path}: {version}, needed: {LEAST_NGINX} (keepalive_timeout in upstream)",),
                fix=("install a newer nginx: https://nginx.org/en/linux_packages.html", WITHOUT_PROXY),
            )
        else:
            yield Verdict("pass", f"nginx {version} is installed".replace("  ", " "), evidence=(path,))
    else:
        yield Verdict(
            "info",
            "nginx is not installed: clients reach the server directly",
            evidence=("no program nginx in PATH or the system directories",),
            fix=(
                *install(context.facts.operating_system, debian="nginx", redhat="nginx", suse="nginx"),
                WITHOUT_PROXY,
            ),
        )
