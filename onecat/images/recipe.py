"""Image recipes: a directory under templates/image/ with a Dockerfile template and a few facts in recipe.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onecat.errors import OnecatError
from onecat.resources import read_table, resource_directory

FACTS = "recipe.yaml"
COMMON = "common"


@dataclass(frozen=True)
class Recipe:
    """One recipe.

    wheels: the build context carries the wheels of the engine's lock. network: the build's steps need a network.
    patches: the engine is built from pinned source with the profile's patch series.
    torch_index: the build takes a PyTorch that only PyTorch's own index, or a mirror of it, has.
    given_wheel: the engine is a wheel that others made; a person gives it, and its hash.
    shared: more directories under templates/image/ whose files belong to the context.
    wheel_stage: the stage that has the engine's wheel in /wheels.
    selftest: what the finished image must be able to do without a GPU, for templates/image/cuda/selftest.py.
    """

    name: str
    directory: Path
    wheels: bool
    network: bool
    patches: bool = False
    torch_index: bool = False
    given_wheel: bool = False
    shared: tuple[str, ...] = ()
    wheel_stage: str | None = None
    selftest: dict[str, Any] = field(default_factory=dict)

    def files(self) -> dict[str, Path]:
        """Name in the build context -> template or plain file; the recipe's own win over shared and common ones."""
        found: dict[str, Path] = {}
        images = self.directory.parent
        for folder in (images / COMMON, *(images / name for name in self.shared), self.directory):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in (FACTS, "macros.j2") and "__pycache__" not in path.parts:
                    found[path.relative_to(folder).as_posix().removesuffix(".j2")] = path
        return found


def load_recipe(name: str) -> Recipe:
    """The recipe of that name. Raises OnecatError naming the known ones when there is none."""
    root = resource_directory("templates") / "image"
    facts = root / name / FACTS
    if not facts.is_file():
        known = sorted(path.parent.name for path in root.glob(f"*/{FACTS}"))
        raise OnecatError(f"there is no image recipe {name}", expected=f"one of: {', '.join(known)}", where=str(root))
    return Recipe(name=name, directory=facts.parent, **read_table(facts))
