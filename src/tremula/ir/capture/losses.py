"""Which tensor a training step differentiates: the marked loss that feeds no other."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812  everyone's name for it
from torch import fx

from tremula.ir.errors import CaptureError
from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN

# Functions whose result is a loss of the model unless it feeds another loss.
LOSS_FUNCTIONS: frozenset[Callable] = frozenset(
    {
        F.nll_loss,
        F.cross_entropy,
        F.binary_cross_entropy,
        F.binary_cross_entropy_with_logits,
        F.kl_div,
        F.poisson_nll_loss,
        F.hinge_embedding_loss,
        F.l1_loss,
        F.mse_loss,
        F.smooth_l1_loss,
        F.soft_margin_loss,
        F.multilabel_soft_margin_loss,
        F.cosine_embedding_loss,
        F.margin_ranking_loss,
        F.triplet_margin_loss,
        F.ctc_loss,
    }
)


def surviving_loss(marked: Iterable[fx.Node]) -> fx.Node:
    """The one marked node that feeds no other mark."""
    marked = list(marked)
    nodes = set(marked)
    fed = set().union(*(_ancestors(node) & nodes for node in nodes)) if nodes else set()
    final = [node for node in dict.fromkeys(marked) if node not in fed]
    if not final:
        raise CaptureError(
            "Couldn't find a loss in graph!",
            hint="call a loss function in forward, or wrap the value to minimise in"
            " poptorch.identity_loss",
        )
    if len(final) > 1:
        raise CaptureError(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final"
            " graph loss in poptorch.identity_loss."
            f"\n  losses: {'; '.join(_place(node) for node in final)}",
            hint="add up what is to be trained and wrap it; compute what is only watched from the"
            " outputs, behind the call",
        )
    return final[0]


def _place(node: fx.Node) -> str:
    origin = node.meta.get(ORIGIN)
    where = f" at {origin.source}" if origin is not None and origin.source is not None else ""
    return f"{schema_name(node)}{where}"


def _ancestors(node: fx.Node) -> set[fx.Node]:
    result, front = set(), list(node.all_input_nodes)
    while front:
        current = front.pop()
        if current not in result:
            result.add(current)
            front += current.all_input_nodes
    return result


def scalar_loss(loss: torch.Tensor) -> torch.Tensor:
    """A loss with several elements is differentiated as its sum."""
    return loss if loss.dim() == 0 else loss.sum()
