"""Batch, group, layer and instance norm, forward and backward: activations [batch, channels, …].

Batch norm has statistics per channel; group norm per sample and group of channels. Layer norm is
group norm with one group, instance norm with a group per channel. Gamma and beta are per channel.

PopLibs spreads the channels of a group over all channels (group g has the channels c with
c % n_groups == g), which is faster on tiles. `is_strided=False` makes groups of neighbours instead,
as other frameworks do.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.poplin import norms as norm_math
from tremula.poplibs.poplin.norms import (
    CODELETS,
    TOLERANCE,
    check_norm_operands,
    per_channel,
    reference_input_gradient,
    reference_normalise,
    reference_param_gradients,
    reference_statistics,
)
from tremula.poplibs.popops.elementwise.scaled_add import scaled_codelet
from tremula.poplibs.poputil import replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

PER_GROUP = (0, 1)  # of activations seen as [batch, groups, channels of a group, …]


@replayed
def batch_norm_statistics(
    graph: Graph, acts: Tensor, sequence: Sequence, name: str = "batch_norm_statistics",
    *, epsilon: float, is_unbiased: bool = False, is_stable: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and inverse standard deviation of each channel over the batch."""
    return norm_math.norm_statistics(
        graph, acts, sequence, name, epsilon=epsilon, is_unbiased=is_unbiased, is_stable=is_stable
    )


def batch_norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "batch_norm_whiten",
) -> Tensor:  # fmt: skip
    """Activations minus the mean, times the inverse deviation."""
    return norm_math.norm_whiten(graph, acts, mean, inv_std_dev, sequence, name)


