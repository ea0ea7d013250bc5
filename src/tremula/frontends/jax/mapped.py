"""A function that is nothing but a `shard_map`: what its replicas hold of arguments and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from tremula.frontends.jax.mesh import Cuts, ReplicaMesh, cuts_of, mesh_of


@dataclass(frozen=True)
class MappedFunction:
    """The function of one replica, and how arrays are cut for it."""

    body: ClosedJaxpr
    mesh: ReplicaMesh
    operands: tuple[Any, ...]  # of the body: the number of an argument, or an array that is known
    ins: tuple[Cuts, ...]
    outs: tuple[Cuts, ...]
    out_avals: tuple[Any, ...]
    order: tuple[int, ...]  # of the function's results, by number of the body's

    def operands_of(self, arrays: Sequence[Any], replica: int) -> list[Any]:
        """What a replica gets for the body's operands."""
        result = []
        for operand, cuts in zip(self.operands, self.ins, strict=True):
            x = arrays[operand] if isinstance(operand, int) else operand
            x = x if hasattr(x, "shape") else np.asarray(x)
            result.append(x[self.mesh.part(x.shape, cuts, replica)])
        return result


def mapped_function(closed: ClosedJaxpr) -> MappedFunction | None:
    """The mapped function that a jaxpr is, if it does nothing else."""
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) != 1 or any(isinstance(v, Literal) for v in jaxpr.outvars):
        return None
    (line,) = jaxpr.eqns
    outer = {v: i for i, v in enumerate(jaxpr.invars)}
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    if line.primitive.name in ("jit", "pjit"):
        return _through_a_call(line, jaxpr)
    if line.primitive.name != "shard_map" or any(v not in line.outvars for v in jaxpr.outvars):
        return None
    operands = tuple(
        np.asarray(atom.val) if isinstance(atom, Literal) else outer.get(atom, known.get(atom))
        for atom in line.invars
    )
    params, order = line.params, tuple(line.outvars.index(v) for v in jaxpr.outvars)
    return MappedFunction(
        ClosedJaxpr(params["jaxpr"], ()),
        mesh_of(params),
        operands,
        _all_cuts(params["in_specs"], line.invars),
        _all_cuts(params["out_specs"], line.outvars),
        tuple(v.aval for v in line.outvars),
        order,
    )


def _through_a_call(line: JaxprEqn, jaxpr: Any) -> MappedFunction | None:  # noqa: ANN401
    """Of a call that only passes its arguments and results on."""
    if list(line.invars) != list(jaxpr.invars) or list(line.outvars) != list(jaxpr.outvars):
        return None
    return mapped_function(line.params["jaxpr"])


def _all_cuts(specs: Sequence[Any], atoms: Sequence[Any]) -> tuple[Cuts, ...]:
    pairs = zip(specs, atoms, strict=True)
    return tuple(cuts_of(spec, len(atom.aval.shape)) for spec, atom in pairs)
