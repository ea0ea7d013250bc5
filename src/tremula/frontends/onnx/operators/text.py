"""Strings: arrays of them on the host; none of this runs on tiles."""

import re

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import known
from tremula.frontends.onnx.table import operator

Strings = np.ndarray


@operator("StringConcat", since=20)
def string_concat(a: Strings, b: Strings) -> Strings:
    """Texts joined, element by element."""
    return np.asarray(np.add(a.astype(object), b.astype(object)), object)


@operator("RegexFullMatch", since=20)
def regex_full_match(x: Strings, *, pattern: str) -> Tensor:
    """Whether all of a text matches."""
    rule = re.compile(pattern)
    result = [rule.fullmatch(text) is not None for text in x.reshape(-1)]
    return known(np.array(result, bool).reshape(x.shape))


@operator("StringSplit", since=20)
def string_split(
    x: Strings, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Strings, Tensor]:
    """Parts of each text, filled up with empty ones, and how many there are."""
    at, most = delimiter or None, -1 if maxsplit is None else maxsplit
    parts = [text.split(at, most) for text in x.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    width = max((len(p) for p in parts), default=0)
    filled = [p + [""] * (width - len(p)) for p in parts]
    return np.array(filled, object).reshape(*x.shape, width), known(counts)


@operator("StringNormalizer", since=10)
def string_normalizer(
    x: Strings,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
) -> Strings:
    """Without stop words, in lower or upper case."""
    del locale
    words = stopwords or []
    if not is_case_sensitive:
        words = [word.lower() for word in words]
    rows = x.reshape(-1) if x.ndim == 1 else x[0]
    remaining = [t for t in rows if (t if is_case_sensitive else t.lower()) not in words]
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, str)
    result = np.array([change(text) for text in remaining] or [""], object)
    return result if x.ndim == 1 else result.reshape(1, -1)


@operator("TfIdfVectorizer", since=9, static=("x",))
def tf_idf_vectorizer(
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Tensor:
    """How often n-grams of a list occur in each row, possibly with gaps."""
    pool = pool_int64s if pool_int64s is not None else pool_strings or []
    grams = _grams_of_pool(pool, ngram_counts)
    array = x.numpy() if isinstance(x, torch.Tensor) else x
    rows = array.reshape(1, -1) if array.ndim == 1 else array
    result = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for row, items in zip(result, rows, strict=True):
        for gram in _grams_of_row(items.tolist(), min_gram_length, max_gram_length, max_skip_count):
            if gram in grams:
                row[ngram_indexes[grams[gram]]] += 1
    if mode != "TF":
        scale = np.ones(result.shape[1], np.float32)
        scale[ngram_indexes] = weights if weights is not None else 1
        result = (result > 0 if mode == "IDF" else result) * scale
    return known(result.astype(np.float32).reshape(*array.shape[:-1], -1))


def _grams_of_pool(pool: list, starts: list[int]) -> dict[tuple, int]:
    """The pool lists all 1-grams, then all 2-grams, …; `starts` says where each kind begins."""
    grams: dict[tuple, int] = {}
    ends = [*starts[1:], len(pool)]
    for n, (begin, end) in enumerate(zip(starts, ends, strict=True), 1):
        for i in range(begin, end, n):
            grams[tuple(pool[i : i + n])] = len(grams)
    return grams


def _grams_of_row(items: list, least: int, most: int, max_skip: int) -> list[tuple]:
    result = []
    for n in range(least, most + 1):
        for skip in range(max_skip + 1 if n > 1 else 1):
            step = skip + 1
            last = len(items) - (n - 1) * step
            result += [tuple(items[i : i + n * step : step]) for i in range(max(last, 0))]
    return result
