"""ai.onnx.ml: features, linear models and encoders."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext, known
from tremula.frontends.onnx.element_types import array_of
from tremula.frontends.onnx.table import ML_DOMAIN as ML
from tremula.frontends.onnx.table import operator


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(x: Tensor, indices: Tensor) -> Tensor:
    """Columns by their numbers."""
    result = x.index_select(-1, indices.reshape(-1).to(torch.int64))
    return result.reshape(1, -1) if x.dim() == 1 else result


@operator("Binarizer", domain=ML)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 above a threshold, else 0."""
    return (x > threshold).to(x.dtype)


@operator("Scaler", domain=ML)
def scaler(
    x: Tensor, *, offset: list[float] | None = None, scale: list[float] | None = None
) -> Tensor:
    """(x - offset) · scale, for each column."""
    wide = x.to(torch.float32)
    offsets, scales = (_row(v, x) for v in (offset or [0.0], scale or [1.0]))
    return (wide - offsets) * scales


def _row(values: list[float], like: Tensor) -> Tensor:
    return known(np.array(values, np.float32)).to(like.device)


@operator("Normalizer", domain=ML)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows divided by their largest, their sum or their length."""
    wide = x.to(torch.float32)
    if norm == "MAX":
        size = wide.abs().amax(-1, keepdim=True)
    elif norm == "L1":
        size = wide.abs().sum(-1, keepdim=True)
    else:
        size = wide.square().sum(-1, keepdim=True).sqrt()
    return wide / torch.where(size == 0, torch.ones_like(size), size)


@operator("Imputer", domain=ML)
def imputer(
    x: Tensor,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    """A value that marks a missing one, replaced."""
    if x.is_floating_point():
        new = known(np.array(imputed_value_floats, np.float32)).to(x.device)
        is_nan = replaced_value_float != replaced_value_float  # noqa: PLR0124 - NaN alone differs
        missing = torch.isnan(x) if is_nan else x == replaced_value_float
    else:
        new = known(np.array(imputed_value_int64s, np.int64)).to(x.device)
        missing = x == replaced_value_int64
    return torch.where(missing, new.to(x.dtype), x)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*operands: Tensor, inputdimensions: list[int]) -> Tensor:
    """Columns of several tensors, side by side."""
    parts = [
        x.reshape(x.shape[0], -1)[:, :n].to(torch.float32)
        for x, n in zip(operands, inputdimensions, strict=True)
    ]
    return torch.cat(parts, 1)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    x: Any,  # noqa: ANN401 - numbers or strings
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> Tensor:
    """1 at the category, along a new axis."""
    del zeros  # an unknown category is always zeros
    if not isinstance(x, Tensor):
        result = x[..., None] == np.array(cats_strings, object)
        return known(result.astype(np.float32))
    categories = known(np.array(cats_int64s, np.int64)).to(x.device)
    return (x.unsqueeze(-1).to(torch.int64) == categories).to(torch.float32)


@operator("LabelEncoder", domain=ML, since=2)
def label_encoder(
    x: object,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Tensor | None = None,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: Tensor | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: Tensor | None = None,
    context: NodeContext,
) -> Any:  # noqa: ANN401
    """Each key as its value, and anything else as the default."""
    del context
    keys = _first(keys_tensor, keys_int64s, keys_strings, keys_floats)
    values = _first(values_tensor, values_int64s, values_strings, values_floats)
    default: Any = default_int64
    if default_tensor is not None:
        default = array_of(default_tensor).reshape(-1)[0]
    elif values_strings is not None or values.dtype == object:
        default = default_string
    elif values_floats is not None or values.dtype.kind == "f":
        default = default_float
    table = {_key(k): v for k, v in zip(keys, values, strict=True)}
    array = array_of(x)
    matches = [table.get(_key(k), default) for k in array.reshape(-1)]
    result = np.array(matches, values.dtype).reshape(array.shape)
    return result if result.dtype == object else known(result)


def _first(*candidates: object) -> np.ndarray:
    """The list that is there, as an array."""
    kinds = (None, np.int64, object, np.float32)
    for value, kind in zip(candidates, kinds, strict=True):
        if value is not None:
            return array_of(value).reshape(-1) if kind is None else np.array(value, kind)
    raise ValueError("the encoder has no keys or no values")


def _key(value: object) -> Any:  # noqa: ANN401
    return "nan" if value != value else value  # noqa: PLR0124 - NaN as a key is itself


@operator("CategoryMapper", domain=ML)
def category_mapper(
    x: Any,  # noqa: ANN401
    *,
    cats_int64s: list[int],
    cats_strings: list[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:  # noqa: ANN401
    """Strings as numbers, or numbers as strings."""
    if isinstance(x, Tensor):
        names = dict(zip(cats_int64s, cats_strings, strict=True))
        result = [names.get(int(v), default_string) for v in x.reshape(-1)]
        return np.array(result, object).reshape(tuple(x.shape))
    numbers = dict(zip(cats_strings, cats_int64s, strict=True))
    result = [numbers.get(v, default_int64) for v in x.reshape(-1)]
    return known(np.array(result, np.int64).reshape(x.shape))


def transformed(scores: Tensor, kind: str) -> Tensor:
    """What follows the scores of a model."""
    if kind == "SOFTMAX":
        return torch.softmax(scores, -1)
    if kind == "LOGISTIC":
        return torch.sigmoid(scores)
    if kind == "SOFTMAX_ZERO":
        powers = torch.where(scores == 0, torch.zeros_like(scores), torch.exp(scores))
        return powers / powers.sum(-1, keepdim=True)
    if kind == "PROBIT":
        return 2**0.5 * torch.erfinv(2 * scores - 1)
    return scores


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    x: Tensor,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    """A product and a bias."""
    weight = _row(coefficients, x).reshape(targets, -1)
    result = x.to(torch.float32) @ weight.t()
    if intercepts:
        result = result + _row(intercepts, x)
    return transformed(result, post_transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    x: Tensor,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Any, Tensor]:
    """The class with the highest score, and the scores."""
    del multi_class
    labels = classlabels_ints or classlabels_strings or []
    weight = _row(coefficients, x).reshape(-1, x.shape[-1])
    scores = x.to(torch.float32) @ weight.t()
    if intercepts:
        scores = scores + _row(intercepts, x)
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = torch.cat([-scores, scores], 1)
    return labelled(scores, labels), transformed(scores, post_transform)


def labelled(scores: Tensor, labels: list[Any]) -> Any:  # noqa: ANN401
    """The label of the highest score of each row."""
    best = scores.argmax(-1)
    if labels and isinstance(labels[0], str):
        return np.array(labels, object)[best.numpy()]
    return known(np.array(labels, np.int64)).to(scores.device)[best]
