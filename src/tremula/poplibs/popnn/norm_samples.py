"""Registry entries of batch, group, layer and instance norm: samples and NumPy references."""

from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplibs.poplin.norms import (
    CODELETS,
    TOLERANCE,
    per_channel,
    reference_input_gradient,
    reference_normalise,
    reference_param_gradients,
    reference_statistics,
)
from tremula.poplibs.popnn import norms
from tremula.poplibs.popops.elementwise.scaled_add import scaled_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

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
    """Statistics, shaped to be repeated over what they were taken of."""
    kept = (1,) if n_groups is None else (0, 1)
    return values.astype(np.float64).reshape(
        [x.shape[d] if d in kept else 1 for d in range(x.ndim)]
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
            size = {"x": shape, "c": (shape[1],), "s": (_n_sample_statistics(kind, shape, options),)}
            arrays = (rng.normal(0.3, 1, size[letter]).astype(element.dtype) for letter in form)
            more = {"epsilon": EPSILON} if form == "x" else {}
            yield Sample(tuple(arrays), {**options, **more})

    return samples


def _update_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample(
        tuple(rng.normal(0, 1, 7).astype(element.dtype) for _ in range(4)), {"scale": -0.5}
    )


def _updated(
    graph: norms.Graph, gamma: norms.Tensor, of_gamma: norms.Tensor, beta: norms.Tensor,
    of_beta: norms.Tensor, sequence: norms.Sequence, *, scale: float,
) -> None:  # fmt: skip
    """norm_param_update with the tensor that is compared in front."""
    norms.norm_param_update(graph, of_gamma, of_beta, gamma, beta, sequence, scale=scale)


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
            name=f"popnn.{_name}", function=getattr(norms, _name), about=_about,
            types=(FLOAT, HALF), samples=_samples(_kind, _form), reference=_reference,
            codelets=CODELETS, errors=_errors, tolerance=TOLERANCE,
        ))  # fmt: skip

for _kind in ("batch", "group"):
    register(Op(
        name=f"popnn.{_kind}_norm_param_gradients",
        function=getattr(norms, f"{_kind}_norm_param_gradients"),
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
