"""Which layers a model of transformers has, and which IPU each of them goes to."""

import copy

from torch import nn

from tremula.frontends.optimum.errors import IncompatibleIPUConfigError, NotPipelinable
from tremula.frontends.optimum.ipu_config import IPUConfig

# What models of transformers call their lists of equal layers, in the order in which they run.
_LISTS = ("layer", "layers", "h", "block", "blocks", "r_layers", "x_layers")


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a model in the order in which they run: encoder, then decoder."""
    result: list[tuple[int, int, nn.ModuleList]] = []
    inside: tuple[str, ...] = ()
    for position, (name, module) in enumerate(model.named_modules()):
        last = name.rpartition(".")[2]
        if last not in _LISTS or name.startswith(inside or ("\0",)):
            continue
        if isinstance(module, nn.ModuleList) and len({type(item) for item in module}) == 1:
            result.append(
                (last in ("r_layers", "x_layers") and _LISTS.index(last), position, module)
            )
            inside = (*inside, f"{name}.")
    if not result:
        raise NotPipelinable(
            f"{type(model).__name__} has no list of equal layers that IPUs could share",
            hint="call poptorch.BeginBlock for its parts, or use one IPU",
        )
    return [layer for *_, modules in sorted(result, key=lambda item: item[:2]) for layer in modules]


def heads_of(model: nn.Module) -> list[nn.Module]:
    """What runs after the layers: heads and poolers, which lie on the first IPU."""
    base = getattr(model, "base_model", model)
    containers = {id(module) for module in _with_layers(model)}
    heads = [
        child
        for child in model.children()
        if child is not base and id(child) not in containers and not isinstance(child, nn.Embedding)
    ]
    pooler = getattr(base, "pooler", None)
    return heads if pooler is None else [pooler, *heads]


def _with_layers(model: nn.Module) -> list[nn.Module]:
    layers = {id(layer) for layer in layers_of(model)}
    return [m for m in model.modules() if any(id(inner) in layers for inner in m.modules())]


def get_layer_ipu(ipu_config: IPUConfig, target_number_of_layers: int | None = None) -> list[int]:
    """The IPU of each layer. A -1 in layers_per_ipu takes its share of what others leave.

    What cannot be split evenly goes to the last of several -1.
    """
    counts = list(ipu_config.layers_per_ipu)
    if counts == [-1]:
        counts *= ipu_config.ipus_per_replica
    wild = [i for i, n in enumerate(counts) if n == -1]
    if wild:
        if target_number_of_layers is None:
            raise IncompatibleIPUConfigError(
                f"layers_per_ipu={counts} leaves numbers open, and the number of layers is unknown"
            )
        left = target_number_of_layers - sum(n for n in counts if n != -1)
        if left < 0:
            raise _mismatch(ipu_config, target_number_of_layers)
        each, rest = divmod(left, len(wild))
        for i in wild:
            counts[i] = each
        counts[wild[-1]] += rest
    if target_number_of_layers is not None and sum(counts) != target_number_of_layers:
        raise _mismatch(ipu_config, target_number_of_layers)
    return [ipu for ipu, n in enumerate(counts) for _ in range(n)]


def _mismatch(ipu_config: IPUConfig, n_layers: int) -> IncompatibleIPUConfigError:
    counts = ipu_config.layers_per_ipu
    return IncompatibleIPUConfigError(
        f"layers_per_ipu={counts} places {sum(n for n in counts if n > 0)} layers, but the model "
        f"has {n_layers}",
        hint="let the numbers add up, or put -1 where the rest should go",
    )


def split_encoder_decoder_ipu_config(
    ipu_config: IPUConfig, num_encoder_layers: int, num_decoder_layers: int
) -> tuple[IPUConfig, IPUConfig]:
    """A configuration for the encoder alone and one for the decoder alone.

    The cut is the largest power of two of IPUs before which exactly the encoder's layers lie.
    """
    n_layers = num_encoder_layers + num_decoder_layers
    ipus = get_layer_ipu(ipu_config, n_layers)
    n_ipus = ipu_config.ipus_per_replica
    counts = [ipus.count(i) for i in range(n_ipus)]
    if n_ipus == 1:
        raise IncompatibleIPUConfigError(
            "one IPU cannot be split between an encoder and a decoder",
            hint="use two or more IPUs",
        )
    cuts = [1 << k for k in range(n_ipus.bit_length()) if (1 << k) < n_ipus]
    fitting = [cut for cut in cuts if sum(counts[:cut]) == num_encoder_layers]
    if not fitting:
        raise IncompatibleIPUConfigError(
            f"layers_per_ipu={counts} has no cut at {cuts} IPUs with {num_encoder_layers} encoder "
            "layers before it",
            hint="let the encoder end with an IPU whose number is a power of two",
        )
    cut = max(fitting)
    return _part(ipu_config, counts, 0, cut), _part(ipu_config, counts, cut, n_ipus)


def _part(ipu_config: IPUConfig, counts: list[int], begin: int, end: int) -> IPUConfig:
    """The configuration of some of the IPUs."""
    prefix = "inference_" if ipu_config.mode == "inference" else ""
    values = ipu_config.to_dict()
    values[f"{prefix}layers_per_ipu"] = counts[begin:end]
    values[f"{prefix}ipus_per_replica"] = end - begin
    for name, value in copy.copy(values).items():
        is_per_ipu = name.removeprefix(prefix) in (
            "matmul_proportion",
            "serialized_embedding_splits_per_ipu",
            "serialized_projection_splits_per_ipu",
        )
        if is_per_ipu and name.startswith(prefix) and isinstance(value, list):
            values[name] = value[begin:end]
    part = IPUConfig(**values)
    return part.eval() if ipu_config.mode == "inference" else part
