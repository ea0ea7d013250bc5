"""Anchored tensors: which are results of a step, which gradients, which are on the device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tremula.frontends.popart import names
from tremula.frontends.popart.sessions.checks import missing_anchor
from tremula.frontends.popart.sessions.weights import STATE_PREFIXES


@dataclass(frozen=True)
class AnchorKinds:
    """Ids of anchors by where their values come from."""

    forward: tuple[str, ...] = ()  # tensors that the graph computes, and inputs
    gradients: tuple[str, ...] = ()  # Gradient___x, without the prefix
    weights: tuple[str, ...] = ()  # as they are after the update of their batch
    of_optimiser: tuple[str, ...] = ()  # states and hyperparameters, after the step
    accumulators: tuple[str, ...] = ()  # Accum___w: sums of gradients of a batch so far


def sort_anchors(
    anchors: Iterable[str], computed: Sequence[str], weights: Sequence[str], *, is_training: bool
) -> AnchorKinds:
    """Sort ids by kind; raises for one that names nothing."""
    kinds: dict[str, list[str]] = {
        "forward": [],
        "gradients": [],
        "weights": [],
        "of_optimiser": [],
        "accumulators": [],
    }
    known = {*computed, *weights}
    for id in anchors:
        kinds[_kind(id, known, set(weights), is_training)].append(id)
    gradients = [id.removeprefix(names.GRADIENT) for id in kinds["gradients"]]
    gradients += [weight_of(id) for id in kinds["accumulators"]]
    return AnchorKinds(
        tuple(kinds["forward"]),
        tuple(dict.fromkeys(gradients)),
        tuple(kinds["weights"]),
        tuple(kinds["of_optimiser"]),
        tuple(kinds["accumulators"]),
    )


def _kind(id: str, known: set[str], weights: set[str], is_training: bool) -> str:
    if id in weights:
        return "weights"
    if id in known:
        return "forward"
    if is_training:
        if id.startswith(names.GRADIENT) and id.removeprefix(names.GRADIENT) in known:
            return "gradients"
        if id.startswith(names.UPDATED) and id.removeprefix(names.UPDATED) in weights:
            return "weights"
        if id.startswith(names.ACCUMULATOR) and weight_of(id) in weights:
            return "accumulators"
        if is_of_optimiser(id):
            return "of_optimiser"
    raise missing_anchor(id, known)


def weight_of(id: str) -> str:
    """The weight that an anchor of kind `weights` or `accumulators` is about."""
    return id.removeprefix(names.UPDATED).removeprefix(names.ACCUMULATOR)


def is_of_optimiser(id: str) -> bool:
    """Whether a name is that of a state or a hyperparameter of an optimiser."""
    is_number = id.startswith(names.LOSS_SCALING) or "___default___" in id or "___specific___" in id
    return is_number or id.startswith(STATE_PREFIXES)
