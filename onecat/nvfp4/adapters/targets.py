"""Which modules an adapter's settings mean, by PEFT's rules.

Source: peft 0.21.2, peft/tuners/tuners_utils.py (check_target_module_exists), peft/utils/other.py
(match_target_against_key).
"""

from __future__ import annotations

import re

from onecat.nvfp4.adapters.settings import AdapterSettings

ALL_LINEAR = "all-linear"
"""Every linear module but the output head; PEFT writes the names that it found in its place when it saves."""


def is_target(settings: AdapterSettings, module: str) -> bool:
    """Whether PEFT gives a module matrices when it loads an adapter with these settings.

    Settings without target_modules mean what PEFT's tables say for the model: any module may be meant.
    """
    if _is_named(settings.excluded, module):
        return False
    if any(re.match(rf"(^|.*\.){each}($|\..*)", module) for each in settings.saved):
        return False
    if settings.targets is None:
        return True
    if isinstance(settings.targets, str):
        if settings.targets.lower() == ALL_LINEAR:
            return True
        return re.fullmatch(settings.targets, module) is not None
    if module in settings.targets:
        return True
    return _is_named(settings.targets, module) and (not settings.layers or _layer(settings, module) in settings.layers)


def _is_named(names: tuple[str, ...] | str, module: str) -> bool:
    if isinstance(names, str):
        return bool(names) and re.fullmatch(names, module) is not None
    return module in names or any(module.endswith(f".{each}") for each in names)


def _layer(settings: AdapterSettings, module: str) -> int | None:
    """The index of a module's layer: the first number after two names, or after the name that is asked for."""
    if not settings.layers_patterns:
        found = re.match(r".*?\.[^.]*\.(?P<index>\d+)\.", module)
    else:
        matches = (re.match(rf"(?:^|.*?\.){each}\.(?P<index>\d+)\.", module) for each in settings.layers_patterns)
        found = next((each for each in matches if each is not None), None)
    return None if found is None else int(found["index"])
