"""What JAX computes: every primitive that has a translation, on the host and on tiles."""

import jax
import pytest

import tremula
from tests.frontends.jax.samples import SAMPLES, differences, primitives_of
from tests.sampling import one_in
from tremula.frontends.jax.table import entries, primitives_markdown

# The rest of the samples runs on tiles with `make test-wide`.
ON_TILES = (
    "arithmetic", "unsigned", "softmax's gradient", "gathers", "scatters", "convolution", "factors",
    "gradient of a scan", "reversed scan", "loop in a loop", "switch", "random", "keys in a scan",
    "narrow",
)  # fmt: skip
# These take seconds each, by loops in loops: with `make test-wide`, too.
LONG = ("random by rejection", "gradient of gammainc", "differential equation")
# Older spellings of primitives, and what only other versions or other devices of JAX bind.
NOT_SAMPLED = set(
    """add_any approx_top_k checkpoint closed_call copy_p core_call core_closed_call custom_lin
    custom_vjp_call custom_vjp_call_jaxpr device_put empty empty2 eq_to geqrf
    householder_product le_to linear_solve lt_to mesh_cast pjit
    platform_index pvary random_gamma_grad remat remat2 run_state scatter_add scatter_max
    scatter_min scatter_mul scatter_sub sharding_constraint tile unstack
    call_hi_primitive eval_jaxpr one_minus_square""".split()  # the last three: from JAX 0.11 on
)


def assert_like_jax(name, **choices):
    function, *operands = SAMPLES[name]
    with tremula.configured(**choices):
        assert not differences(function, *operands)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, (name for name in SAMPLES if name not in LONG)))
def test_the_host_computes_what_jax_does(name):
    """Types, shapes and values of each result, random bits included."""
    assert_like_jax(name)


@pytest.mark.wide
@pytest.mark.parametrize("name", LONG)
def test_the_host_computes_long_samples_as_jax_does(name):
    """Samples that take long equal JAX on the host."""
    assert_like_jax(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, ON_TILES))
def test_tiles_compute_what_jax_does(name):
    """Vertices of the machine model compute what JAX does, for a sample of the primitives."""
    assert_like_jax(name, tiles="run", chip="gc2")


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ON_TILES])
def test_tiles_compute_the_rest_as_jax_does(name):
    """Vertices compute what JAX does, for the primitives that the sample leaves out."""
    assert_like_jax(name, tiles="run", chip="gc2")


def test_samples_use_every_translation():
    """Between them, the samples bind each primitive of the table but for those listed."""
    seen = set()
    for function, *operands in SAMPLES.values():
        seen |= set(primitives_of(jax.make_jaxpr(function)(*operands).jaxpr))
    seen |= {"threefry2x32", "iota_2x32_shape"}  # what random numbers are defined by
    others = ("tessellate", "collectives")  # which have separate tests
    seen |= {name for name, entry in entries().items() if entry.family in others}
    assert entries().keys() - seen <= NOT_SAMPLED


def test_the_page_is_current(repository):
    """docs/jax-primitives.md is what `make docs` makes."""
    page = (repository / "docs" / "jax-primitives.md").read_text(encoding="utf-8")
    assert page == primitives_markdown()
