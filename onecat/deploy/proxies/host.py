"""The host's own nginx: one file of ours in its conf.d, as root; files of others are never written.

nginx itself is asked about everything: `nginx -T` tells where conf.d is, and a configuration that it does not take, or
that has two sites of one name, is never loaded.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onecat.deploy.client_keys import render_keys
from onecat.deploy.nginx_build import NginxBuild
from onecat.deploy.proxies.host_configuration import (
    Clash,
    Dump,
    clashes,
    conflicting_names,
    parse_dump,
    with_included,
)
from onecat.deploy.proxies.program import (
    build_of,
    master_state,
    need_nginx,
    objection_to_reload,
    place_of,
    refused,
    require_modules,
    size_of,
    words_of,
    workers_of,
)
from onecat.deploy.releases import ProxyKind
from onecat.deploy.site import Site, render_servers, render_site, without_marks
from onecat.errors import ExitCode, OnecatError

if TYPE_CHECKING:
    from onecat.deploy.store import DeploymentStore
    from onecat.hosts import Machine


_HOME = "# Its deployment lies in "


class HostNginx:
    """See Proxy."""

    kind: ProxyKind = "host"
    after_reboot = True

    def __init__(self, store: DeploymentStore) -> None:
        self._store = store
        self._name = store.name
        # Neither changes while one command runs, and asking takes a program each time.
        self._known_build: NginxBuild | None = None
        self._known_pid_path: str | None = None

    def check(self, site: Site, directory: str) -> None:
        root = self._root()
        with self._without_our_broken_file(root, for_good=False):
            dump = self._dump()
            self._refuse_anothers(root, dump)
            text = self._text(root, dump, site)
            self._store.machine.make_directory(directory)
            self._store.machine.write(f"{directory}/{site.file_name}", text.encode())
            self._check_beside_others(root, dump, site, text)

    def apply(self, site: Site) -> None:
        root = self._root()
        with self._without_our_broken_file(root, for_good=True):
            self._replace(root, self._dump(), site)

    def remove(self) -> None:
        root, dump = self._root(), self._dump()
        paths = (self._site_path(dump), self._keys_path(dump), self._servers_path(dump))
        before = {path: root.read(path) for path in paths}
        for path in self._trial_paths(dump):  # of a check that was killed
            root.remove(path)
        if before[paths[0]] is None:
            for path in paths[1:]:
                root.remove(path)
            return
        if self._whose(root, dump) is not None:
            return
        try:
            for path in paths:
                root.remove(path)
            if self._pid(root, dump) is not None:
                self._reload(root)
        except BaseException:
            self._put_back(root, before)
            raise

    def files(self) -> dict[str, bytes]:
        root = self._root()
        found = host_configuration(root)
        # Where somebody has broken a file, nginx does not tell which folder it would read.
        folder = found.site_directory if isinstance(found, Dump) else self._usual_folder(root)
        paths = (f"{folder}/onecat-{self._name}.{end}" for end in ("conf", "keys"))
        contents = {path: root.read(path) for path in paths}
        servers = root.read(f"{folder}/onecat-{self._name}.servers")
        if servers is not None:
            text = without_marks(servers.decode("utf-8", "replace"))
            contents[f"{folder}/onecat-{self._name}.servers"] = text.encode()
        return {path: content for path, content in contents.items() if content is not None}

    def servers_path(self) -> str:
        return self._servers_path(self._dump())

    def argv(self, *words: str) -> tuple[Machine, list[str]]:
        root = self._root()
        return root, [need_nginx(root), *words]

    def running(self) -> bool:
        root = self._store.machine.root()
        if root is None:
            return False
        found = host_configuration(root)
        if isinstance(found, OnecatError):
            # Somebody broke a file after nginx had read it: it serves on by what it has read.
            return self._serves_on(root)
        is_there = root.status(self._site_path(found)) is not None and self._whose(root, found) is None
        return is_there and self._pid(root, found) is not None

    def pid(self) -> int | None:
        root = self._store.machine.root()
        return None if root is None else self._any_pid(root)

    def workers(self) -> frozenset[int]:
        root = self._store.machine.root()
        return frozenset() if root is None else workers_of(root, self._any_pid(root))

    def access_lines(self, count: int) -> list[str]:
        root = self._root()
        path = self._access_log(self._build(root))
        return root.run(["tail", "-n", str(count), path]).stdout.decode("utf-8", "replace").splitlines()

    def access_log_path(self) -> str:
        """See Proxy."""
        return self._access_log(self._build(self._root()))

    def error_log_path(self) -> str:
        """See Proxy."""
        return self._dump().error_log(self._build(self._root()))

    # --- what is where ---

    def _root(self) -> Machine:
        root = self._store.machine.root()
        if root is None:
            raise OnecatError(
                "only root may give the host's nginx a site",
                where=self._store.machine.name,
                next_steps=["run onecat as root, or with sudo", "or set proxy.instance: own in onecat.yaml"],
                code=ExitCode.ROLLED_BACK,
            )
        return root

    def _dump(self) -> Dump:
        found = host_configuration(self._root())
        if isinstance(found, OnecatError):
            raise found
        return found

    def _build(self, root: Machine) -> NginxBuild:
        if self._known_build is None:
            self._known_build = build_of(root, need_nginx(root))
        return self._known_build

    def _text(self, root: Machine, dump: Dump, site: Site) -> str:
        build = self._build(root)
        require_modules(site, build, root.name)
        text = render_site(site, self._access_log(build), build, self._keys_path(dump), self._servers_path(dump))
        return f"{_HOME}{self._store.directory}\n{text}"

    def _site_path(self, dump: Dump) -> str:
        return f"{dump.site_directory}/onecat-{self._name}.conf"

    def _trial_paths(self, dump: Dump) -> tuple[str, str, str, str]:
        """Beside nginx.conf, where its relative paths mean the same: another one of it, our site, keys, servers."""
        folder = posixpath.dirname(dump.main)
        ends = ("trial", "candidate", "keys", "servers")
        trial, candidate, keys, servers = (f"{folder}/.onecat-{self._name}.{end}" for end in ends)
        return trial, candidate, keys, servers

    def _servers_path(self, dump: Dump) -> str:
        return f"{dump.site_directory}/onecat-{self._name}.servers"

    def _keys_path(self, dump: Dump) -> str:
        return f"{dump.site_directory}/onecat-{self._name}.keys"

    def _access_log(self, build: NginxBuild) -> str:
        """Beside nginx's own log, where the distribution's log rotation finds it."""
        folder = posixpath.dirname(build.path("http-log-path") or "/var/log/nginx/access.log")
        return f"{folder}/onecat-{self._name}.access.log"

    def _pid(self, root: Machine, dump: Dump) -> int | None:
        self._known_pid_path = dump.pid_path(self._build(root))
        return running_pid(root, self._known_pid_path)

    def _any_pid(self, root: Machine) -> int | None:
        """The master process, also while nginx could not read its files any more."""
        if self._known_pid_path is None:
            found = host_configuration(root)
            if isinstance(found, Dump):
                return self._pid(root, found)
        return running_pid(root, self._known_pid_path or self._build(root).path("pid-path") or "/run/nginx.pid")

    def _serves_on(self, root: Machine) -> bool:
        site = f"{self._usual_folder(root)}/onecat-{self._name}.conf"
        return self._any_pid(root) is not None and root.status(site) is not None

    def _usual_folder(self, root: Machine) -> str:
        return posixpath.dirname(self._build(root).path("conf-path") or "/etc/nginx/nginx.conf") + "/conf.d"

    def _whose(self, root: Machine, dump: Dump) -> str | None:
        """The directory of the deployment that the site of our name belongs to, where that is another one; else None.

        One whose directory is gone belongs to nobody any more.
        """
        text = (root.read(self._site_path(dump)) or b"").decode(errors="replace")
        lines = (line.removeprefix(_HOME) for line in text.splitlines() if line.startswith(_HOME))
        found = next(lines, self._store.directory)
        return None if found == self._store.directory or root.status(found) is None else found

    def _refuse_anothers(self, root: Machine, dump: Dump) -> None:
        directory = self._whose(root, dump)
        if directory is None:
            return
        home = directory.partition("/deployments/")[0]
        raise OnecatError(
            f"the host's nginx has a site of a deployment {self._name} from another ONECAT_HOME",
            expected="one of this name on a host with one nginx",
            where=self._site_path(dump),
            details=[f"it lies in {directory}"],
            next_steps=[
                "give this deployment another name in onecat.yaml",
                f"or end the other one: ONECAT_HOME={home} onecat down {self._name}",
                "or set proxy.instance: own in onecat.yaml",
            ],
            code=ExitCode.ROLLED_BACK,
        )

    # --- what is done ---

    def _replace(self, root: Machine, dump: Dump, site: Site) -> None:
        self._refuse_anothers(root, dump)
        text = self._text(root, dump, site)
        self._check_beside_others(root, dump, site, text)
        paths = (self._site_path(dump), self._keys_path(dump), self._servers_path(dump))
        before = {path: root.read(path) for path in paths}
        try:
            if site.probed:
                servers = render_servers(site, (before[paths[2]] or b"").decode("utf-8", "replace"))
                root.write(paths[2], servers.encode(), 0o644)
            if site.checks_keys and site.keys is not None:
                root.write(paths[1], render_keys(site.identifier, site.keys).encode(), 0o600)
            root.write(paths[0], text.encode(), 0o644)
            if not site.probed:
                root.remove(paths[2])
            self._reload(root)
        except BaseException:
            self._put_back(root, before)
            raise

    @contextlib.contextmanager
    def _without_our_broken_file(self, root: Machine, *, for_good: bool) -> Iterator[None]:
        """Where it is our own file that nginx does not take, set it aside, so that the others' can be judged.

        It comes back when the block fails, or in any case where it is not for good.
        """
        found = host_configuration(root)
        path = found.where.rpartition(":")[0] if isinstance(found, OnecatError) and found.where else ""
        if posixpath.basename(path) not in {f"onecat-{self._name}.{end}" for end in ("conf", "keys", "servers")}:
            yield
            return
        content = root.read(path) or b""
        root.remove(path)
        try:
            yield
        except BaseException:
            self._put_back(root, {path: content})
            raise
        if not for_good:
            self._put_back(root, {path: content})

    def _check_beside_others(self, root: Machine, dump: Dump, site: Site, text: str) -> None:
        """Let nginx judge all files of the host with the new one in place of ours, before ours is changed."""
        found = clashes(dump, site, self._site_path(dump))
        if found:
            raise _clash(site, found[0])
        ours = self._site_path(dump)
        trial, candidate, keys, servers = self._trial_paths(dump)
        others = [
            f"{dump.site_directory}/{name}"
            for name in root.names(dump.site_directory)
            if name.endswith(".conf") and not name.startswith(".") and f"{dump.site_directory}/{name}" != ours
        ]
        if site.checks_keys:
            content = root.read(self._keys_path(dump)) if site.keys is None else None
            written = render_keys(site.identifier, site.keys).encode() if site.keys is not None else content or b""
            root.write(keys, written, 0o600)
            text = text.replace(f"include {self._keys_path(dump)};", f"include {keys};")
        if site.is_probed:
            root.write(servers, render_servers(site).encode(), 0o644)
            text = text.replace(f"include {self._servers_path(dump)};", f"include {servers};")
        try:
            root.write(candidate, text.encode(), 0o600)
            root.write(trial, with_included(dump, [*others, candidate]).encode(), 0o600)
            tested = root.run([need_nginx(root), "-t", "-c", trial])
        finally:
            for path in (trial, candidate, keys, servers):
                root.remove(path)
        words = words_of(tested)
        if tested.exit_code != 0:
            raise refused(words, ours, "the host's nginx does not accept the site with its other ones")
        mine = set(site.server_name.split())
        if taken := [line for line in conflicting_names(words) if line.name in mine]:
            raise _clash(site, taken[0])

    def _reload(self, root: Machine) -> None:
        """Test all files, let nginx read them, and see that it has. Raises OnecatError."""
        dump = self._dump()
        pid = self._pid(root, dump)
        if pid is None:
            raise not_running(root)
        before = workers_of(root, pid)
        log = dump.error_log(self._build(root))
        seen = size_of(root, log)
        told = root.run([need_nginx(root), "-s", "reload"])
        if told.exit_code != 0:
            raise refused(words_of(told), dump.main)
        words = objection_to_reload(root, lambda: workers_of(root, pid), before, (log, seen))
        if words is not None:
            raise refused(words, log, "the host's nginx goes on with its configuration of before")

    def _put_back(self, root: Machine, before: dict[str, bytes | None]) -> None:
        for path, content in before.items():
            if content is None:
                root.remove(path)
            else:
                root.write(path, content, 0o600 if path.endswith(".keys") else 0o644)


def host_configuration(root: Machine) -> Dump | OnecatError:
    """All that the host's nginx would read now; an OnecatError, not raised, with whose file and line it would refuse,
    or that conf.d is none of its folders."""
    program = need_nginx(root)
    dumped = root.run([program, "-T"])
    if dumped.exit_code != 0:
        return broken(words_of(dumped), root)
    dump = parse_dump(dumped.stdout.decode(errors="replace"))
    if dump is None:
        return OnecatError(
            "the host's nginx reads no folder conf.d",
            expected="include conf.d/*.conf; in the http block of nginx.conf",
            where=build_of(root, program).path("conf-path"),
            next_steps=["add it: include /etc/nginx/conf.d/*.conf;", "or set proxy.instance: own in onecat.yaml"],
            code=ExitCode.ROLLED_BACK,
        )
    return dump


def broken(words: str, root: Machine) -> OnecatError:
    """What to tell when the host's nginx is broken before anything of ours is changed."""
    place = place_of(words)
    lines = [line for line in words.splitlines() if "[emerg]" in line] or words.splitlines()
    return OnecatError(
        "the configuration of the host's nginx is broken already" + (f": see {place}" if place else ""),
        where=place or root.name,
        details=lines[:5],
        expected="nginx -t without an error; nothing was changed, and nginx serves as before",
        next_steps=[f"mend {place.rpartition(':')[0]}" if place else "mend it", "nginx -t", "then type it again"],
        code=ExitCode.ROLLED_BACK,
    )


def not_running(root: Machine) -> OnecatError:
    """What to tell when the host has nginx and does not run it."""
    return OnecatError(
        "the host's nginx does not run",
        where=root.name,
        next_steps=["systemctl enable --now nginx", "or set proxy.instance: own in onecat.yaml"],
        code=ExitCode.ROLLED_BACK,
    )


def running_pid(root: Machine, path: str) -> int | None:
    """The master process that an nginx's pid file names, when it lives."""
    text = (root.read(path) or b"").decode(errors="replace").strip()
    if not text.isdigit():
        return None
    title = master_state(root, int(text))
    return int(text) if title is not None and "nginx" in title else None


def _clash(site: Site, clash: Clash) -> OnecatError:
    return OnecatError(
        clash.told,
        expected="a name, or an address and port, that no other site of this nginx has",
        where=clash.where,
        next_steps=[
            "set proxy.server_name in onecat.yaml to a name of its own, or proxy.listen to another port",
            "or set proxy.instance: own in onecat.yaml",
        ],
        code=ExitCode.ROLLED_BACK,
    )
