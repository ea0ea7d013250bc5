"""Masks of attention that depend on no input: causal ones, and those that hide nothing.

Libraries build a mask from ranges of positions even where `is_causal` would say the same, and fused
kernels are fastest without a mask.
"""

import operator
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.nodes import is_random
from tremula.ir.step import CapturedStep

_MAX_ELEMENTS = 1 << 27  # of a value that is computed to look at it
CAUSAL, NOTHING = "causal", "nothing"  # what a mask hides: later positions, or nothing


class ConstantMasks:
    """Computes what nodes of a step without inputs are, and remembers it."""

    def __init__(self, step: CapturedStep):
        self._constants = step.constants
        self._known: dict[fx.Node, Any] = {}
        self._hidden: dict[fx.Node, str] = {}

    def hidden_by(self, mask: fx.Node) -> str:
        """CAUSAL, NOTHING, or empty for any other mask that is added to scores."""
        if mask not in self._hidden:
            value = self._value(mask) if self._is_constant(mask) else None
            self._hidden[mask] = "" if value is None else _hidden_by(value)
        return self._hidden[mask]

    def _is_constant(self, node: fx.Node) -> bool:
        """Whether nothing that a node is computed from is an input, random or large."""
        seen, waiting = set(), [node]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op not in ("call_function", "get_attr") or _is_unknown(node):
                return False
            waiting += node.all_input_nodes
        return True

    def _value(self, node: fx.Node) -> Any:  # noqa: ANN401 - a tensor, or several
        """The value of a node: operands are computed first, without recursion."""
        waiting = [node]
        while waiting:
            node_now = waiting[-1]
            missing = [x for x in node_now.all_input_nodes if x not in self._known]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if node_now not in self._known:
                self._known[node_now] = self._computed(node_now)
        return self._known[node]

    def _computed(self, node: fx.Node) -> Any:  # noqa: ANN401
        if node.op == "get_attr":
            return self._constants[str(node.target)]
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._known.__getitem__)
        assert callable(node.target), f"{node} is a call"
        return node.target(*args, **kwargs)


def _is_unknown(node: fx.Node) -> bool:
    if node.op == "get_attr" or node.target is operator.getitem:
        return False
    value = node.meta.get("val")
    is_large = isinstance(value, Tensor) and value.numel() > _MAX_ELEMENTS
    return is_large or is_random(node)


def _hidden_by(mask: Tensor) -> str:
    """What a mask of scores hides: it is 0 where a position is visible, -inf or large where not."""
    if not bool(mask.any()):
        return NOTHING
    n_queries, n_keys = mask.shape[-2:]
    if n_queries != n_keys:
        return ""
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool, device=mask.device).tril()
    least = torch.finfo(mask.dtype).min
    is_causal = torch.where(visible, mask == 0, mask <= least).all()
    return CAUSAL if bool(is_causal) else ""
