"""Collectives over named axes, which replicas run, and functions mapped over a mesh of them."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun
from torch import Tensor

from tremula.base.replica_group import ReplicaGroup
from tremula.frontends.jax.carriers import Value
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.evaluate import by_definition
from tremula.frontends.jax.mesh import Cuts, ReplicaMesh, current_mesh, cuts_of, mesh_of
from tremula.frontends.jax.table import Equation, rule
from tremula.ir.ops import shards  # noqa: F401  registers tremula::group_all_reduce

_REDUCTIONS = {
    "psum": (torch.sum, "ADD"),
    "psum_invariant": (torch.sum, "ADD"),
    "pmax": (torch.amax, "MAX"),
    "pmin": (torch.amin, "MIN"),
}


def _names(eqn: Equation) -> tuple[Hashable, ...]:
    """The axes that an equation works along."""
    axes = eqn.params["axes"] if "axes" in eqn.params else eqn.params["axis_name"]
    if eqn.params.get("axis_index_groups") is not None:
        raise JaxError(
            f"{eqn.name} within axis_index_groups has no translation.",
            hint="give the mesh one more axis, and name the axes to work along",
        )
    return axes if isinstance(axes, tuple) else (axes,)


def _mesh(eqn: Equation, names: Sequence[Hashable]) -> ReplicaMesh:
    mesh = current_mesh()
    known = [] if mesh is None else [name for name, _ in mesh.axes]
    if mesh is None or any(name not in known for name in names):
        raise JaxError(
            f"{eqn.name} over {tuple(names)}: no function around it maps that axis.",
            hint="map it with tremula.jax.pmap(f, axis_name=…), jax.shard_map or jax.vmap",
        )
    return mesh


def _group(eqn: Equation) -> tuple[int, int]:
    """Size and stride of the replicas along the one axis of an equation."""
    names = _names(eqn)
    if len(names) != 1:
        raise JaxError(f"{eqn.name} over {names}: one axis at a time has a translation.")
    return _sizes(_mesh(eqn, names).group(names[0]))


def _sizes(group: ReplicaGroup) -> tuple[int, int]:
    """A group as operators take it."""
    return group.size, group.stride


def _place(size: int, stride: int) -> Tensor:
    """Where along an axis this replica is: int32 []."""
    return torch.ops.tremula.replica_number() // stride % size


@rule(*_REDUCTIONS)
def reduced(eqn: Equation, *values: Tensor) -> list[Value]:
    """Over replicas, or along dimensions, which is what `vmap` leaves of an axis."""
    along, operation = _REDUCTIONS[eqn.name]
    axes = _names(eqn)
    dims, names = [a for a in axes if isinstance(a, int)], [a for a in axes if type(a) is not int]
    groups = [_sizes(_mesh(eqn, names).group(name)) for name in names]
    result: list[Value] = []
    for value in values:
        x = along(value, dims) if dims else value
        for size, stride in groups:
            x = torch.ops.tremula.group_all_reduce(x, operation, size, stride)
        result.append(x)
    return result


@rule("axis_index")
def axis_index(eqn: Equation) -> Tensor:
    return _place(*_group(eqn))


@rule("all_gather", "all_gather_invariant")
def all_gather(eqn: Equation, x: Tensor) -> Tensor:
    rows, names = x, _names(eqn)
    mesh = _mesh(eqn, names)
    for name in reversed(names):  # the outermost axis last: it is in front then
        rows = torch.ops.tremula.group_all_gather(rows, *_sizes(mesh.group(name)))
    rows = rows.reshape(-1, *x.shape)
    dim = eqn.params["all_gather_dimension"]
    rows = rows.movedim(0, dim)
    return rows.reshape(eqn.shape) if eqn.params["tiled"] else rows


@rule("reduce_scatter")
def reduce_scatter(eqn: Equation, x: Tensor) -> Tensor:
    """Each replica gets its part of the sum."""
    (size, stride), dim = _group(eqn), eqn.params["scatter_dimension"]
    rows = _split(x, dim, size).movedim(dim, 0) if eqn.params["tiled"] else x.movedim(dim, 0)
    rows = rows.contiguous()
    own = torch.ops.tremula.group_reduce_scatter(rows, "ADD", size, stride)
    return own.reshape(eqn.shape)


def _split(x: Tensor, dim: int, size: int) -> Tensor:
    """A dimension as two, the first with one element for each replica."""
    return x.reshape(*x.shape[:dim], size, x.shape[dim] // size, *x.shape[dim + 1 :])


@rule("ppermute")
def ppermute(eqn: Equation, x: Tensor) -> Tensor:
    """What the replica before holds; zeros where nothing is sent."""
    size, stride = _group(eqn)
    source = [-1] * size
    for begin, end in eqn.params["perm"]:
        source[end] = begin
    rows = torch.ops.tremula.group_all_gather(x, size, stride)
    chosen = torch.tensor(source, dtype=torch.int32)[_place(size, stride).reshape(1)]
    result = rows.index_select(0, chosen.clamp(min=0))[0]
    return torch.where(chosen >= 0, result, torch.zeros_like(result))


@rule("all_to_all")
def all_to_all(eqn: Equation, x: Tensor) -> Tensor:
    """Of what each replica holds, one's own part."""
    size, stride = _group(eqn)
    split, concat = eqn.params["split_axis"], eqn.params["concat_axis"]
    if eqn.params["tiled"]:
        x = _split(x, split, size)
    rows = torch.ops.tremula.group_all_gather(x, size, stride)
    own = rows.index_select(split + 1, _place(size, stride).reshape(1)).squeeze(split + 1)
    return own.movedim(0, concat).reshape(eqn.shape)


# -- a function mapped over a mesh, in one program -------------------------------------------------


