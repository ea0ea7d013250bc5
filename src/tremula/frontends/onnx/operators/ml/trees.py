"""Ensembles of decision trees: all rows go down all trees together, level by level."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import known
from tremula.frontends.onnx.element_types import array_of
from tremula.frontends.onnx.operators.ml.features import labelled, transformed
from tremula.frontends.onnx.table import ML_DOMAIN as ML
from tremula.frontends.onnx.table import operator

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Forest:
    """Columns of nodes; a leaf is a node whose two ways lead to itself."""

    roots: np.ndarray
    feature: np.ndarray
    split: np.ndarray
    mode: np.ndarray
    on_true: np.ndarray
    on_false: np.ndarray
    missing_is_true: np.ndarray
    weights: np.ndarray  # [node, target]; zero where a node is not a leaf
    members: np.ndarray | None = None  # [node, value] of sets, filled up with NaN

    def depth(self) -> int:
        level, depth = self.roots, 0
        while True:
            below = np.unique(np.concatenate([self.on_true[level], self.on_false[level]]))
            inner = below[self.on_true[below] != below]
            if not len(inner):
                return depth + 1
            level, depth = inner, depth + 1
            if depth > len(self.feature):
                raise ValueError("the nodes of a tree form a circle")

    def leaves(self, x: Tensor) -> Tensor:
        """[row, tree]: the leaf each row ends in."""
        columns = {
            name: known(getattr(self, name)).to(x.device)
            for name in ("feature", "mode", "on_true", "on_false", "missing_is_true")
        }
        split = known(self.split).to(x.device).to(x.dtype)
        at = known(self.roots).to(x.device).unsqueeze(0).expand(x.shape[0], -1)
        for _ in range(self.depth()):
            value = torch.gather(x, 1, columns["feature"][at])
            goes = self._holds(value, split[at], columns["mode"][at], at)
            goes = goes | (torch.isnan(value) & columns["missing_is_true"][at])
            at = torch.where(goes, columns["on_true"][at], columns["on_false"][at])
        return at

    def _holds(self, value: Tensor, bound: Tensor, mode: Tensor, at: Tensor) -> Tensor:
        tests = [value <= bound, value < bound, value >= bound]
        tests += [value > bound, value == bound, value != bound]
        if self.members is not None:
            sets = known(self.members).to(value.device).to(value.dtype)[at]
            tests.append((sets == value.unsqueeze(-1)).any(-1))
        used = sorted(set(self.mode.tolist()))
        result = tests[used[0]]
        for number in used[1:]:
            result = torch.where(mode == number, tests[number], result)
        return result

    def scores(self, x: Tensor, aggregate: str) -> Tensor:
        table = known(self.weights).to(x.device).to(x.dtype)
        each = table[self.leaves(x)]
        if aggregate == "MIN":
            return each.amin(1)
        if aggregate == "MAX":
            return each.amax(1)
        total = each.sum(1)
        return total / len(self.roots) if aggregate == "AVERAGE" else total


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(
    x: Tensor,
    *,
    aggregate_function: int = 1,
    leaf_targetids: list[int],
    leaf_weights: Tensor,
    membership_values: Tensor | None = None,
    n_targets: int = 1,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: Tensor | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: Tensor,
    nodes_splits: Tensor,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    post_transform: int = 0,
    tree_roots: list[int],
) -> Tensor:
    """Sums over trees whose leaves are listed apart from their nodes."""
    del nodes_hitrates
    n, n_leaves = len(nodes_featureids), len(leaf_targetids)
    own = np.arange(n, n + n_leaves)

    def ways(ids: list[int], is_leaf: list[int]) -> np.ndarray:
        return np.concatenate([np.where(np.array(is_leaf) == 1, np.array(ids) + n, ids), own])

    modes = array_of(nodes_modes).astype(np.int64)
    weights = np.zeros((n + n_leaves, n_targets))
    weights[own, leaf_targetids] = array_of(leaf_weights)
    missing = nodes_missing_value_tracks_true or [0] * n
    forest = Forest(
        np.array(tree_roots, np.int64),
        np.concatenate([nodes_featureids, np.zeros(n_leaves, np.int64)]).astype(np.int64),
        np.concatenate([array_of(nodes_splits), np.zeros(n_leaves)]),
        np.concatenate([modes, np.zeros(n_leaves, np.int64)]),
        ways(nodes_truenodeids, nodes_trueleafs).astype(np.int64),
        ways(nodes_falsenodeids, nodes_falseleafs).astype(np.int64),
        np.concatenate([missing, np.zeros(n_leaves)]).astype(bool),
        weights,
        _sets(modes, membership_values, n + n_leaves),
    )
    scores = forest.scores(x, _AGGREGATES[aggregate_function])
    return transformed(scores, _TRANSFORMS[post_transform])


def _sets(modes: np.ndarray, values: Tensor | None, n: int) -> np.ndarray | None:
    """The sets of nodes that test membership; NaN ends each in the list."""
    if values is None or not (modes == _MEMBER).any():
        return None
    array = array_of(values)
    ends = np.flatnonzero(np.isnan(array))
    parts = np.split(array, ends + 1)[: len(ends)]
    width = max(len(part) for part in parts)
    result = np.full((n, width), np.nan)
    for node, part in zip(np.flatnonzero(modes == _MEMBER), parts, strict=True):
        result[node, : len(part) - 1] = part[:-1]
    return result


def _classic(attributes: dict[str, Any], prefix: str, n_targets: int) -> Forest:
    """Trees as versions before 5 list them: nodes by tree and number, leaves by both, too."""
    trees = np.array(attributes["nodes_treeids"])
    numbers = np.array(attributes["nodes_nodeids"])
    place = {key: i for i, key in enumerate(zip(trees.tolist(), numbers.tolist(), strict=True))}
    names: list[str] = attributes["nodes_modes"]
    is_leaf = np.array([name == "LEAF" for name in names])
    own = np.arange(len(trees))

    def ways(ids: list[int]) -> np.ndarray:
        targets = [
            i if leaf else place[tree, to]
            for i, (tree, to, leaf) in enumerate(zip(trees.tolist(), ids, is_leaf, strict=True))
        ]
        return np.array(targets, np.int64)

    weights = np.zeros((len(trees), n_targets))
    rows = zip(
        attributes[f"{prefix}_treeids"],
        attributes[f"{prefix}_nodeids"],
        attributes[f"{prefix}_ids"],
        attributes[f"{prefix}_weights"],
        strict=True,
    )
    for tree, node, target, weight in rows:
        weights[place[tree, node], target] += weight
    firsts = [int(own[trees == tree][0]) for tree in dict.fromkeys(trees.tolist())]
    missing = attributes.get("nodes_missing_value_tracks_true") or [0] * len(trees)
    return Forest(
        np.array(firsts, np.int64),
        np.array(attributes["nodes_featureids"], np.int64),
        np.array(attributes["nodes_values"], np.float64),
        np.array(
            [0 if leaf else _MODES.index(name) for name, leaf in zip(names, is_leaf, strict=True)]
        ),
        ways(attributes["nodes_truenodeids"]),
        ways(attributes["nodes_falsenodeids"]),
        np.array(missing).astype(bool),
        weights,
    )


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    x: Tensor,
    *,
    aggregate_function: str = "SUM",
    base_values: list[float] | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: list[float] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float],
    post_transform: str = "NONE",
    target_ids: list[int],
    target_nodeids: list[int],
    target_treeids: list[int],
    target_weights: list[float],
) -> Tensor:
    """Sums over trees, before version 5."""
    attributes = dict(locals())
    del nodes_hitrates
    trees = _classic(attributes, "target", n_targets)
    scores = trees.scores(x.to(torch.float32), aggregate_function)
    if base_values:
        scores = scores + known(np.array(base_values, np.float32)).to(x.device)
    return transformed(scores, post_transform)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    x: Tensor,
    *,
    base_values: list[float] | None = None,
    class_ids: list[int],
    class_nodeids: list[int],
    class_treeids: list[int],
    class_weights: list[float],
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: list[float] | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str],
    nodes_nodeids: list[int],
    nodes_treeids: list[int],
    nodes_truenodeids: list[int],
    nodes_values: list[float],
    post_transform: str = "NONE",
) -> tuple[Any, Tensor]:
    """The class with the highest sum over trees, and the sums, before version 5."""
    attributes = dict(locals())
    del nodes_hitrates
    labels: list[Any] = classlabels_int64s or classlabels_strings or []
    is_binary = len(labels) == 2 and set(class_ids) == {class_ids[0]}
    n = max(len(labels), max(class_ids) + 1)
    scores = _classic(attributes, "class", n).scores(x.to(torch.float32), "SUM")
    if base_values:
        scores = scores + known(np.array(base_values, np.float32)).to(x.device)
    if is_binary:  # one score, which is that of the second class
        second = scores[:, class_ids[0]]
        scores = torch.stack([1 - second, second], 1)
    return labelled(scores, labels), transformed(scores, post_transform)