@replayed
def batch_normalise(  # noqa: PLR0917 - PopLibs has as many operands
    graph: Graph, acts: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, inv_std_dev: Tensor,
    sequence: Sequence, name: str = "batch_normalise",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(gamma · whitened + beta, whitened); the gradients need the second."""
    whitened = batch_norm_whiten(graph, acts, mean, inv_std_dev, sequence, f"{name}/whiten")
    return norm_math.normalise(graph, whitened, gamma, beta, sequence, name), whitened


def batch_norm_param_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "batch_norm_param_gradients",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of gamma and beta."""
    return norm_math.norm_param_gradients(graph, whitened, gradient, sequence, name)


@replayed
def batch_norm_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, gamma: Tensor,
    sequence: Sequence, name: str = "batch_norm_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the normalised ones."""
    of_whitened = norm_math.norm_gradients(graph, gradient, gamma, sequence, f"{name}/gamma")
    return norm_math.norm_statistics_gradients(
        graph, whitened, of_whitened, inv_std_dev, sequence, name
    )


def norm_param_update(
    graph: Graph, gamma_gradient: Tensor, beta_gradient: Tensor, gamma: Tensor, beta: Tensor,
    sequence: Sequence, name: str = "norm_param_update", *, scale: Tensor | float,
) -> None:  # fmt: skip
    """Gamma and beta plus `scale` times their gradients, in place; descent has a negative scale."""
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
    """Activations minus the mean of their group, times its inverse deviation."""
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
    return norm_math.normalise(graph, whitened, gamma, beta, sequence, name), whitened


def group_norm_param_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "group_norm_param_gradients",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of gamma and beta; the same for any number of groups."""
    return norm_math.norm_param_gradients(graph, whitened, gradient, sequence, name)


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
    of_whitened = norm_math.norm_gradients(graph, gradient, gamma, sequence, f"{name}/gamma")
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
    """Activations minus the mean of their sample, times its inverse deviation."""
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
    """Activations minus the mean of their channel and sample, times its inverse deviation."""
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


# -- registry --------------------------------------------------------------------------------------


EPSILON = 1e-3
Groups = int | None  # None: batch norm


def _axes(x: np.ndarray, n_groups: Groups) -> tuple[int, ...]:
    """What is summed over, of activations in the form `_as_groups` gives them."""
    if n_groups is None:
        return tuple(d for d in range(x.ndim) if d != 1)
    return tuple(range(2, x.ndim))


def _as_groups(x: np.ndarray, n_groups: Groups, is_strided: bool) -> np.ndarray:
    if n_groups is None:
        return x
    n_each = x.shape[1] // n_groups
    if is_strided:
        split = x.reshape(x.shape[0], n_each, n_groups, *x.shape[2:])
        return np.moveaxis(split, 2, 1)
    return x.reshape(x.shape[0], n_groups, n_each, *x.shape[2:])


def _from_groups(
    x: np.ndarray, shape: tuple[int, ...], n_groups: Groups, is_strided: bool
) -> np.ndarray:
    moved = np.moveaxis(x, 1, 2) if n_groups is not None and is_strided else x
    return moved.reshape(shape)


def _column(values: np.ndarray, x: np.ndarray, n_groups: Groups) -> np.ndarray:
    """Statistics, shaped to broadcast over what they summarise."""
    dims = (1,) if n_groups is None else (0, 1)
    return values.astype(np.float64).reshape(
        [x.shape[d] if d in dims else 1 for d in range(x.ndim)]
    )


def _groups_of(kind: str, x: np.ndarray, n_groups: int) -> Groups:
    return {"batch": None, "group": n_groups, "layer": 1, "instance": x.shape[1]}[kind]


def _statistics(kind: str) -> Callable[..., tuple[np.ndarray, ...]]:
    def reference(
        x: np.ndarray, *, epsilon: float, n_groups: int = 1, is_unbiased: bool = False,
        is_stable: bool = False, is_strided: bool = True,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        del is_stable
        groups = _groups_of(kind, x, n_groups)
        view = _as_groups(x, groups, is_strided and kind == "group")
        both = reference_statistics(view, _axes(view, groups), epsilon, is_unbiased)
        return tuple(s.astype(x.dtype) for s in both)

    return reference


def _whiten(kind: str) -> Callable[..., np.ndarray]:
    def reference(
        x: np.ndarray, mean: np.ndarray, inverse: np.ndarray, *, n_groups: int = 1,
        is_strided: bool = True,
    ) -> np.ndarray:  # fmt: skip
        groups, strided = _groups_of(kind, x, n_groups), is_strided and kind == "group"
        view = _as_groups(x.astype(np.float64), groups, strided)
        result = (view - _column(mean, view, groups)) * _column(inverse, view, groups)
        return _from_groups(result, x.shape, groups, strided).astype(x.dtype)

    return reference


def _normalise(kind: str) -> Callable[..., tuple[np.ndarray, ...]]:
    def reference(
        x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, inverse: np.ndarray,
        **options: object,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        whitened = _whiten(kind)(x, mean, inverse, **options)
        return reference_normalise(whitened, gamma, beta), whitened

    return reference


def _gradients(kind: str) -> Callable[..., np.ndarray]:
    def reference(
        whitened: np.ndarray, gradient: np.ndarray, inverse: np.ndarray, gamma: np.ndarray,
        *, n_groups: int = 1, is_strided: bool = True,
    ) -> np.ndarray:  # fmt: skip
        groups = _groups_of(kind, whitened, n_groups)
        strided = is_strided and kind == "group"
        scaled = gradient.astype(np.float64) * per_channel(gamma, gradient.ndim)
        view = _as_groups(whitened, groups, strided)
        result = reference_input_gradient(
            view, _as_groups(scaled, groups, strided), _axes(view, groups),
            _column(inverse, view, groups),
        )  # fmt: skip
        return _from_groups(result, whitened.shape, groups, strided).astype(whitened.dtype)

    return reference


def _cases(kind: str) -> tuple[tuple[tuple[int, ...], dict[str, object]], ...]:
    """(shape, options) of the samples."""
    if kind != "group":
        return (((4, 6), {}), ((3, 2, 5), {})) if kind != "instance" else (((3, 4, 5), {}),)
    return (((2, 6, 5), {"n_groups": 3}), ((3, 4), {"n_groups": 2, "is_strided": False}))


def _n_sample_statistics(kind: str, shape: tuple[int, ...], options: dict[str, object]) -> int:
    if kind == "batch":
        return shape[1]
    n_groups = {"group": options.get("n_groups"), "layer": 1, "instance": shape[1]}[kind]
    return shape[0] * int(str(n_groups))


def _samples(kind: str, form: str) -> Callable[[Type, np.random.Generator], Iterator[Sample]]:
    """Samples whose operands are named by letters: x or g full, c per channel, s per statistic."""

    def samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
        for shape, options in _cases(kind):
            n_statistics = _n_sample_statistics(kind, shape, options)
            size = {"x": shape, "c": (shape[1],), "s": (n_statistics,)}
            arrays = (rng.normal(0.3, 1, size[letter]).astype(element.dtype) for letter in form)
            more = {"epsilon": EPSILON} if form == "x" else {}
            yield Sample(tuple(arrays), {**options, **more})

    return samples


def _update_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(
        tuple(rng.normal(0, 1, 7).astype(element.dtype) for _ in range(4)), {"scale": -0.5}
    )


def _updated(
    graph: Graph, gamma: Tensor, of_gamma: Tensor, beta: Tensor,
    of_beta: Tensor, sequence: Sequence, *, scale: float,
) -> None:  # fmt: skip
    """norm_param_update with the tensor that tests compare first."""
    norm_param_update(graph, of_gamma, of_beta, gamma, beta, sequence, scale=scale)


_X = np.ones((2, 3, 4), np.float32)
_GROUPS = ErrorCase(
    Sample((_X,), {"epsilon": EPSILON, "n_groups": 2}), "3 channels cannot be cut into 2 groups"
)
_INTS = ErrorCase(Sample((_X.astype(np.int32),), {"epsilon": EPSILON}), "does not work on int")
_ABOUT = {
    "batch": "of each channel over the batch", "group": "of groups of channels in each sample",
    "layer": "of each sample", "instance": "of each channel of each sample",
}  # fmt: skip

for _kind, _over in _ABOUT.items():
    for _name, _form, _about, _reference, _errors in (
        (f"{_kind}_norm_statistics", "x", f"Mean and inverse deviation {_over}.",
         _statistics(_kind), (_GROUPS,) if _kind == "group" else (_INTS,)),
        (f"{_kind}_norm_whiten", "xss", f"Mean 0 and deviation 1 {_over}.", _whiten(_kind), ()),
        (f"{_kind}_normalise", "xccss", f"Whitened {_over}, times gamma, plus beta.",
         _normalise(_kind), ()),
        (f"{_kind}_norm_gradients", "xxsc", f"The gradient of activations normalised {_over}.",
         _gradients(_kind), ()),
    ):  # fmt: skip
        register(Op(
            name=f"popnn.{_name}", function=globals()[_name], about=_about,
            types=(FLOAT, HALF), samples=_samples(_kind, _form), reference=_reference,
            codelets=CODELETS, errors=_errors, tolerance=TOLERANCE,
        ))  # fmt: skip

for _kind in ("batch", "group"):
    register(Op(
        name=f"popnn.{_kind}_norm_param_gradients",
        function=globals()[f"{_kind}_norm_param_gradients"],
        about="Gradients of gamma and beta.", types=(FLOAT, HALF),
        samples=_samples("batch", "xx"), reference=reference_param_gradients, codelets=CODELETS,
        tolerance=TOLERANCE,
    ))  # fmt: skip

register(Op(
    name="popnn.norm_param_update", function=_updated,
    about="Gamma and beta plus a multiple of their gradients.", types=(FLOAT, HALF),
    samples=_update_samples,
    reference=lambda gamma, of_gamma, beta, of_beta, *, scale:  # noqa: ARG005
        (gamma.astype(np.float64) + scale * of_gamma).astype(gamma.dtype),
    codelets=(scaled_codelet,), tolerance=TOLERANCE, is_in_place=True,
))  # fmt: skip
