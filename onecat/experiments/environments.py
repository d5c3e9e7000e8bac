"""What is written down of a server and its machine beside results: all that a later reader needs to compare fairly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onecat.deploy.store import read_json

if TYPE_CHECKING:
    from onecat.config import Profile
    from onecat.deploy.releases import Release
    from onecat.facts import Facts
    from onecat.hosts import Machine
    from onecat.planner.records import Plan

_SAMPLE_BYTES = 1 << 16
_SAMPLED_FILES = 16


def deployment_arm(
    machine: Machine, release: Release, plan: Plan, profile: Profile, facts: Facts, python: str | None
) -> dict[str, Any]:
    """What is known of the server of a release, for `Environment.arms`.

    Parameters:
        facts: of its host, as they are now. python: the interpreter of a native runtime.

    Raises OnecatError when the host cannot be asked.
    """
    hardware = hardware_of(facts)
    return {
        "engine": plan.engine,
        "engine_version": plan.engine_version,
        "patches": _patches(machine, profile, python),
        "profile": release.profile,
        "server_args": list(plan.server_args),
        "env": dict(plan.env),
        "model": release.model,
        "checkpoint": checkpoint_digest(machine, plan.model_directory),
        "model_directory": plan.model_directory,
        "deployment": release.deployment,
        "release": release.number,
        "fingerprint": release.fingerprint,
        "runtime": release.runtime,
        "image": release.image_id,
        "endpoint": release.endpoint,
        "proxied": release.proxied,
        "host": release.host_name,
        "gpus": _gpus_used(facts, release),
        "layout": {
            "tensor_parallel": plan.layout.tensor_parallel,
            "pipeline_parallel": plan.layout.pipeline_parallel,
            "replicas": plan.layout.replicas,
        },
        "hardware": hardware,
        "facts": digest_of(hardware),
    }


def hardware_of(facts: Facts) -> dict[str, Any]:
    """What of a host's facts stays as it is while nobody changes it: clocks that were set, not those of the moment."""
    nvidia, cpu, memory, system = facts.nvidia, facts.cpu, facts.memory, facts.operating_system
    return {
        "kernel": None if system is None else system.kernel,
        "system": None if system is None else system.pretty_name,
        "virtualization": None if system is None else system.virtualization,
        "cpu": None if cpu is None else cpu.model,
        "cores": None if cpu is None else cpu.usable_cores,
        "numa_nodes": None if cpu is None else cpu.numa_nodes,
        "memory_bytes": None if memory is None else memory.total,
        "driver": None if nvidia is None else nvidia.driver_version,
        "gpus": []
        if nvidia is None
        else [
            {
                "name": gpu.name,
                "uuid": gpu.uuid,
                "memory_bytes": gpu.memory_total,
                "persistence_mode": gpu.persistence_mode,
                "ecc_enabled": gpu.ecc_enabled,
                "power_limit_watts": gpu.power_limit_watts,
                "graphics_clock_application_mhz": gpu.graphics_clock_application_mhz,
                "graphics_clock_max_mhz": gpu.graphics_clock_max_mhz,
                "memory_clock_application_mhz": gpu.memory_clock_application_mhz,
                "pcie_generation_max": gpu.pcie_generation_max,
                "pcie_width_current": gpu.pcie_width_current,
            }
            for gpu in nvidia.gpus
        ],
    }


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 over plain data, 16 hex digits of it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()[:16]


def checkpoint_digest(machine: Machine, directory: str) -> str:
    """A digest by which two checkpoints are told apart without reading all of them.

    It goes over names and sizes of the files, and over 64 KiB at the begin, in the middle and at the end of the first
    16 files of weights: other weights of the same shape differ there. Times of change say nothing and are left out.
    """
    files = {name: found for name, found in machine.entries(directory).items() if found.kind == "file"}
    hashed = hashlib.sha256()
    weights = [name for name in sorted(files) if name.endswith((".safetensors", ".bin", ".gguf"))][:_SAMPLED_FILES]
    for name, found in sorted(files.items()):
        hashed.update(f"{name} {found.size}\n".encode())
        if name in weights:
            for offset in sorted({0, found.size // 2, max(0, found.size - _SAMPLE_BYTES)}):
                hashed.update(machine.read_part(f"{directory}/{name}", offset, _SAMPLE_BYTES))
        elif name.endswith(".json") and found.size < 1 << 24:
            hashed.update(machine.read(f"{directory}/{name}") or b"")
    return f"sampled-sha256:{hashed.hexdigest()[:32]}"


def _gpus_used(facts: Facts, release: Release) -> list[str]:
    """Names of the GPUs that a release has; none for a server on the CPU."""
    known = () if facts.nvidia is None else facts.nvidia.gpus
    names = {word: gpu.name for gpu in known for word in (gpu.uuid, str(gpu.index)) if word}
    return [names.get(each, each) for each in release.gpus]


def _patches(machine: Machine, profile: Profile, python: str | None) -> str | None:
    """The patch series in the engine: as a native runtime says it, else as the profile wants it now."""
    if python is not None:
        directory = python.rsplit("/bin/", 1)[0]
        written = read_json(machine, f"{directory}/onecat-runtime.json")
        return None if not isinstance(written, dict) else written.get("patches")
    if profile.image.patches is None:
        return None
    from onecat.patching import load_series

    series = load_series(profile.image.patches).for_profile(profile)
    return f"{series.name} sha256:{series.digest}"
