"""Whether an adapter's matrices for one module fit the base's matrix, and how they are meant."""

from __future__ import annotations

from collections.abc import Mapping

from onecat.nvfp4.adapters.merging import Change
from onecat.nvfp4.adapters.names import AdapterTensor, Role
from onecat.nvfp4.adapters.settings import AdapterSettings
from onecat.nvfp4.adapters.storage import StoredModule
from onecat.nvfp4.rewriting import SourceFiles

JOINED_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")
"""Last names of transformers' Conv1D modules, which store [in, out]."""

JOINED_MODELS = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
"""Model types that have them. Source: transformers, src/transformers/pytorch_utils.py (Conv1D) and who uses it."""

Problems = dict[str, str]


def fitting(
    module: str, stored: StoredModule, roles: Mapping[Role, AdapterTensor], whole: AdapterTensor | None,
    settings: AdapterSettings, adapter: SourceFiles, *, joined_layers: bool,
) -> Change | Problems:  # fmt: skip
    """The change that these tensors are, or what is wrong, by the tensors' names.

    joined_layers: the model's linear modules are transformers' Conv1D, where they have its names.
    """
    names = {role: each.name for role, each in roles.items()}
    problems = _incomplete(roles, settings)
    if whole is not None and adapter.tensors[whole.name].shape != stored.shape:
        problems[whole.name] = _misfit(adapter, whole.name, stored, stored.shape)
    embedding = "embedding-first" in roles
    first = names.get("embedding-first" if embedding else "first")
    second = names.get("embedding-second" if embedding else "second")
    rank, scaling = settings.scaling(module)
    transposed = False
    if not problems and first is not None and second is not None:
        transposed = not embedding and _is_transposed(stored, first, second, settings, adapter, joined_layers)
        rows, columns = stored.shape[::-1] if transposed else stored.shape
        wanted = {first: (rank, rows), second: (columns, rank)} if embedding else {
            first: (rank, columns), second: (rows, rank)
        }  # fmt: skip
        length = columns if embedding else rows
        if (magnitude := names.get("magnitude")) is not None and adapter.tensors[magnitude].shape[-1:] != (length,):
            problems[magnitude] = _misfit(adapter, magnitude, stored, (length,))
        if (bias := names.get("second-bias")) is not None and adapter.tensors[bias].shape != (rows,):
            problems[bias] = _misfit(adapter, bias, stored, (rows,))
        for name, shape in wanted.items():
            if adapter.tensors[name].shape != shape:
                problems[name] = _misfit(adapter, name, stored, shape, rank)
    indices = _indices(module, settings) if "rows" in roles else ()
    if (rows_name := names.get("rows")) is not None:
        problems.update(_check_rows(rows_name, indices, stored, adapter))
    if problems:
        return problems
    return Change(
        module, stored.stem, whole.name if whole else None, first, second, rank if first else 0,
        scaling if first else 0.0, embedding, transposed, names.get("magnitude"), rows_name, indices,
    )  # fmt: skip


def _incomplete(roles: Mapping[Role, AdapterTensor], settings: AdapterSettings) -> Problems:
    pairs: tuple[tuple[Role, Role], ...] = (("first", "second"), ("embedding-first", "embedding-second"))
    problems = {}
    for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
        if one in roles and other not in roles:
            problems[roles[one].name] = "its other matrix is missing"
    paired = roles.keys() & {"first", "embedding-first"}
    if len(paired) == 2:
        problems[roles["embedding-first"].name] = "the module has matrices of a linear module, too"
    if "magnitude" in roles and not settings.magnitudes:
        problems[roles["magnitude"].name] = "belongs to DoRA, and use_dora is not set"
    if settings.magnitudes and paired and "magnitude" not in roles:
        problems[roles[next(iter(paired))].name] = "use_dora is set, and its lora_magnitude_vector is missing"
    for alone in ("magnitude", "second-bias"):
        if alone in roles and not paired:
            problems[roles[alone].name] = "its matrices are missing"
    if "second-bias" in roles and not settings.factor_bias:
        problems[roles["second-bias"].name] = "is a bias of lora_B, and lora_bias is not set"
    return problems


def _is_transposed(
    stored: StoredModule, first: str, second: str, settings: AdapterSettings, adapter: SourceFiles, joined: bool
) -> bool:
    """Whether the base stores [in, out]. PEFT goes by the module's class, and corrects `fan_in_fan_out` by it.

    Where the class is not known, the shapes tell; of a square matrix it is then a plain linear module.
    """
    if stored.kind != "plain":
        return False
    if joined and stored.stem.rpartition(".")[2] in JOINED_LAYERS:
        return True
    shape = (adapter.tensors[second].shape[:1], adapter.tensors[first].shape[1:])
    rows, columns = stored.shape
    return settings.fan_in_fan_out and rows != columns and shape == ((columns,), (rows,))


def _indices(module: str, settings: AdapterSettings) -> tuple[int, ...]:
    for name, indices in settings.token_rows.items():
        if not name or module == name or module.endswith(f".{name}"):
            return indices
    return ()


def _check_rows(name: str, indices: tuple[int, ...], stored: StoredModule, adapter: SourceFiles) -> Problems:
    wanted = (len(indices), stored.shape[1])
    if not indices:
        return {name: "trainable_token_indices does not say which rows these are"}
    if adapter.tensors[name].shape != wanted:
        return {name: _misfit(adapter, name, stored, wanted)}
    if max(indices) >= stored.shape[0] or len(set(indices)) < len(indices):
        return {name: f"trainable_token_indices has a row twice, or one above the {stored.shape[0]} of {stored.stem}"}
    return {}


def _misfit(
    adapter: SourceFiles, name: str, stored: StoredModule, wanted: tuple[int, ...], rank: int | None = None
) -> str:
    ranked = "" if rank is None else f" with rank {rank}"
    return (
        f"is {list(adapter.tensors[name].shape)}, and the base's {stored.stem} of {list(stored.shape)}{ranked} "
        f"takes {list(wanted)}"
    )
