"""What binary files say: the loader's cache, libraries and kernel modules."""

# ruff: noqa: PTH118, PTH123
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import struct

from onecat.probe.agent.core import Late

re = Late("re")

LOADER_CACHE = "/etc/ld.so.cache"
CACHE_MAGIC = b"glibc-ld.so.cache1.1"
CACHE_HEADER = 48
CACHE_ENTRY = struct.Struct("=iIIIQ")
"""Flags, name, path, system, hardware; offsets of texts count from the magic (glibc, sysdeps/generic/dl-cache.h)."""
LOADER_DIRECTORIES = ("/lib/{0}-linux-gnu", "/usr/lib/{0}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
ELF_MAGIC = b"\x7fELF"
ELF_64 = 2
ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
MOST_BYTES, MOST_OFFSET = 1 << 20, 1 << 32
"""Far more than a module has: numbers of a damaged file must not take all memory."""
ELF_SECTION = struct.Struct("<IIQQQQIIQQ")


def find_library(place, name):
    """The files that the loader of this user finds for a library, in its order: pairs of path and resolved path.

    place: tells where a path of the observed machine lies. What LD_LIBRARY_PATH names lies where this program runs.
    """
    directories = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each.startswith("/")]
    candidates = [(path, path) for path in (os.path.join(each, name) for each in directories)]
    paths = read_cache(place, name)
    paths += [os.path.join(each.format(os.uname().machine), name) for each in LOADER_DIRECTORIES]
    candidates += [(path, place(path)) for path in paths]
    found = {}  # type: dict[str, str]
    for path, here in candidates:
        if is_64_bit(here):
            found.setdefault(os.path.realpath(here), path)
    return [(path, resolved) for resolved, path in found.items()]


def read_cache(place, name):
    """The paths of a library in the loader's cache, in its order."""
    try:
        with open(place(LOADER_CACHE), "rb") as file:
            data = file.read()
    except OSError:
        return []
    start = data.find(CACHE_MAGIC)
    if start < 0 or len(data) < start + CACHE_HEADER or name.encode() not in data:
        return []
    data = data[start:]
    wanted = name.encode() + b"\0"
    count = struct.unpack_from("=I", data, len(CACHE_MAGIC))[0]
    paths = []
    for number in range(min(count, (len(data) - CACHE_HEADER) // CACHE_ENTRY.size)):
        _, key, value, _, _ = CACHE_ENTRY.unpack_from(data, CACHE_HEADER + number * CACHE_ENTRY.size)
        if data.startswith(wanted, key):
            paths.append(data[value : data.find(b"\0", value)].decode("utf-8", "replace"))
    return paths


def is_64_bit(path):
    try:
        with open(path, "rb") as file:
            head = file.read(5)
    except OSError:
        return False
    return head[:4] == ELF_MAGIC and head[4] == ELF_64


def version_of(found):
    """The version in the name of the first file of find_library (libcuda.so.580.95.05), None when it has none."""
    match = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", found[0][1]) if found else None
    return match.group(1) if match else None


def module_version(path):
    """The version that a kernel module's file states, None when it states none or is compressed."""
    try:
        with open(path, "rb") as file:
            return modinfo(file).get("version")
    except (OSError, struct.error, ValueError, IndexError):
        return None


def modinfo(file):
    """The entries of the section .modinfo of an ELF file. Raises struct.error, ValueError or IndexError for others."""
    header = ELF_HEADER.unpack(file.read(ELF_HEADER.size))
    if header[0][:5] != ELF_MAGIC + bytes([ELF_64]):
        raise ValueError("not a 64-bit ELF file")
    file.seek(min(header[6], MOST_OFFSET))
    size, count, names = header[11], header[12], header[13]
    table = file.read(size * count)
    sections = [ELF_SECTION.unpack_from(table, number * size) for number in range(count)]
    texts = read_section(file, sections[names])
    for section in sections:
        if texts[section[0] :].startswith(b".modinfo\0"):
            entries = read_section(file, section).decode("utf-8", "replace").split("\0")
            return dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return {}


def read_section(file, section):
    file.seek(min(section[4], MOST_OFFSET))
    return file.read(min(section[5], MOST_BYTES))
