"""Doctor on a fleet next to its peers: 16 containers with sshd on this machine, in one run, turn by turn.

Run it as root by `make bench-fleet`. It compares, each as a process of its own from start to end:

- onecat doctor: all facts and all checks of each host
- pyinfra: four facts
- ansible-core: its setup module, 16 forks
- a bare loop: paramiko and one `python3 -` on each host, in threads

and measures onecat's memory on 64 hosts and its time on this machine alone. The peers are installed with pinned
versions into a virtual environment in the tests' cache, outside the checkout. Ends with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.testbed import base_image, docker_daemon, ssh_host  # noqa: E402
from tests.testbed.cache import Cache, open_cache  # noqa: E402

PEERS = ("pyinfra==3.10.0", "ansible-core==2.19.14")
HOSTS = 16
MANY_HOSTS = 64
MOST_MEMORY_MB = 120
MOST_LOCAL_SECONDS = 0.5
LEAST_TIMES_FASTER_THAN_ANSIBLE = 5
PYINFRA_FACTS = ("server.Hostname", "server.LinuxDistribution", "hardware.Memory", "hardware.Cpus")
BARE_LOOP = """\
import concurrent.futures, paramiko, pathlib, sys
config = paramiko.SSHConfig.from_path(pathlib.Path.home() / ".ssh" / "config")
def ask(name):
    client = paramiko.SSHClient()
    client.load_host_keys(str(pathlib.Path.home() / ".ssh" / "known_hosts"))
    found = config.lookup(name)
    client.connect(found["hostname"], username=found["user"], key_filename=found["identityfile"], allow_agent=False)
    stdin, stdout, _ = client.exec_command("python3 -")
    stdin.write("import platform; print(platform.platform())")
    stdin.channel.shutdown_write()
    answer = stdout.read()
    client.close()
    return answer
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    assert all(pool.map(ask, sys.argv[1:]))
"""


@dataclass(frozen=True)
class Run:
    """How a command went. memory: the largest resident set of it or of one of its children, in MB."""

    seconds: float
    memory: float
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each command runs (default: 5)")
    rounds = parser.parse_args().rounds
    # What pip does with the peers when it installs them, and with onecat where it is not a checkout.
    compileall.compile_dir(REPOSITORY / "onecat", quiet=1)
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(open_cache())
        peers = install_peers(cache)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onecat-bench-")))
        home = start_hosts(stack, cache, work)
        return compare(home, peers, rounds)


def install_peers(cache: Cache) -> Path:
    """The folder of programs of a virtual environment with the peers."""
    folder = cache.folder("peers") / "-".join(PEERS).replace("=", "")
    programs = folder / "bin"
    with cache.lock("peers"):
        if not (folder / "complete").exists():
            print(f"installing {', '.join(PEERS)}", flush=True)
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run([str(programs / "pip"), "install", "-qq", *PEERS], check=True)
            (folder / "complete").touch()
    return programs


def start_hosts(stack: contextlib.ExitStack, cache: Cache, work: Path) -> Path:
    """Start the containers; returns a home whose ~/.ssh knows them as gpu0 to gpu63, each container by four names."""
    import docker

    print(f"starting {HOSTS} containers with sshd", flush=True)
    data_root = Path(tempfile.mkdtemp(prefix="onecat-bench-docker-"))
    stack.callback(subprocess.run, ["rm", "-rf", str(data_root)], check=True)
    daemon = stack.enter_context(docker_daemon.running_docker_daemon(data_root))
    client = stack.enter_context(contextlib.closing(docker.DockerClient(base_url=daemon.host, timeout=600)))
    base_image.ensure_base_image(client, cache)
    image = ssh_host.ensure_ssh_image(client)
    hosts = [
        stack.enter_context(ssh_host.running_ssh_host(client, image, work / f"host{number}")) for number in range(HOSTS)
    ]
    folder = work / "home" / ".ssh"
    folder.mkdir(mode=0o700, parents=True)
    blocks = []
    for number in range(MANY_HOSTS):
        host = hosts[number % HOSTS]
        blocks += [f"Host gpu{number}", f"  HostName {host.address}", f"  User {host.user}"]
        blocks += [f"  IdentityFile {host.key}", "  IdentitiesOnly yes"]
    (folder / "config").write_text("\n".join(blocks) + "\n")
    (folder / "known_hosts").write_text("".join(host.known_hosts.read_text() for host in hosts))
    return folder.parent


def compare(home: Path, peers: Path, rounds: int) -> int:
    """Run everything and print the figures. Returns 1 when a target is missed."""
    names = [f"gpu{number}" for number in range(HOSTS)]
    onecat = str(Path(sys.executable).with_name("onecat"))
    (home / "inventory").write_text("\n".join(names) + "\n")
    (home / "bare_loop.py").write_text(BARE_LOOP)
    commands = {
        "onecat doctor": [onecat, "doctor", "--json", "--host", ",".join(names)],
        "pyinfra, 4 facts": [str(peers / "pyinfra"), "-y", ",".join(names), "fact", *PYINFRA_FACTS],
        "ansible setup": [str(peers / "ansible"), "all", "-i", str(home / "inventory"), "-m", "setup", "-f", "16"],
        "bare loop": [str(peers / "python"), str(home / "bare_loop.py"), *names],
    }
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            done = run(argv, environment(home, number))
            if name == "onecat doctor":
                check_report(done.output, HOSTS)
            if number:  # the first round fills the caches of all of them
                runs[name].append(done)
        print(f"round {number} of {rounds}", flush=True)
    many = [f"gpu{number}" for number in range(MANY_HOSTS)]
    fleet = run([onecat, "doctor", "--json", "--host", ",".join(many)], environment(home, 0))
    check_report(fleet.output, MANY_HOSTS)
    local = [run([onecat, "doctor", "--json"], environment(home, 0)) for _ in range(rounds)]
    return tell(runs, fleet, local)


def tell(runs: dict[str, list[Run]], fleet: Run, local: Sequence[Run]) -> int:
    """Print the figures and whether the targets are met."""
    print(f"\n{HOSTS} hosts, {os.cpu_count()} cores, median (least) of {len(local)} rounds")
    for name, each in runs.items():
        least = min(done.seconds for done in each)
        print(f"  {name:<18} {median(each):6.2f} s ({least:.2f})  {max(done.memory for done in each):6.0f} MB")
    print(f"  onecat on {MANY_HOSTS} hosts {fleet.seconds:6.2f} s         {fleet.memory:6.0f} MB")
    print(f"  onecat here        {median(local):6.2f} s")
    ours, ansible = median(runs["onecat doctor"]), median(runs["ansible setup"])
    targets = {
        f"not slower than pyinfra: {ours / median(runs['pyinfra, 4 facts']):.2f} of its time": ours
        <= median(runs["pyinfra, 4 facts"]),
        f"{LEAST_TIMES_FASTER_THAN_ANSIBLE}x faster than ansible: {ansible / ours:.1f}x": ansible
        >= LEAST_TIMES_FASTER_THAN_ANSIBLE * ours,
        f"{MANY_HOSTS} hosts in {MOST_MEMORY_MB} MB: {fleet.memory:.0f} MB": fleet.memory < MOST_MEMORY_MB,
        f"this machine in {MOST_LOCAL_SECONDS} s: {median(local):.2f} s": median(local) < MOST_LOCAL_SECONDS,
    }
    for text, is_met in targets.items():
        print(f"  {'met   ' if is_met else 'MISSED'}  {text}")
    return 0 if all(targets.values()) else 1


def median(runs: Sequence[Run]) -> float:
    return statistics.median(done.seconds for done in runs)


def environment(home: Path, number: int) -> dict[str, str]:
    """The environment of one run. ansible calls ssh, which looks for its files in the home that the system names."""
    options = f"-F {home}/.ssh/config -o UserKnownHostsFile={home}/.ssh/known_hosts"
    kept = {name: value for name, value in os.environ.items() if name not in ("SSH_AUTH_SOCK", "DOCKER_HOST")}
    return {
        **kept,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        # What ansible does by default, but that no round finds the connections of the one before.
        "ANSIBLE_SSH_ARGS": f"-C -o ControlMaster=auto -o ControlPersist=2s {options}",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{home}/{number}",
    }


def run(argv: Sequence[str], environment: dict[str, str]) -> Run:
    """Run a command to its end. Raises RuntimeError when it fails; 1 is doctor's answer "no"."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.monotonic()
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        text = output.read()
        if process.returncode not in (0, 1) or (process.returncode == 1 and "doctor" not in argv):
            raise RuntimeError(f"{argv[0]}: exit code {process.returncode}\n{text[-2000:]}\n{errors.read()[-2000:]}")
    return Run(seconds, usage.ru_maxrss / 1024, text)


def check_report(output: str, count: int) -> None:
    """Raise RuntimeError unless doctor has examined all hosts."""
    hosts = json.loads(output)["hosts"]
    if len(hosts) != count or not all(host["reachable"] and len(host["findings"]) > 50 for host in hosts):
        raise RuntimeError(f"doctor did not examine all {count} hosts: {output[:2000]}")


if __name__ == "__main__":
    sys.exit(main())
