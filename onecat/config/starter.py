"""The commented onecat.yaml that `onecat init` writes."""

from __future__ import annotations

import json
import re

from onecat.config.schema import Profile

_TEXT = """\
# What onecat serves, and how. `onecat plan` shows what comes of it, `onecat up` starts it.
# A schema for editors: onecat schema deployment > onecat.schema.json
# Commented lines show the defaults.

name: {name}                # of the deployment: lower-case letters, digits, hyphens
profile: {profile}          # all of them: onecat profile list; what it says: onecat profile show {profile}
model:
  path: {model}             # directory with config.json, *.safetensors and tokenizer; relative to this file
  # served_name: {served}   # what clients write as "model"; the directory's name by default

# hosts: [local]            # or hosts as ssh names them; several are replicas behind one nginx
# runtime: {runtime}        # {runtimes}
# host: 127.0.0.1           # where the server itself listens; clients use the proxy
# port: 8000
{for_accelerators}
# Flags of `vllm serve` without dashes; they win over the profile's. JSON goes in single quotes.
# serve:
#   max-model-len: 4096
#   max-num-seqs: 32
#   hf-overrides: '{{"architectures": ["LlamaForCausalLM"]}}'

# Environment variables of the server, always as text. No secrets here: see below.
# env:
#   VLLM_LOGGING_LEVEL: "INFO"

# proxy:
#   kind: nginx             # or none
#   instance: auto          # host: of this machine; own: of this user; container
#   listen: 127.0.0.1:8080  # 0.0.0.0:8080 opens it to the network: set a key first
#   server_name: _          # models.example.org
#   tls: {{certificate: /etc/ssl/models.pem, key: /etc/ssl/private/models.key}}
#   keys_file: clients.keys # a key for each client, one `NAME KEY` per line; mode 0600
#   max_body_mib: 64
#   read_timeout_seconds: 3600

# secrets:
#   api_key:
#     file: api-key.txt     # or  env: NAME_OF_A_VARIABLE

# After each start these prompts are sent; one of the expected substrings must be in the answer.
# smoke:
#   - prompt: The capital of France is
#     expect: [Paris]

# start:
#   silence_seconds: 600    # without any sign of life for so long, a start has failed

# restart:
#   max_crashes: 10         # in a row; then onecat gives up and says why

# How a new release takes over; `onecat plan` says which way and whether requests are refused meanwhile.
# rollout:
#   strategy: auto          # blue-green: beside the old one; recreate: the old one makes way
#   drain_seconds: 300      # how long answers of the old one may still take
#   keep_releases: 5        # for onecat rollback

# When a release of `onecat up --canary 10%` takes over by itself, and when it goes.
# canary:
#   promote_after_seconds: 3600
#   max_error_rate: 0.01
#   max_p99_ratio: 1.5

# What `onecat preflight` asks of the deployment before it gets traffic.
# preflight:
#   concurrent: 64          # requests at the same time ...
#   p99_seconds: 1.5        # ... 99 % of which must be answered by then
#   spread_ms: 50           # of the times of ten identical requests
"""

_ACCELERATORS = """\
# gpus: [0, 1]              # by index or UUID; by default the first that are free
"""
_CONTAINER = """\
# service: docker           # who starts it again after a crash or a reboot: docker or systemd
"""


def starter_text(name: str, profile: Profile, model: str, profile_file: str | None = None) -> str:
    """The text of a new onecat.yaml.

    `model` is the path as it shall stand there, and so is `profile_file`, of a profile that does not ship with onecat.
    """
    served = re.split(r"[/\\]", model.rstrip("/\\"))[-1] or "model"
    runtimes = profile.launch.runtimes
    text = _TEXT.format(
        name=_scalar(name),
        profile=_scalar(profile_file or profile.name),
        model=_scalar(model),
        served=_scalar(served),
        runtime=profile.launch.runtime,
        for_accelerators=(_ACCELERATORS if profile.hardware.accelerator != "none" else "")
        + (_CONTAINER if "container" in runtimes else ""),
        runtimes=" or ".join(runtimes) if len(runtimes) > 1 else f"the only one of profile {profile.name}",
    )
    return "\n".join(_aligned(line) for line in text.splitlines()) + "\n"


def deployment_name(text: str) -> str:
    """`text` as a deployment's name: lower-case letters, digits and inner hyphens, at most 40."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name or "chat"


def _aligned(line: str) -> str:
    """A trailing comment moved to its column, whatever length the value before it has."""
    found = re.fullmatch(r"(\s*(?:# )?\s*[a-z_]+: (?:\"(?:[^\"\\]|\\.)*\"|\S+)) +(# .*)", line)
    return f"{found[1]:<27} {found[2]}" if found else line


def _scalar(text: str) -> str:
    """`text` as a YAML scalar: plain where it is safe, in double quotes otherwise."""
    plain = re.fullmatch(r"[A-Za-z/~][A-Za-z0-9/._+-]*|\.{1,2}/[A-Za-z0-9/._+-]*", text)
    words = {"yes", "no", "on", "off", "true", "false", "null", "y", "n", "~"}
    if plain and text.lower() not in words:
        return text
    # A JSON string is a YAML string, except for characters that YAML wants escaped and JSON does not.
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)
