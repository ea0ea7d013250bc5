"""`tremula.jax.jit`: what it takes and gives, when it compiles, how it fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tremula
import tremula.jax
from tremula.frontends.jax.evaluate import KNOWN_VERSIONS, evaluate
from tremula.frontends.jax.function import JitFunction
from tremula.ir.host.programs import compiled_loops as loops
from tremula.vision.pva.report import openReport


def doubled(x):
    return x * 2


def test_arguments_and_results_are_trees():
    """Nested structures of arrays go in and come out, keywords and plain numbers too."""
    step = tremula.jax.jit(lambda p, *, rate: ({"w": p["w"] - rate * p["b"]}, [p["b"].sum()]))
    new, [total] = step({"w": jnp.ones(3), "b": np.arange(3.0, dtype=np.float32)}, rate=0.5)
    np.testing.assert_array_equal(new["w"], [1.0, 0.5, 0.0])
    assert isinstance(total, jax.Array)
    assert (float(total), total.dtype) == (3.0, jnp.float32)


def test_results_have_memory_of_their_own():
    """What is written to an argument later does not show in a result that is the argument."""
    x = np.ones(100_000, np.float32)
    same, part = tremula.jax.jit(lambda x: (x, x[:3]))(x)
    x[0] = 5
    assert (float(same[0]), float(part[0])) == (1.0, 1.0)


def test_each_kind_of_arguments_is_compiled_once():
    """A new shape, type, structure, static value or setting compiles; new values do not."""
    function = tremula.jax.jit(lambda x, n: x * n, static_argnums=1)
    assert isinstance(function, JitFunction)
    for x, n in ((jnp.ones(2), 2), (jnp.zeros(2), 2), (jnp.ones(3), 2), (jnp.ones(2), 3),
                 (jnp.ones(2, jnp.int32), 3)):  # fmt: skip
        np.testing.assert_array_equal(function(x, n), x * n)
    assert len(function._programs) == 4
    with tremula.configured(tiles="run"):
        np.testing.assert_array_equal(function(jnp.ones(2), 2), [2.0, 2.0])
    assert len(function._programs) == 5


def test_transformations_see_through():
    """grad, vmap and jit of a compiled function are those of the function."""
    function = tremula.jax.jit(lambda x: jnp.sin(x).sum())
    x = jnp.arange(3.0)
    np.testing.assert_allclose(jax.grad(function)(x), jnp.cos(x), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(tremula.jax.jit(doubled))(x), 2 * x)
    np.testing.assert_allclose(tremula.jax.jit(jax.grad(function))(x), jnp.cos(x), rtol=1e-6)


def test_a_decorator_with_options():
    """`jit` takes its options before the function, as jax.jit does."""

    @tremula.jax.jit(static_argnames="power")
    def raised(x, power=2):
        """Its docstring stays."""
        return x**power

    np.testing.assert_array_equal(raised(jnp.arange(3.0), power=3), [0.0, 1.0, 8.0])
    assert raised.__doc__ == "Its docstring stays."


@pytest.mark.slow
def test_what_a_function_closes_over_is_a_constant():
    """Arrays from outside, also of types that are held otherwise."""
    table, seed = jnp.arange(5, dtype=jnp.uint32) + np.uint32(2**31), jax.random.key(1)
    function = lambda i: (table[i], jax.random.normal(seed, (2,)))  # noqa: E731
    for ours, theirs in zip(
        tremula.jax.jit(function)(2), jax.jit(function)(jnp.int32(2)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_types_are_as_jax_is_configured():
    """Without 64 bits a float64 array becomes a float32, as in JAX; with them it stays."""
    x = np.ones(2)
    assert tremula.jax.jit(doubled)(x).dtype == jnp.float32
    with jax.enable_x64(True):
        result = tremula.jax.jit(doubled)(x)
        assert result.dtype == jnp.float64


def test_a_report_of_the_tile_program():
    """Cycles and memory on the chip that is chosen; operations are at the user's lines."""
    function = tremula.jax.jit(lambda x: jnp.tanh(x @ x).sum())
    with tremula.configured(chip="gc2"):
        report = function.report(jnp.ones((64, 64)))
    assert report.total_cycles > 0


@pytest.mark.slow
def test_reports_for_the_analyser(tmp_path, monkeypatch):
    """A report is written when it is asked for: by a call, by `report=`, by the environment."""

    def product(x):
        return jax.lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x)  # runs as data say

    with tremula.configured(chip="gc2"):
        path = tremula.jax.jit(product).save_report(tmp_path / "asked", jnp.ones(4))
        tremula.jax.jit(doubled, report=tmp_path / "given")(jnp.ones(4))
        monkeypatch.setenv(
            "POPLAR_ENGINE_OPTIONS",
            f'{{"autoReport.all": "true", "autoReport.directory": "{tmp_path / "auto"}"}}',
        )
        function = tremula.jax.jit(doubled)
        function(jnp.ones(4)), function(jnp.ones(5))
    report = openReport(str(path))
    assert report.execution.totalCycles > 0
    for folder in ("given", "auto/doubled", "auto/doubled/2"):
        assert (tmp_path / folder / path.name).is_file()
        assert (tmp_path / folder / "profile.txt").read_text()


