"""Special functions: PyTorch's, or the series that JAX defines them by."""

from functools import partial

import torch
from jax._src.lax import special as definitions  # JAX's functions for other platforms than its own
from torch import Tensor

from tremula.frontends.jax.evaluate import by_definition
from tremula.frontends.jax.table import Equation, rule


@rule("polygamma")
def polygamma(_eqn: Equation, order: Tensor, x: Tensor) -> Tensor:
    """By the zeta function: (-1)^(n+1) n! zeta(n + 1, x); the digamma function for n = 0."""
    sign = torch.where(torch.remainder(order, 2) == 0, -1.0, 1.0).to(x.dtype)
    higher = sign * torch.exp(torch.lgamma(order + 1.0)) * torch.special.zeta(order + 1.0, x)
    return torch.where(order == 0, torch.digamma(x), higher)


@rule("zeta")
def zeta(_eqn: Equation, x: Tensor, q: Tensor) -> Tensor:
    return torch.special.zeta(x, q)


@rule("igamma")
def igamma(_eqn: Equation, a: Tensor, x: Tensor) -> Tensor:
    return torch.special.gammainc(a, x)


@rule("igammac")
def igammac(_eqn: Equation, a: Tensor, x: Tensor) -> Tensor:
    return torch.special.gammaincc(a, x)


_BY_DEFINITION = {
    "igamma_grad_a": definitions.igamma_grad_a_impl,
    "random_gamma_grad": definitions.random_gamma_grad_impl,
    "regularized_incomplete_beta": definitions.regularized_incomplete_beta_impl,
}


@rule(*_BY_DEFINITION)
def defined(eqn: Equation, *operands: Tensor) -> Tensor:
    """Series and continued fractions, as loops."""
    function = partial(_BY_DEFINITION[eqn.name], dtype=eqn.dtype)
    whole = [torch.broadcast_to(x, eqn.shape) for x in operands]
    (result,) = by_definition(function, [eqn.out_avals[0]] * len(whole), whole)
    assert isinstance(result, Tensor), "these are functions of numbers"
    return result


@rule("platform_index")
def platform_index(eqn: Equation) -> Tensor:
    """Branches that JAX chooses by platform: the default one, or the first."""
    platforms = eqn.params["platforms"]
    names = [None if p is None else tuple(p) for p in platforms]
    known = [i for i, p in enumerate(names) if p is None or "cpu" in p]
    return torch.tensor(known[0] if known else 0, dtype=torch.int32)
