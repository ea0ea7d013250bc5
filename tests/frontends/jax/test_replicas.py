"""Functions mapped over replicas: on this computer all at once, on tiles a chip for each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import tremula
import tremula.jax
from tremula.base.replica_group import ReplicaGroup
from tremula.frontends.jax.mesh import ReplicaMesh, cuts_of
from tremula.frontends.jax.program import ReplicatedProgram

HOST, TILES = {}, {"tiles": "run", "chip": "gc2"}
X = np.arange(24, dtype=np.float32).reshape(2, 4, 3) / 7
MESH = AbstractMesh((2, 2), ("i", "j"), axis_types=(AxisType.Auto, AxisType.Auto))


def assert_same(result, expected):
    pairs = zip(*map(jax.tree_util.tree_leaves, (result, expected)), strict=True)
    for ours, theirs in pairs:
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def collectives(x, scale):
    """Every collective that JAX has."""
    return {
        "sum": lax.psum(x * scale, "i"),
        "mean": lax.pmean(x, "i"),
        "largest": lax.pmax(x, "i"),
        "smallest": lax.pmin(x, "i"),
        "rows": lax.all_gather(x, "i", axis=1),
        "joined": lax.all_gather(x, "i", tiled=True),
        "before": lax.ppermute(x, "i", [(0, 1), (1, 0)]),
        "part": lax.psum_scatter(x, "i", scatter_dimension=0, tiled=True),
        "row": lax.psum_scatter(x[:2], "i"),
        "swapped": lax.all_to_all(x[:2], "i", 0, 1),
        "cut": lax.all_to_all(x, "i", 0, 1, tiled=True),
        "place": lax.axis_index("i") * 2,
    }


@pytest.mark.slow
@pytest.mark.parametrize("choices", [HOST, TILES], ids=["host", "tiles"])
def test_collectives_of_pmap(choices):
    """Each collective gives every replica what JAX gives it."""
    expected = jax.vmap(collectives, in_axes=(0, None), axis_name="i")(X, 0.5)

    @tremula.jax.pmap(axis_name="i", in_axes=(0, None), out_axes=(0, 1))
    def mapped(x, scale):
        return collectives(x, scale), lax.ppermute(x, "i", [(0, 1)])  # to some: not in `vmap`

    with tremula.configured(**choices):
        result, sent = mapped(X, 0.5)
    assert_same(result, expected)
    np.testing.assert_array_equal(sent, np.stack([np.zeros_like(X[0]), X[0]], 1))


def over_a_mesh(x, y):
    total = lax.psum(x * y, "i")
    return total, lax.pmean(x.sum(), ("i", "j")), lax.all_gather(x, "j", axis=1, tiled=True), -y


SPECS = {
    "mesh": MESH,
    "in_specs": (P("i", "j"), P("i")),
    "out_specs": (P(None, "j"), P(), P(("i", "j")), P("i")),
}


@pytest.mark.slow
@pytest.mark.parametrize("choices", [HOST, TILES], ids=["host", "tiles"])
@pytest.mark.parametrize("check", [True, False])
def test_shard_map_over_a_mesh(choices, check):
    """Blocks of arrays on a mesh of two axes, collectives along each and along both."""
    x, y = X.reshape(4, 6), X.reshape(4, 6)[:, :1]
    specs = SPECS if not check else {**SPECS, "out_specs": (P(None, "j"), P(), P("i", "j"), P("i"))}
    function = tremula.jax.jit(jax.shard_map(over_a_mesh, **specs, check_vma=check))
    with tremula.configured(**choices):
        total, mean, rows, negative = function(x, y)
    products = (x * y).reshape(2, 2, 6).sum(0)
    np.testing.assert_allclose(total, products, rtol=1e-5)
    np.testing.assert_allclose(mean, x.sum() / 4, rtol=1e-5)
    np.testing.assert_array_equal(negative, -y)
    along = np.concatenate([x[:2], x[:2], x[2:], x[2:]])
    expected = np.concatenate([np.concatenate([x, x], 1)]) if check else along
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.slow
def test_a_mapped_function_in_another():
    """Where a function does more than map, it is one program on one chip."""
    inner = jax.shard_map(
        lambda x: lax.psum(x, "i"),
        mesh=AbstractMesh((2,), ("i",), axis_types=(AxisType.Auto,)),
        in_specs=P("i"),
        out_specs=P(),
    )
    function = tremula.jax.jit(lambda x: inner(x * 2) + 1)
    np.testing.assert_allclose(function(X[0]), 2 * (X[0, :2] + X[0, 2:]) + 1, rtol=1e-6)


@pytest.mark.slow
def test_training_with_replicas():
    """Gradients averaged over replicas are those of the whole batch; a report counts two chips."""

    def step(w, x, y):
        gradient = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * lax.pmean(gradient, "replicas")

    w, y = np.ones((3, 2), np.float32), np.zeros((2, 4, 2), np.float32)
    mapped = tremula.jax.pmap(step, in_axes=(None, 0, 0), out_axes=None)
    x = X.reshape(8, 3)
    expected = w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    np.testing.assert_allclose(mapped(w, X, y), expected, rtol=1e-5)
    with tremula.configured(chip="gc2"):
        report = mapped.report(w, X, y)
    assert report.total_cycles > 0
    programs = [program for program, _ in mapped._programs.values()]
    assert [p.n_replicas for p in programs if isinstance(p, ReplicatedProgram)] == [2]
    np.testing.assert_allclose(jax.jit(mapped)(w, X, y), expected, rtol=1e-5)


def test_meshes_cut_arrays_and_join_them():
    """Every element comes back; an array that nothing cuts is on all replicas."""
    mesh = ReplicaMesh((("i", 2), ("j", 3)))
    groups = (ReplicaGroup(2, 3), ReplicaGroup(3, 1))
    assert (mesh.group("i"), mesh.group("j"), mesh.n_replicas) == (*groups, 6)
    x = np.arange(72).reshape(6, 12)
    for spec in (P("i", "j"), P(("j", "i")), P(None, ("i", "j")), P()):
        cuts = cuts_of(spec, 2)
        parts = [x[mesh.part(x.shape, cuts, replica)] for replica in range(6)]
        np.testing.assert_array_equal(mesh.joined(parts, x.shape, cuts), x)


def test_wrong_axes_and_lengths():
    """Collectives over an axis that is not mapped, groups of replicas, arguments that differ."""
    with pytest.raises(NameError, match="unbound axis name"):
        tremula.jax.jit(lambda x: lax.psum(x, "i"))(X)
    mapped = tremula.jax.pmap(lambda x, y: x + y)
    with pytest.raises(ValueError, match=r"one length along the mapped axis, got \[2, 3\]"):
        mapped(X, np.ones(3))
    grouped = tremula.jax.pmap(
        lambda x: lax.psum(x, "i", axis_index_groups=[[0], [1]]), axis_name="i"
    )
    with tremula.configured(**TILES), pytest.raises(tremula.jax.JaxError, match="index_groups"):
        grouped(X)
