"""Huawei Ascend NPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.findings import Status
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted, gibibytes
from onecat.facts import Ascend
from onecat.knowledge.ascend import ascend_chip, ascend_table

INSTALLATION = "https://docs.vllm.ai/projects/ascend/en/v0.23.0/installation.html"
VERSIONS = "https://github.com/vllm-project/vllm-ascend/blob/main/docs/source/community/versioning_policy.md"
MACHINES = ("aarch64", "x86_64")
DRIVER_RUN = "install driver and firmware: sudo ./Ascend-hdk-*-npu-driver_*.run --full, then the firmware, then restart"
SHARE_HELD = 0.2


def _ascend(context: Context) -> Ascend:
    return context.facts.ascend or Ascend()


@check(
    "ascend.npu-smi",
    title="The Ascend driver shows the NPUs",
    why="npu-smi talks to the driver: what it does not show, no engine can use.",
    fix=("npu-smi info", DRIVER_RUN),
    source=(INSTALLATION,),
    requires=(requirements.ascend,),
)
def ascend_npu_smi(context: Context) -> Iterator[Verdict]:
    """The NPUs that npu-smi lists, against the accelerators of Huawei's on the PCI bus."""
    ascend = _ascend(context)
    if ascend.npus:
        version = f" (npu-smi {ascend.npu_smi_version})" if ascend.npu_smi_version else ""
        yield Verdict("pass", f"{counted(len(ascend.npus), 'NPU')}{version}")
        return
    note = context.facts.note("ascend")
    if note is not None and note.kind == "timeout":
        yield Verdict(
            "fail",
            "npu-smi hangs",
            evidence=(note.text,),
            fix=("sudo dmesg -T | grep -i -E 'davinci|devdrv' | tail", "a restart of the host resets the NPUs"),
        )
    elif ascend.files is None:
        yield Verdict("skip", "Not checked: whether the driver is installed is not known")
    else:
        missing = "/usr/local/bin/npu-smi" not in ascend.files and ascend.npu_smi_version is None
        yield Verdict(
            "fail",
            "The Ascend driver is not installed" if missing else "npu-smi shows no NPU",
            evidence=(f"on the bus: {', '.join(ascend.pci_devices) or 'nothing'}", "npu-smi lists none"),
            fix=(DRIVER_RUN,) if missing else ("npu-smi info", "sudo dmesg -T | grep -i -E 'davinci|devdrv' | tail"),
        )


@check(
    "ascend.chip",
    title="vllm-ascend runs on these NPUs",
    why="vllm-ascend is built for Atlas A2, A3, 300I Duo and 950; the first generation (910A, 910ProB) lacks what it "
    "needs.",
    fix=("use a host with Atlas A2 (910B) or newer",),
    source=(INSTALLATION,),
    requires=(requirements.ascend,),
)
def ascend_chip_supported(context: Context) -> Iterator[Verdict]:
    """The names that npu-smi shows."""
    names = sorted({npu.name for npu in _ascend(context).npus if npu.name})
    if not names:
        yield Verdict("skip", "Not checked: the names of the NPUs are not known")
    for name in names:
        chip = ascend_chip(name)
        if chip is None:
            yield Verdict("skip", f"Not checked: {name} says too little of the chip", name)
        elif chip.supported:
            yield Verdict("pass", f"{name} is {chip.series}", name)
        else:
            yield Verdict(
                "fail",
                f"vllm-ascend does not run on {name} ({chip.series})",
                name,
                (f"npu-smi info: {name}",),
                fix=("use a host with Atlas A2 (910B) or newer",),
            )


@check(
    "ascend.devices",
    title="The NPUs' device files are there",
    why="A server needs /dev/davinciN of its NPUs and the three nodes that manage them, handed over one by one to a "
    "container.",
    fix=("ls -l /dev/davinci*", DRIVER_RUN),
    source=(INSTALLATION,),
    requires=(requirements.ascend,),
)
def ascend_devices(context: Context) -> Iterator[Verdict]:
    """The device files that serving needs, and one davinci device for each NPU."""
    ascend = _ascend(context)
    if ascend.files is None:
        yield Verdict("skip", "Not checked: which device files there are is not known")
        return
    missing = [path for path in ascend_table().device_nodes if path not in ascend.files]
    nodes = [path for path in ascend.files if path.removeprefix("/dev/davinci").isdigit()]
    if not nodes and not missing:
        missing = ["/dev/davinci0"]
    if missing:
        yield Verdict(
            "fail",
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            evidence=(f"there are: {', '.join(path for path in ascend.files if path.startswith('/dev/')) or 'none'}",),
            fix=("is the driver loaded? lsmod | grep drv_davinci", DRIVER_RUN),
        )
    elif len(nodes) < len(ascend.npus):
        yield Verdict(
            "warn",
            f"{counted(len(nodes), 'davinci device')} for {counted(len(ascend.npus), 'NPU')}",
            evidence=(", ".join(nodes),),
            fix=("in a container: hand over each with --device /dev/davinciN",),
        )
    else:
        yield Verdict("pass", f"{counted(len(nodes), 'davinci device')} and the three that manage them")


