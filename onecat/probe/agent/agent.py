"""The probe: observes the machine it runs on and prints one JSON document in the form of onecat/facts.py.

It needs nothing but Python 3.6, is sent over standard input, writes nothing to disk and needs no rights. Every source
runs in a child process of its own with its own deadline, and sends each fact as soon as it has it: a source that hangs
(a driver call on a dead GPU, a stale network mount) costs only what it had not yet said, and a note tells what it was
doing. All sources run at the same time, so the whole probe takes as long as the slowest of them.

onecat.probe.collect puts the packed text of pynvml (NVIDIA's NVML bindings) before this program as PYNVML_PACKED.
"""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import argparse
import base64
import errno
import http.client
import json
import os
import pwd
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
import zlib

SCHEMA = "onecat.facts/1"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = (
    "docker",
    "gcc",
    "lspci",
    "nginx",
    "npu-smi",
    "numactl",
    "nvcc",
    "nvidia-container-cli",
    "nvidia-ctk",
    "nvidia-persistenced",
    "nvidia-smi",
    "podman",
    "python3",
    "systemctl",
)
LIBRARIES = ("libnuma.so.1",)


class Unknown(Exception):
    """A fact that cannot be had, with the kind of note that says why."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Machine:
    """The files of the observed machine, seen below a root directory, and what the operator said about it."""

    def __init__(self, root, timeout, paths):
        self.root = os.path.abspath(root)
        self.timeout = timeout
        self.paths = paths

    @property
    def is_running(self):
        """Whether the root is the machine that runs this program, not a copy of some files of another one."""
        return self.root == "/"

    def path(self, name):
        return name if self.is_running else os.path.join(self.root, name.lstrip("/"))

    def read(self, name):
        with open(self.path(name), errors="replace") as file:
            return file.read()

    def read_or_none(self, name):
        try:
            return self.read(name).strip()
        except (OSError, ValueError):
            return None

    def exists(self, name):
        return os.path.exists(self.path(name))

    def list(self, name):
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return []

    def find_program(self, name):
        if self.is_running:
            return shutil.which(name, path=os.environ.get("PATH", "") + ":" + SYSTEM_PATH)
        for directory in SYSTEM_PATH.split(":"):
            if os.access(self.path(directory + "/" + name), os.X_OK):
                return directory + "/" + name
        return None


def as_int(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


# --- sources: each takes the machine and an `emit` function, and emits parts of the document -------------------------


def operating_system(machine, emit):
    release = {}
    text = machine.read_or_none("/etc/os-release") or machine.read_or_none("/usr/lib/os-release") or ""
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            release[key.strip()] = value.strip().strip("\"'")
    emit(
        operating_system={
            "id": release.get("ID"),
            "version_id": release.get("VERSION_ID"),
            "pretty_name": release.get("PRETTY_NAME"),
            "kernel": machine.read_or_none("/proc/sys/kernel/osrelease"),
            "architecture": os.uname().machine,
            "libc": libc_version() if machine.is_running else None,
            "container": in_container(machine),
            "init": machine.read_or_none("/proc/1/comm"),
            "python": ".".join(map(str, sys.version_info[:3])),
        }
    )
    if not text:
        raise Unknown("absent", "neither /etc/os-release nor /usr/lib/os-release can be read")


def libc_version():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def in_container(machine):
    if any(machine.exists(name) for name in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")):
        return True
    groups = machine.read_or_none("/proc/1/cgroup")
    if groups is None:
        return None
    if re.search(r"docker|kubepods|containerd|libpod|/lxc", groups):
        return True
    environment = machine.read_or_none("/proc/1/environ") or ""
    return "\0container=" in "\0" + environment


def cpu(machine, emit):
    text = machine.read("/proc/cpuinfo")
    first = {}
    for line in text.split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        first[key.strip()] = value.strip()
    emit(
        cpu={
            "model": first.get("model name") or first.get("Processor") or first.get("CPU part"),
            "logical_cores": len(re.findall(r"^processor\s*:", text, re.MULTILINE)) or None,
            "usable_cores": len(os.sched_getaffinity(0)) if machine.is_running else None,
            "flags": sorted((first.get("flags") or first.get("Features") or "").split()),
        }
    )


def memory(machine, emit):
    sizes = {}
    for line in machine.read("/proc/meminfo").splitlines():
        match = re.match(r"(\w+):\s+(\d+) kB", line)
        if match:
            sizes[match.group(1)] = int(match.group(2)) * 1024
    emit(
        memory={
            "total": sizes.get("MemTotal"),
            "available": sizes.get("MemAvailable"),
            "swap_total": sizes.get("SwapTotal"),
            "cgroup_limit": cgroup_memory_limit(machine),
        }
    )


def cgroup_memory_limit(machine):
    """The lowest memory limit of our control group and the groups above it, in bytes; None without a limit."""
    limits = []
    for line in (machine.read_or_none("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            base, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in group.split("/") if part and part != ".."]
        for depth in range(len(parts), -1, -1):
            limit = as_int(machine.read_or_none("/".join([base] + parts[:depth] + [name])))
            # Version 1 writes "no limit" as the largest page-aligned number.
            if limit is not None and limit < 1 << 60:
                limits.append(limit)
    return min(limits) if limits else None


def filesystems(machine, emit):
    mounts = read_mounts(machine)
    places = [("tmp", os.environ.get("TMPDIR", "/tmp") if machine.is_running else "/tmp"), ("shm", "/dev/shm")]
    for purpose, path in list(machine.paths) + places:
        emit(doing="reading the free space of " + path)
        entry = filesystem(machine, purpose, path, mounts)
        if entry is not None:
            emit(filesystems=[entry])


def read_mounts(machine):
    """Mount points and kinds of file system, longest mount point first."""
    mounts = []
    for line in (machine.read_or_none("/proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        if "-" in fields[6:]:
            point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal.group(1), 8)), fields[4])
            mounts.append((point, fields[fields.index("-", 6) + 1]))
    return sorted(mounts, key=lambda mount: -len(mount[0]))


def filesystem(machine, purpose, path, mounts):
    """Space below a path, or below its nearest existing parent; None for /dev/shm on a machine without it."""
    existing = path
    while not machine.exists(existing) and existing not in ("/", ""):
        if purpose == "shm":
            return None
        existing = os.path.dirname(existing)
    status = os.statvfs(machine.path(existing))
    real = os.path.realpath(existing) if machine.is_running else existing
    kinds = [kind for point, kind in mounts if real == point or real.startswith(point.rstrip("/") + "/")]
    return {
        "purpose": purpose,
        "path": path,
        "total": status.f_blocks * status.f_frsize,
        "available": status.f_bavail * status.f_frsize,
        "inodes_available": status.f_favail if status.f_files else None,
        "kind": kinds[0] if kinds else None,
    }


def selinux(machine, emit):
    enforce = machine.read_or_none("/sys/fs/selinux/enforce")
    if enforce in ("0", "1"):
        emit(selinux={"mode": "enforcing" if enforce == "1" else "permissive"})
    elif "selinuxfs" not in machine.read("/proc/filesystems"):
        # The kernel registers selinuxfs only when SELinux is switched on.
        emit(selinux={"mode": "disabled"})
    else:
        raise Unknown("absent", "the kernel has SELinux but /sys/fs/selinux is not visible here (inside a container?)")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.socket_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


def docker(machine, emit):
    address = docker_address(machine)
    facts = {"socket": address}
    scheme, _, place = address.partition("://")
    emit(doing="asking the Docker daemon at " + address)
    try:
        if scheme == "unix":
            if not os.path.exists(place):
                has_client = machine.find_program("docker") is not None
                facts["state"] = "unreachable" if has_client else "absent"
                facts["error"] = place + " does not exist"
                emit(docker=facts)
                return
            connection = UnixConnection(place, machine.timeout)  # type: http.client.HTTPConnection
        elif scheme == "tcp" and not os.environ.get("DOCKER_TLS_VERIFY"):
            connection = http.client.HTTPConnection(place, timeout=machine.timeout)
        else:
            raise Unknown("error", "DOCKER_HOST is " + address + ": this probe speaks unix:// and plain tcp:// only")
        version = docker_get(connection, "/version")
        info = docker_get(connection, "/info")
    except PermissionError as error:
        facts.update(state="forbidden", error=error.strerror)
        emit(docker=facts)
        return
    except (OSError, http.client.HTTPException, ValueError) as error:
        facts.update(state="unreachable", error=str(error) or type(error).__name__)
        emit(docker=facts)
        return
    facts.update(
        state="reachable",
        server_version=version.get("Version"),
        api_version=version.get("ApiVersion"),
        storage_driver=info.get("Driver"),
        root_directory=info.get("DockerRootDir"),
        cgroup_driver=info.get("CgroupDriver"),
        cgroup_version=info.get("CgroupVersion"),
        runtimes=sorted(info.get("Runtimes") or {}),
        default_runtime=info.get("DefaultRuntime"),
        security_options=info.get("SecurityOptions") or [],
        cdi_devices=[each.get("ID", "") for each in info.get("DiscoveredDevices") or [] if each.get("Source") == "cdi"],
    )
    emit(docker=facts)
    if scheme == "unix" and info.get("DockerRootDir"):
        emit(doing="reading the free space of " + info["DockerRootDir"])
        emit(filesystems=[filesystem(machine, "docker", info["DockerRootDir"], read_mounts(machine))])


def docker_address(machine):
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    system = machine.path("/var/run/docker.sock")
    rootless = os.path.join(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"), "docker.sock")
    if machine.is_running and not os.path.exists(system) and os.path.exists(rootless):
        return "unix://" + rootless
    return "unix://" + system


def docker_get(connection, path):
    connection.request("GET", path, headers={"Host": "localhost"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise ValueError(f"the daemon answers {answer.status} to {path}: {body[:200].decode(errors='replace')}")
    document = json.loads(body.decode())
    if not isinstance(document, dict):
        raise ValueError("what answers at " + path + " is not a Docker daemon")
    return document


def driver(machine, emit):
    """The kernel side: which module is loaded, in which version and flavour."""
    facts = {
        "nouveau_loaded": machine.exists("/sys/module/nouveau")
        or re.search(r"^nouveau ", machine.read_or_none("/proc/modules") or "", re.MULTILINE) is not None
    }
    text = machine.read_or_none("/proc/driver/nvidia/version")
    if text:
        first = text.splitlines()[0]
        match = re.search(r"\b(\d+\.\d+(?:\.\d+)*)\b", first)
        facts["kernel_module_version"] = match.group(1) if match else None
        facts["kernel_module_open"] = "Open Kernel Module" in first
    else:
        facts["kernel_module_version"] = machine.read_or_none("/sys/module/nvidia/version")
    emit(nvidia=facts)


def pci(machine, emit):
    """NVIDIA display functions in sysfs, which needs neither driver nor rights."""
    base = "/sys/bus/pci/devices"
    if not machine.exists(base):
        raise Unknown("absent", base + " does not exist")
    devices = []
    for address in machine.list(base):
        where = base + "/" + address
        read = lambda name, where=where: machine.read_or_none(where + "/" + name)  # noqa: E731
        if read("vendor") != "0x10de" or not (read("class") or "").startswith("0x03"):
            continue
        link = os.path.join(machine.path(where), "driver")
        upstream = os.path.dirname(os.path.realpath(machine.path(where)))
        devices.append(
            {
                "address": address,
                "vendor_id": "10de",
                "device_id": (read("device") or "")[2:],
                "driver": os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None,
                "link_width_current": link_width(read("current_link_width")),
                "link_width_max": link_width(read("max_link_width")),
                "link_speed_current": read("current_link_speed"),
                "link_speed_max": read("max_link_speed"),
                "upstream_link_width_max": link_width(read_file_or_none(os.path.join(upstream, "max_link_width"))),
                "numa_node": as_int(read("numa_node")),
            }
        )
    emit(nvidia={"pci_devices": devices})


def read_file_or_none(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def link_width(text):
    """A PCIe link width; a device that does not answer reads as 0, 63 or 255."""
    width = as_int(text)
    return width if width in (1, 2, 4, 8, 12, 16, 32) else None


def listeners(machine, emit):
    found = set()
    tables = [name for name in ("/proc/net/tcp", "/proc/net/tcp6") if machine.exists(name)]
    if not tables:
        raise Unknown("absent", "/proc/net/tcp cannot be read")
    for name in tables:
        for line in machine.read(name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                found.add((decode_address(address), int(port, 16)))
    emit(listeners=[{"address": address, "port": port} for address, port in sorted(found, key=lambda each: each[::-1])])


def decode_address(text):
    """An address of /proc/net/tcp: 32-bit words in the byte order of the machine."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def tools(machine, emit):
    paths = [(name, machine.find_program(name)) for name in TOOLS]
    emit(tools={"paths": [[name, path] for name, path in paths if path]})
    if not machine.is_running:
        return
    emit(tools={"libraries": [name for name in LIBRARIES if can_be_loaded(name)]})
    nginx = dict(paths)["nginx"]
    if nginx:
        emit(doing="running nginx -v")
        output = subprocess.check_output([nginx, "-v"], stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        match = re.search(rb"nginx/([\d.]+)", output)
        emit(tools={"nginx_version": match.group(1).decode() if match else None})


def can_be_loaded(library):
    import ctypes

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


# --- NVML ------------------------------------------------------------------------------------------------------------


def nvml(machine, emit):
    import ctypes

    emit(doing="loading libnvidia-ml.so.1")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        missing = "cannot open shared object file" in str(error)
        emit(nvidia={"library_found": not missing})
        raise Unknown("absent" if missing else "error", str(error)) from None
    emit(nvidia={"library_found": True, "library_version": loaded_library_version()})
    bindings = load_pynvml()
    emit(doing="in nvmlInit")
    try:
        bindings.nvmlInit()
    except bindings.NVMLError as error:
        emit(nvidia={"nvml_error": error_text(bindings, error)})
        return
    ask = Asker(bindings, emit)
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2") or ask("nvmlSystemGetCudaDriverVersion")
    emit(
        nvidia={
            "driver_version": ask("nvmlSystemGetDriverVersion"),
            "cuda_driver_version": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        }
    )
    for index in range(ask("nvmlDeviceGetCount") or 0):
        ask.subject, ask.lost = f" of GPU {index}", None
        emit(nvidia={"gpus": [gpu(bindings, ask, index)]})


def loaded_library_version():
    """The version in the file name of the loaded NVML library (libnvidia-ml.so.580.95.05)."""
    match = re.search(r"libnvidia-ml\.so\.(\d+\.\d+[\d.]*)", read_file_or_none("/proc/self/maps") or "")
    return match.group(1) if match else None


def load_pynvml():
    packed = globals().get("PYNVML_PACKED")
    if packed is None:
        import pynvml

        return pynvml
    module = types.ModuleType("pynvml")
    sys.modules["pynvml"] = module
    exec(compile(zlib.decompress(base64.b85decode(packed)), "pynvml.py", "exec"), module.__dict__)  # noqa: S102
    return module


def error_text(bindings, error):
    """An NVML error in the library's words, which nvidia-smi uses too; pynvml has words of its own for some."""
    try:
        text = bindings.nvmlErrorString(error.value)
    except Exception:
        return str(error)
    return text.decode(errors="replace") if isinstance(text, bytes) else text


class Asker:
    """Calls NVML functions by name; what a driver does not know or a GPU does not have is None.

    lost: the error of a GPU that was there and does not answer any more.
    """

    def __init__(self, bindings, emit):
        self.bindings = bindings
        self.emit = emit
        self.subject = ""
        self.lost = None

    def __call__(self, name, *arguments):
        self.emit(doing="in " + name + self.subject)
        try:
            answer = getattr(self.bindings, name)(*arguments)
        except self.bindings.NVMLError as error:
            if error.value in (self.bindings.NVML_ERROR_GPU_IS_LOST, self.bindings.NVML_ERROR_RESET_REQUIRED):
                self.lost = error_text(self.bindings, error)
            return None
        except (self.bindings.NVMLLibraryMismatchError, AttributeError):
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def gpu(bindings, ask, index):
    ask.emit(doing="in nvmlDeviceGetHandleByIndex" + ask.subject)
    try:
        handle = bindings.nvmlDeviceGetHandleByIndex(index)
    except bindings.NVMLError as error:
        return {"index": index, "name": "unknown", "error": error_text(bindings, error)}
    get = lambda name, *arguments: ask(name, handle, *arguments)  # noqa: E731
    capability = get("nvmlDeviceGetCudaComputeCapability")
    # Version 2 counts the driver's own reserve apart, so that an idle GPU shows as unused.
    sizes = get("nvmlDeviceGetMemoryInfo", bindings.nvmlMemory_v2) or get("nvmlDeviceGetMemoryInfo")
    utilization = get("nvmlDeviceGetUtilizationRates")
    retired = [get("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    remapped = get("nvmlDeviceGetRemappedRows")
    events = get("nvmlDeviceGetCurrentClocksEventReasons")
    if events is None:
        events = get("nvmlDeviceGetCurrentClocksThrottleReasons")
    ecc = get("nvmlDeviceGetEccMode")
    mig = get("nvmlDeviceGetMigMode")
    pci_info = get("nvmlDeviceGetPciInfo")
    power = get("nvmlDeviceGetPowerManagementLimit")
    power_default = get("nvmlDeviceGetPowerManagementDefaultLimit")
    state = get("nvmlDeviceGetPerformanceState")
    return {
        "index": index,
        "name": get("nvmlDeviceGetName") or "unknown",
        "uuid": get("nvmlDeviceGetUUID"),
        "pci_address": pci_address(pci_info),
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        "memory_total": sizes.total if sizes else None,
        "memory_used": sizes.used if sizes else None,
        "performance_state": state if state is not None and state < 16 else None,
        "utilization_percent": utilization.gpu if utilization else None,
        "temperature_celsius": get("nvmlDeviceGetTemperature", 0),
        "power_limit_watts": power / 1000.0 if power is not None else None,
        "power_limit_default_watts": power_default / 1000.0 if power_default is not None else None,
        "persistence_mode": as_bool(get("nvmlDeviceGetPersistenceMode")),
        "compute_mode": compute_mode(get("nvmlDeviceGetComputeMode")),
        "mig_enabled": as_bool(mig[0]) if mig else None,
        "ecc_enabled": as_bool(ecc[0]) if ecc else None,
        "ecc_uncorrected_volatile": get("nvmlDeviceGetTotalEccErrors", 1, 0),
        "ecc_uncorrected_aggregate": get("nvmlDeviceGetTotalEccErrors", 1, 1),
        "retired_pages": sum(len(pages) for pages in retired if pages is not None) if any_known(retired) else None,
        "retired_pages_pending": as_bool(get("nvmlDeviceGetRetiredPagesPendingStatus")),
        "remapped_rows_pending": as_bool(remapped[2]) if remapped else None,
        "remapped_rows_failure": as_bool(remapped[3]) if remapped else None,
        "pcie_generation_current": get("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_max": get("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_current": get("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": get("nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_replay_counter": get("nvmlDeviceGetPcieReplayCounter"),
        "memory_clock_mhz": get("nvmlDeviceGetClockInfo", 2),
        "memory_clock_max_mhz": get("nvmlDeviceGetMaxClockInfo", 2),
        "event_reasons": events,
        "process_ids": process_ids(get),
        "error": ask.lost,
    }


def any_known(values):
    return any(value is not None for value in values)


def as_bool(value):
    return None if value is None else bool(value)


def compute_mode(value):
    return {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}.get(value)


def pci_address(info):
    """An NVML bus id in sysfs spelling: 00000000:3B:00.0 -> 0000:3b:00.0."""
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else info.busId
    domain, _, rest = text.lower().partition(":")
    return domain[-4:] + ":" + rest if rest else None


def process_ids(get):
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"):
        processes = get(name)
        if processes is not None:
            return sorted(process.pid for process in processes)
    return None


SOURCES = {
    "os": operating_system,
    "cpu": cpu,
    "memory": memory,
    "filesystems": filesystems,
    "selinux": selinux,
    "docker": docker,
    "driver": driver,
    "nvml": nvml,
    "pci": pci,
    "listeners": listeners,
    "tools": tools,
}


# --- running the sources ---------------------------------------------------------------------------------------------


class Child:
    """A source in a process of its own; what it emits arrives as lines of JSON."""

    def __init__(self, name, source, machine):
        self.name = name
        self.doing = None
        self.buffer = b""
        self.parts = []
        self.note = None
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            os.setpgid(0, 0)
            run_source(name, source, machine, writer)
        os.close(writer)
        self.reader = reader

    def receive(self):
        """Read what has arrived; False at the end."""
        data = os.read(self.reader, 65536)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            part = json.loads(line.decode())
            self.doing = part.pop("doing", self.doing)
            self.note = part.pop("note", self.note)
            if part:
                self.parts.append(part)
        return bool(data)

    def finish(self):
        """Collect a child that closed its pipe; a death by signal becomes the note."""
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            self.fail("error", f"died of signal {os.WTERMSIG(status)}")

    def kill(self, timeout):
        """Give up on a child and what it started. It is not waited for: one stuck in the kernel cannot be killed."""
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG)
        self.fail("timeout", f"no answer within {timeout:g} s")

    def fail(self, kind, text):
        text += " while " + self.doing if self.doing else ""
        self.note = {"source": self.name, "kind": kind, "text": text}


def run_source(name, source, machine, writer):
    """The life of a child: never returns, never touches the standard streams of the probe."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def emit(**part):
        os.write(writer, json.dumps(part).encode() + b"\n")

    try:
        try:
            source(machine, emit)
        except Unknown as unknown:
            emit(note={"source": name, "kind": unknown.kind, "text": str(unknown)})
        except OSError as error:
            kinds = {errno.ENOENT: "absent", errno.EACCES: "permission", errno.EPERM: "permission"}
            emit(note={"source": name, "kind": kinds.get(error.errno or 0, "error"), "text": str(error)})
        except Exception:
            emit(note={"source": name, "kind": "error", "text": traceback.format_exc(limit=-1).splitlines()[-1]})
    finally:
        os._exit(0)


def merge(document, part):
    """Put a part into the document: objects are merged, lists grow."""
    for key, value in part.items():
        if isinstance(value, dict):
            merge(document.setdefault(key, {}), value)
        elif isinstance(value, list):
            document[key] = document.get(key, []) + value
        else:
            document[key] = value


def observe(machine, names):
    """Run the named sources side by side. Returns the parts of the document that they gave and their notes."""
    deadline = time.monotonic() + machine.timeout
    children = [Child(name, SOURCES[name], machine) for name in names]
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.reader, selectors.EVENT_READ, child)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            for key, _ in selector.select(remaining):
                if not key.data.receive():
                    selector.unregister(key.fd)
                    key.data.finish()
        for key in list(selector.get_map().values()):
            key.data.kill(machine.timeout)
    document = {}  # type: dict[str, object]
    for child in children:
        for part in child.parts:
            merge(document, part)
    document["notes"] = [child.note for child in children if child.note]
    return document


def parse_path(text):
    purpose, separator, path = text.partition("=")
    if not separator or not path.startswith("/"):
        raise argparse.ArgumentTypeError("expected PURPOSE=/ABSOLUTE/PATH, found " + text)
    return purpose, path


def user_name():
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def main(arguments):
    parser = argparse.ArgumentParser(prog="onecat-probe", description="Print the facts of this machine as JSON.")
    parser.add_argument("--host", default="local", help="name of the host in the document")
    parser.add_argument("--root", default="/", help="read /proc, /sys and /etc below this directory")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that each source may take")
    parser.add_argument("--path", type=parse_path, action="append", default=[], help="PURPOSE=PATH to measure space of")
    options = parser.parse_args(arguments)
    document = {
        "schema": SCHEMA,
        "host": options.host,
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "user": user_name(),
        "is_root": os.geteuid() == 0,
    }
    document.update(observe(Machine(options.root, options.timeout, options.path), list(SOURCES)))
    json.dump(document, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