def test_other_versions_of_jax_are_named():
    """Parameters that a rule does not find are an error that says which versions are known."""
    closed = jax.make_jaxpr(lambda x: jax.lax.cumsum(x, axis=0))(jnp.ones(3))
    line = closed.eqns[0]
    other = line.replace(params={"dimension": 0, "reverse": False})
    with pytest.raises(tremula.jax.JaxError, match="no parameter 'axis', but dimension") as caught:
        evaluate(closed.replace(jaxpr=closed.jaxpr.replace(eqns=[other])), [torch.ones(3)])
    assert KNOWN_VERSIONS in caught.value.hint


def test_the_known_versions_are_those_of_the_extra(repository):
    """pyproject.toml asks for the versions of JAX that errors name."""
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert f'jax = ["torch>=2.9,<2.14", "{KNOWN_VERSIONS}"]' in text


def test_errors_name_the_primitive_and_the_line():
    """What has no translation is refused with the user's line, and near names are suggested."""

    def logged(x):
        jax.debug.print("{}", x)
        return x

    with pytest.raises(tremula.jax.JaxError, match="has no translation") as caught:
        tremula.jax.jit(logged)(jnp.ones(2))
    assert caught.value.source.file == __file__
    keys = jax.random.key(0, impl="rbg")
    with pytest.raises(tremula.jax.JaxError, match="random keys"):
        tremula.jax.jit(lambda k: jax.random.normal(k, (2,)))(keys)
    with pytest.raises(tremula.jax.JaxError, match="float8_e4m3fn cannot be represented"):
        tremula.jax.jit(doubled)(jnp.ones(2, jnp.float8_e4m3fn))
    with pytest.raises(TypeError):
        tremula.jax.jit(doubled)("text")


def test_replicas_are_rows():
    """`pmap` computes what each replica would, collectives included."""
    mean = tremula.jax.pmap(lambda x: x - jax.lax.pmean(x, "i"), axis_name="i")
    np.testing.assert_allclose(mean(jnp.arange(6.0).reshape(3, 2)), [[-2, -2], [0, 0], [2, 2]])


def test_the_backend_of_older_programs():
    """Inside `ipu_backend`, jax.jit and jax.pmap take backend="ipu"; others are JAX's own."""
    before = jax.jit
    with tremula.jax.ipu_backend(2):
        assert [device.id for device in jax.devices("ipu")] == [0, 1]
        assert jax.devices()[0].platform == "cpu"
        ours, theirs = jax.jit(doubled, backend="ipu"), jax.jit(doubled)
        mapped = jax.pmap(doubled, backend="ipu")
    assert jax.jit is before
    assert isinstance(ours, JitFunction)
    assert not isinstance(theirs, JitFunction)
    np.testing.assert_array_equal(ours(jnp.ones(2)), theirs(jnp.ones(2)))
    np.testing.assert_array_equal(mapped(jnp.ones((2, 3))), np.full((2, 3), 2.0))
    with pytest.raises(tremula.jax.JaxError, match="no backend 'ipus'"):
        tremula.jax.jit(doubled, backend="ipus")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Inductor imports
def test_compiled_scans(monkeypatch):
    """Stretches of several rounds, compiled, give the states and rows that single rounds give."""
    monkeypatch.setattr(loops, "_MAX_ROUNDS", 3)  # less to compile than 16
    table = jnp.array([0.5, 1.0, 2.0])

    def function(x):
        def cell(state, row):
            return jnp.tanh(state * table + row), state.sum()

        def nested(state, row):
            return jax.lax.scan(cell, state, jnp.stack([row] * 6))[0], row

        first = jax.lax.scan(cell, jnp.zeros(3), x, reverse=True)
        return first, jax.lax.scan(nested, jnp.zeros(3), x[:3])

    compiled, x = tremula.jax.jit(function), jnp.linspace(-1, 1, 24).reshape(8, 3)
    with tremula.configured(host="inductor"):
        result = compiled(x)
    for ours, plain in zip(*map(jax.tree_util.tree_leaves, (result, compiled(x))), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Inductor imports
def test_the_compiled_tangent():
    """Inductor's tanh is a quotient of polynomials, as exact as JAX's, at the ends, too."""
    x = np.float32([*np.linspace(-10, 10, 1001), 1e-8, -1e-4, 1e4, np.inf, -np.inf, np.nan])
    with tremula.configured(host="inductor"):
        result = np.asarray(tremula.jax.jit(jnp.tanh)(x))
    np.testing.assert_allclose(result, np.tanh(x.astype(np.float64)), rtol=4e-7, atol=0)