@check(
    "ascend.driver-files",
    title="The driver's files that a container needs are there",
    why="A container brings CANN but not the driver: these files of the host are mounted into it.",
    fix=(DRIVER_RUN,),
    source=(INSTALLATION,),
    requires=(requirements.ascend,),
)
def ascend_driver_files(context: Context) -> Iterator[Verdict]:
    """The files and directories that vllm-ascend's run command mounts."""
    ascend = _ascend(context)
    if ascend.files is None:
        yield Verdict("skip", "Not checked: which files there are is not known")
        return
    missing = [path for path in ascend_table().driver_files if path not in ascend.files]
    if not missing:
        version = f" {ascend.driver_version}" if ascend.driver_version else ""
        yield Verdict("pass", f"The files of driver{version} are there")
    else:
        bad: Status = "fail" if context.runtimes == ("container",) else "warn"
        yield Verdict(
            bad,
            f"Files that a container needs are missing: {', '.join(missing)}",
            evidence=tuple(f"{path} does not exist" for path in missing),
            fix=(DRIVER_RUN,),
        )


@check(
    "ascend.cann",
    title="CANN is of the version that the engine was built with",
    why="vllm-ascend, torch-npu and CANN are built and tested together; other combinations fail at import or calculate "
    "wrong. An image brings its own CANN.",
    fix=("use vllm-ascend's image, or install the CANN of its release",),
    source=(VERSIONS,),
    requires=(requirements.ascend,),
)
def ascend_cann(context: Context) -> Iterator[Verdict]:
    """The CANN on the host against the release of vllm-ascend that the profile names, else against all known ones."""
    cann = _ascend(context).cann_version
    releases = ascend_table().releases
    engine = context.profile.engine if context.profile and context.profile.engine.name == "vllm-ascend" else None
    if engine is not None and "native" not in context.runtimes:
        yield Verdict("skip", "Not checked: the server runs in a container, which brings its own")
    elif cann is None:
        yield Verdict("skip", "Not checked: no CANN was found on the host; an image brings its own")
    elif engine is not None:
        release = next((each for each in releases if each.engine == engine.version), None)
        if release is None:
            yield Verdict("skip", f"Not checked: which CANN vllm-ascend {engine.version} needs is not known")
        elif cann.lower() == release.cann.lower():
            yield Verdict("pass", f"CANN {cann} fits vllm-ascend {engine.version}")
        else:
            yield Verdict(
                "warn",
                f"vllm-ascend {engine.version} was built with CANN {release.cann}, this host has {cann}",
                evidence=(f"CANN {cann}", f"vllm-ascend {engine.version}: CANN {release.cann}"),
                fix=(f"install CANN {release.cann} with NNAL {release.cann}", "or use vllm-ascend's image"),
            )
    else:
        fitting = [each.engine for each in releases if cann.lower() == each.cann.lower()]
        if fitting:
            yield Verdict("pass", f"CANN {cann} fits vllm-ascend {', '.join(fitting)}")
        else:
            known = ", ".join(f"{each.cann} ({each.engine})" for each in releases)
            yield Verdict(
                "info",
                f"CANN {cann} belongs to no release of vllm-ascend that onecat knows",
                evidence=(f"known: {known}",),
                fix=("use vllm-ascend's image, which brings its CANN",),
            )


@check(
    "ascend.environment-scripts",
    title="CANN and NNAL are installed",
    why="A server without a container loads libatb.so of NNAL and the libraries of CANN, which these scripts make "
    "known.",
    fix=("install CANN (toolkit and ops) and NNAL of the same version", "source both set_env.sh before the server"),
    source=(INSTALLATION,),
    requires=(requirements.ascend, requirements.native_possible),
)
def ascend_environment_scripts(context: Context) -> Iterator[Verdict]:
    """set_env.sh of CANN and of NNAL below /usr/local/Ascend."""
    ascend = _ascend(context)
    if ascend.files is None:
        yield Verdict("skip", "Not checked: which files there are is not known")
        return
    missing = [names for names in ascend_table().environment_scripts if not set(names).intersection(ascend.files)]
    if missing:
        yield Verdict(
            "fail",
            f"{' and '.join(names[0] for names in missing)} not found",
            evidence=tuple(f"{' or '.join(names)} does not exist" for names in missing),
            fix=("install CANN (toolkit and ops) and NNAL of the same version", "or use the container runtime"),
        )
    else:
        yield Verdict("pass", "CANN and NNAL are installed")