@rule("shard_map")
def shard_map(eqn: Equation, *operands: Value) -> list[Value]:
    """All replicas computed at once: a `vmap` for each axis of the mesh."""
    mesh, params = mesh_of(eqn.params), eqn.params
    ins = [cuts_of(s, len(a.shape)) for s, a in zip(params["in_specs"], eqn.in_avals, strict=True)]
    outs = [
        cuts_of(s, len(a.shape)) for s, a in zip(params["out_specs"], eqn.out_avals, strict=True)
    ]
    body = jaxpr_as_fun(ClosedJaxpr(_for_vmap(params["jaxpr"], mesh), ()))

    def mapped(*arrays: object) -> list[Any]:
        cut = [_parts(x, cuts, mesh) for x, cuts in zip(arrays, ins, strict=True)]
        result = _over_axes(body, mesh, ins)(*cut)
        return [_whole(x, cuts, mesh) for x, cuts in zip(result, outs, strict=True)]

    return by_definition(mapped, eqn.in_avals, operands)


def _over_axes(body: Callable, mesh: ReplicaMesh, ins: Sequence[Cuts]) -> Callable:
    for name, size in reversed(mesh.axes):
        in_axes = tuple(0 if any(name in names for names in cuts) else None for cuts in ins)
        body = jax.vmap(body, in_axes=in_axes, axis_name=name, axis_size=size)
    return body


def _parts(x: Any, cuts: Cuts, mesh: ReplicaMesh) -> Any:  # noqa: ANN401
    """An array with a dimension in front for each axis that cuts it, in the mesh's order."""
    shape, result = [], []
    for size, names in zip(x.shape, cuts, strict=True):
        lengths = [mesh.group(name).size for name in names]
        result += [(name, len(shape) + i) for i, name in enumerate(names)]
        shape += [*lengths, size // math.prod(lengths)]
    order = [name for name, _ in mesh.axes]
    front = [place for _, place in sorted(result, key=lambda one: order.index(one[0]))]
    rest = [i for i in range(len(shape)) if i not in front]
    return jnp.transpose(x.reshape(shape), (*front, *rest))


def _whole(x: Any, cuts: Cuts, mesh: ReplicaMesh) -> Any:  # noqa: ANN401
    """The inverse: all axes of the mesh are in front; along those that cut nothing, the first."""
    used = [name for names in cuts for name in names]
    for i, (name, _) in reversed(list(enumerate(mesh.axes))):
        if name not in used:
            x = lax.index_in_dim(x, 0, i, keepdims=False)
    order = [name for name, _ in mesh.axes if name in used]
    own, axes, shape = iter(range(len(order), x.ndim)), [], []
    for names in cuts:
        dim = next(own)
        axes += [*(order.index(name) for name in names), dim]
        length = x.shape[dim]
        for name in names:
            length *= mesh.group(name).size
        shape.append(length)
    return jnp.transpose(x, axes).reshape(shape)


_UNMARKED = {"psum_invariant": lax.psum_p, "all_gather_invariant": lax.all_gather_p}


def _for_vmap(jaxpr: Jaxpr, mesh: ReplicaMesh) -> Jaxpr:
    """Without what `vmap` takes amiss.

    That is what JAX notes of values that are equal on all replicas, and messages that only some
    replicas get.
    """
    return jaxpr.replace(eqns=[new for line in jaxpr.eqns for new in _with_mesh(line, mesh)])


def _with_mesh(line: JaxprEqn, mesh: ReplicaMesh) -> list[JaxprEqn]:
    name, params = line.primitive.name, dict(line.params)
    if name == "pvary":
        pairs = zip(line.invars, line.outvars, strict=True)
        return [
            line.replace(primitive=lax.copy_p, invars=[x], outvars=[y], params={}) for x, y in pairs
        ]
    if name == "ppermute" and len(params["perm"]) < mesh.group(params["axis_name"][0]).size:
        return _to_some(line, mesh)
    for key, value in params.items():
        if isinstance(value, ClosedJaxpr):
            params[key] = value.replace(jaxpr=_for_vmap(value.jaxpr, mesh))
        elif isinstance(value, Jaxpr):
            params[key] = _for_vmap(value, mesh)
        elif isinstance(value, tuple) and value and isinstance(value[0], ClosedJaxpr):
            params[key] = tuple(v.replace(jaxpr=_for_vmap(v.jaxpr, mesh)) for v in value)
    if name in _UNMARKED:
        params.setdefault("axis_index_groups", None)
    return [line.replace(primitive=_UNMARKED.get(name, line.primitive), params=params)]


def _to_some(line: JaxprEqn, mesh: ReplicaMesh) -> list[JaxprEqn]:
    """Messages to some replicas: to all, and then zeros for the others."""
    (name,), sent = line.params["axis_name"], list(line.params["perm"])
    size = mesh.group(name).size
    idle = [sorted(set(range(size)) - {pair[side] for pair in sent}) for side in (0, 1)]

    def passed(x: object) -> Any:  # noqa: ANN401
        result = lax.ppermute(x, name, [*sent, *zip(*idle, strict=True)])
        place = lax.axis_index(name)
        for end in idle[1]:
            result = lax.select(place == end, lax.full_like(result, 0), result)
        return result

    x: Any = line.invars[0]
    plain = jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype)
    inner = jax.make_jaxpr(passed, axis_env=[(name, size)])(plain).jaxpr
    known: dict[Any, Any] = {inner.invars[0]: x, inner.outvars[0]: line.outvars[0]}

    def outer(atoms: Sequence[Any]) -> list[Any]:
        return [atom if isinstance(atom, Literal) else known.get(atom, atom) for atom in atoms]

    return [e.replace(invars=outer(e.invars), outvars=outer(e.outvars)) for e in inner.eqns]
