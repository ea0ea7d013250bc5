"""Batch, group, layer and instance norm, forward and backward: activations [batch, channels, …].

Batch norm has statistics per channel; group norm per sample and group of channels. Layer norm is
group norm with one group, instance norm with a group per channel. Gamma and beta are per channel.

PopLibs spreads the channels of a group over all channels (group g has the channels c with
c % n_groups == g), which is faster on tiles. `is_strided=False` makes groups of neighbours instead,
as other frameworks do.
"""

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.poplin import norms
from tremula.poplibs.poplin import norms as norm_math
from tremula.poplibs.poplin.norms import check_norm_operands
from tremula.poplibs.poputil import replayed
from tremula.poplibs.registry import PoplibsError

PER_GROUP = (0, 1)  # of activations seen as [batch, groups, channels of a group, …]


@replayed
def batch_norm_statistics(
    graph: Graph, acts: Tensor, sequence: Sequence, name: str = "batch_norm_statistics",
    *, epsilon: float, is_unbiased: bool = False, is_stable: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and inverse standard deviation of each channel over the batch."""
    return norms.norm_statistics(
        graph, acts, sequence, name, epsilon=epsilon, is_unbiased=is_unbiased, is_stable=is_stable
    )


def batch_norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "batch_norm_whiten",
) -> Tensor:  # fmt: skip
    """Activations less the mean, times the inverse deviation."""
    return norms.norm_whiten(graph, acts, mean, inv_std_dev, sequence, name)


@replayed
def batch_normalise(  # noqa: PLR0917 - PopLibs has as many operands
    graph: Graph, acts: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, inv_std_dev: Tensor,
    sequence: Sequence, name: str = "batch_normalise",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(gamma · whitened + beta, whitened); the gradients need the second."""
    whitened = batch_norm_whiten(graph, acts, mean, inv_std_dev, sequence, f"{name}/whiten")
    return norms.normalise(graph, whitened, gamma, beta, sequence, name), whitened


def batch_norm_param_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "batch_norm_param_gradients",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of gamma and beta."""
    return norms.norm_param_gradients(graph, whitened, gradient, sequence, name)


@replayed
def batch_norm_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, gamma: Tensor,
    sequence: Sequence, name: str = "batch_norm_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the normalised ones."""
    of_whitened = norms.norm_gradients(graph, gradient, gamma, sequence, f"{name}/gamma")
    return norms.norm_statistics_gradients(
        graph, whitened, of_whitened, inv_std_dev, sequence, name
    )


def norm_param_update(
    graph: Graph, gamma_gradient: Tensor, beta_gradient: Tensor, gamma: Tensor, beta: Tensor,
    sequence: Sequence, name: str = "norm_param_update", *, scale: Tensor | float,
) -> None:  # fmt: skip
    """Gamma and beta plus `scale` times their gradients, in place; descent has a scale below 0."""
    popops.scaled_add_to(graph, gamma, gamma_gradient, scale, sequence, f"{name}/gamma")
    popops.scaled_add_to(graph, beta, beta_gradient, scale, sequence, f"{name}/beta")


@replayed
def group_norm_statistics(
    graph: Graph, acts: Tensor, sequence: Sequence, name: str = "group_norm_statistics",
    *, n_groups: int, epsilon: float, is_unbiased: bool = False, is_stable: bool = False,
    is_strided: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and inverse deviation per sample and group, flat: that of group g of b at b·groups+g."""
    check_norm_operands("group_norm_statistics", acts, [], 0)
    grouped = _grouped(acts, n_groups, is_strided)
    return norm_math.statistics(
        graph, grouped, PER_GROUP, epsilon, sequence, name,
        is_unbiased=is_unbiased, is_stable=is_stable,
    )  # fmt: skip


def group_norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "group_norm_whiten", *, n_groups: int, is_strided: bool = True,
) -> Tensor:  # fmt: skip
    """Activations less the mean of their group, times its inverse deviation."""
    n_each = _n_statistics(acts, n_groups)
    check_norm_operands("group_norm_whiten", acts, [mean, inv_std_dev], n_each)
    grouped = _grouped(acts, n_groups, is_strided)
    whitened = norm_math.whiten(graph, grouped, PER_GROUP, mean, inv_std_dev, sequence, name)
    return _ungrouped(whitened, is_strided)


@replayed
def group_normalise(  # noqa: PLR0913, PLR0917 - PopLibs has as many operands
    graph: Graph, acts: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, inv_std_dev: Tensor,
    sequence: Sequence, name: str = "group_normalise", *, n_groups: int, is_strided: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(gamma · whitened + beta, whitened); the gradients need the second."""
    whitened = group_norm_whiten(
        graph, acts, mean, inv_std_dev, sequence, f"{name}/whiten", n_groups=n_groups,
        is_strided=is_strided,
    )  # fmt: skip
    return norms.normalise(graph, whitened, gamma, beta, sequence, name), whitened


def group_norm_param_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "group_norm_param_gradients",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of gamma and beta; the same for any number of groups."""
    return norms.norm_param_gradients(graph, whitened, gradient, sequence, name)


@replayed
def group_norm_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, gamma: Tensor,
    sequence: Sequence, name: str = "group_norm_gradients", *, n_groups: int,
    is_strided: bool = True,
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the normalised ones."""
    n_each = _n_statistics(whitened, n_groups)
    check_norm_operands("group_norm_gradients", whitened, [gradient], whitened.n_elems)
    check_norm_operands("group_norm_gradients", whitened, [inv_std_dev], n_each)
    of_whitened = norms.norm_gradients(graph, gradient, gamma, sequence, f"{name}/gamma")
    result = norm_math.statistics_gradients(
        graph, _grouped(whitened, n_groups, is_strided),
        _grouped(of_whitened, n_groups, is_strided), PER_GROUP, inv_std_dev, sequence, name,
    )  # fmt: skip
    return _ungrouped(result, is_strided)


def layer_norm_statistics(
    graph: Graph, acts: Tensor, sequence: Sequence, name: str = "layer_norm_statistics",
    *, epsilon: float, is_unbiased: bool = False, is_stable: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and inverse deviation of each sample."""
    return group_norm_statistics(
        graph, acts, sequence, name, n_groups=1, epsilon=epsilon, is_unbiased=is_unbiased,
        is_stable=is_stable, is_strided=False,
    )  # fmt: skip


def layer_norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "layer_norm_whiten",
) -> Tensor:  # fmt: skip
    """Activations less the mean of their sample, times its inverse deviation."""
    return group_norm_whiten(
        graph, acts, mean, inv_std_dev, sequence, name, n_groups=1, is_strided=False
    )


def layer_normalise(  # noqa: PLR0917 - PopLibs has as many operands
    graph: Graph, acts: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, inv_std_dev: Tensor,
    sequence: Sequence, name: str = "layer_normalise",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(gamma · whitened + beta, whitened); the gradients need the second."""
    return group_normalise(
        graph, acts, gamma, beta, mean, inv_std_dev, sequence, name, n_groups=1, is_strided=False
    )


def layer_norm_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, gamma: Tensor,
    sequence: Sequence, name: str = "layer_norm_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the normalised ones."""
    return group_norm_gradients(
        graph, whitened, gradient, inv_std_dev, gamma, sequence, name, n_groups=1,
        is_strided=False,
    )  # fmt: skip


def instance_norm_statistics(
    graph: Graph, acts: Tensor, sequence: Sequence, name: str = "instance_norm_statistics",
    *, epsilon: float, is_unbiased: bool = False, is_stable: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and inverse deviation of each channel of each sample."""
    return group_norm_statistics(
        graph, acts, sequence, name, n_groups=_n_channels(acts), epsilon=epsilon,
        is_unbiased=is_unbiased, is_stable=is_stable, is_strided=False,
    )  # fmt: skip


def instance_norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "instance_norm_whiten",
) -> Tensor:  # fmt: skip
    """Activations less the mean of their channel and sample, times its inverse deviation."""
    return group_norm_whiten(
        graph, acts, mean, inv_std_dev, sequence, name, n_groups=_n_channels(acts),
        is_strided=False,
    )  # fmt: skip


def instance_normalise(  # noqa: PLR0917 - PopLibs has as many operands
    graph: Graph, acts: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, inv_std_dev: Tensor,
    sequence: Sequence, name: str = "instance_normalise",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(gamma · whitened + beta, whitened); the gradients need the second."""
    return group_normalise(
        graph, acts, gamma, beta, mean, inv_std_dev, sequence, name, n_groups=_n_channels(acts),
        is_strided=False,
    )  # fmt: skip


def instance_norm_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, gamma: Tensor,
    sequence: Sequence, name: str = "instance_norm_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the normalised ones."""
    return group_norm_gradients(
        graph, whitened, gradient, inv_std_dev, gamma, sequence, name,
        n_groups=_n_channels(whitened), is_strided=False,
    )  # fmt: skip


def _n_channels(acts: Tensor) -> int:
    return acts.shape[1] if acts.rank > 1 else 1


def _n_statistics(acts: Tensor, n_groups: int) -> int:
    return acts.shape[0] * n_groups if acts.rank else 0


def _grouped(acts: Tensor, n_groups: int, is_strided: bool) -> Tensor:
    """Activations as [batch, groups, channels of a group, …]."""
    n_channels = acts.shape[1]
    if n_groups < 1 or n_channels % n_groups:
        raise PoplibsError(
            f"{n_channels} channels cannot be cut into {n_groups} groups of one size.",
            source=user_source(),
            hint="n_groups must divide the number of channels",
        )
    n_each = n_channels // n_groups
    if is_strided:
        return acts.reshape_partial(1, 2, [n_each, n_groups]).dim_roll(2, 1)
    return acts.reshape_partial(1, 2, [n_groups, n_each])


def _ungrouped(grouped: Tensor, is_strided: bool) -> Tensor:
    return (grouped.dim_roll(2, 1) if is_strided else grouped).flatten(1, 3)