@check(
    "ascend.health",
    title="Every NPU is healthy",
    why="npu-smi's Health comes from the chip: an alarm means that it may calculate wrong or stop.",
    fix=("npu-smi info -t health -i N", "see Huawei's list for the code; a restart of the host resets the NPU"),
    source=(INSTALLATION,),
    requires=(requirements.ascend,),
)
def ascend_health(context: Context) -> Iterator[Verdict]:
    """The Health column of npu-smi info."""
    npus = _ascend(context).npus
    if not npus:
        yield Verdict("skip", "Not checked: npu-smi shows no NPU")
    for npu in npus:
        subject = f"NPU {npu.index}"
        word = (npu.health or "").lower()
        if not word or word in ("na", "n/a", "unknown"):
            yield Verdict("skip", "Not checked: its health is not known", subject)
        elif word == "ok":
            yield Verdict("pass", "Healthy", subject)
        else:
            yield Verdict(
                "warn" if word in ("warning", "minor") else "fail",
                f"The NPU reports: {npu.health}",
                subject,
                (f"npu-smi info: NPU {npu.index}, Health {npu.health}",),
                fix=(f"npu-smi info -t health -i {npu.index}", "a restart of the host resets the NPU"),
            )


@check(
    "ascend.memory",
    title="The NPUs' memory is free",
    why="The engine wants most of the HBM for itself and refuses to start where another program holds it.",
    fix=("npu-smi info shows the programs", "end them"),
    source=("https://github.com/vllm-project/vllm/issues/20305",),
    requires=(requirements.ascend,),
)
def ascend_memory(context: Context) -> Iterator[Verdict]:
    """HBM in use and the programs on each NPU. The firmware keeps a few GiB of an idle one."""
    npus = _ascend(context).npus
    if not npus:
        yield Verdict("skip", "Not checked: npu-smi shows no NPU")
    for npu in npus:
        subject = f"NPU {npu.index}"
        if npu.hbm_total is None or npu.hbm_used is None:
            yield Verdict("skip", "Not checked: how much memory is in use is not known", subject)
            continue
        evidence = (f"HBM: {gibibytes(npu.hbm_used)} of {gibibytes(npu.hbm_total)} used",)
        if npu.process_ids and npu.hbm_used > SHARE_HELD * npu.hbm_total:
            programs = ", ".join(map(str, npu.process_ids))
            yield Verdict(
                "warn",
                f"{gibibytes(npu.hbm_used)} are held by {counted(len(npu.process_ids), 'program')}",
                subject,
                (*evidence, f"processes: {programs}"),
                fix=(f"see what they are: ps -o pid,user,args -p {programs.replace(' ', '')}", "end them"),
            )
        else:
            yield Verdict("pass", f"{gibibytes(npu.hbm_total - npu.hbm_used)} are free", subject, evidence)


@check(
    "ascend.fp8",
    title="The NPUs calculate in the format that is asked for",
    why="FP8 is for Ascend 950; on 910B there is no path for FP8 weights, and an FP8 checkpoint cannot be served "
    "there.",
    fix=("serve a W8A8 or BF16 checkpoint of the model",),
    source=("https://github.com/vllm-project/vllm-ascend/pull/12826",),
    requires=(requirements.ascend, requirements.profile),
)
def ascend_fp8(context: Context) -> Iterator[Verdict]:
    """The flags of the profile that ask for FP8, against the names of the NPUs."""
    assert context.profile is not None
    asked = [
        f"--{arg.arg} {arg.value}"
        for arg in context.profile.launch.args
        if arg.arg in ("quantization", "kv-cache-dtype") and str(arg.value).lower().startswith("fp8")
    ]
    chips = {npu.name: ascend_chip(npu.name) for npu in _ascend(context).npus if npu.name}
    if not asked:
        yield Verdict("skip", "Not checked: nothing in the profile asks for FP8, and the checkpoint is not looked at")
    elif not chips or any(chip is None for chip in chips.values()):
        yield Verdict("skip", "Not checked: which NPUs these are is not known")
    else:
        without = [name for name, chip in chips.items() if chip is not None and not chip.fp8]
        if without:
            yield Verdict(
                "fail",
                f"{', '.join(without)} does not calculate in FP8",
                evidence=(*asked, *(f"npu-smi info: {name}" for name in without)),
                fix=("leave the flag out", "serve a W8A8 or BF16 checkpoint of the model"),
            )
        else:
            yield Verdict("pass", f"{', '.join(chips)} calculates in FP8")


@check(
    "ascend.architecture",
    title="The host's processor is one that vllm-ascend is built for",
    why="Most Ascend hosts are aarch64: packages, images and tools for x86_64 do not start there.",
    fix=("take images and packages for aarch64",),
    source=(INSTALLATION,),
    requires=(requirements.ascend,),
)
def ascend_architecture(context: Context) -> Iterator[Verdict]:
    """The machine name of the kernel (uname -m)."""
    system = context.facts.operating_system
    machine = system.architecture if system else None
    if machine is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('os', 'the architecture is not known')}")
    elif machine in MACHINES:
        yield Verdict("pass", f"vllm-ascend is built for {machine}")
    else:
        yield Verdict(
            "fail",
            f"vllm-ascend is not built for {machine}",
            evidence=(f"uname -m: {machine}",),
            fix=("use an aarch64 or x86_64 host",),
        )
