"""The platform "ipu" of JAX without a context: devices, `jit(backend="ipu")`, arrays on devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tessellate_ipu as ti
import tremula
import tremula.jax
from tests.scripts import run_code

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_devices_are_listed_and_described():
    """`jax.devices("ipu")` lists modelled chips; the host stays JAX's default, as it is."""
    (device,) = jax.devices("ipu")
    assert (device.platform, str(device), repr(device)) == ("ipu", "ipu:0", "IpuDevice(id=0)")
    assert isinstance(device, ti.IpuDevice)
    assert device.target_type is ti.IpuTargetType.IPU_MODEL
    with tremula.configured(chip="gc2"):
        assert (device.num_tiles, device.num_worker_contexts) == (1216, 6)
    host = jax.devices()[0]
    assert host.platform == "cpu"
    assert not hasattr(host, "num_tiles")
    assert not isinstance(host, ti.IpuDevice)
    with pytest.raises(RuntimeError, match="Unknown backend ipus"):
        jax.devices("ipus")


def test_functions_run_for_the_device():
    """A function for "ipu" gives JAX's numbers, on the device; so do its gradient and statics."""
    function = jax.jit(lambda x, n: jnp.tanh(x) @ x.T * n, static_argnums=1, backend="ipu")
    result = function(X, 2)
    assert result.devices() == {jax.devices("ipu")[0]}
    np.testing.assert_allclose(result, np.tanh(X) @ X.T * 2, rtol=1e-5)
    gradient = jax.grad(jax.jit(lambda y: (y**3).sum(), backend="ipu"))(X)
    np.testing.assert_allclose(gradient, 3 * X**2, rtol=1e-6)
    np.testing.assert_array_equal(jax.jit(lambda: jnp.arange(3), backend="ipu")(), [0, 1, 2])


def test_functions_run_as_programs_of_tiles():
    """The settings choose where, as for `tremula.jax.jit`: on tiles the clock goes on."""

    def clock(x):
        rows, count = ti.ipu_cycle_count(ti.tile_put_sharded(x, (0, 1)))
        return ti.tile_map(jax.lax.neg_p, rows), count

    compiled = jax.jit(clock, backend="ipu")
    with tremula.configured(tiles="run", chip="gc2"):
        rows, count = compiled(X)
    assert int(count.array[0, 0]) > 0
    np.testing.assert_array_equal(rows.array, -X)
    assert int(compiled(X)[1].array[0, 0]) == 0  # compiled again, for the host
    assert rows.array.device().platform == "ipu"


def test_arrays_on_the_device():
    """Arrays move to and from it; functions of theirs run there, others where they did."""
    device = jax.devices("ipu")[0]
    x = jax.device_put(X, device)
    assert x.devices() == (x + 1).devices() == jax.jit(lambda y: y * 2)(x).devices() == {device}
    assert jax.jit(lambda y: y * 2)(jnp.ones(3)).devices() == {jax.devices()[0]}
    with jax.default_device(device):
        assert jax.jit(lambda y: y * 3)(X).devices() == jnp.ones(2).devices() == {device}
    np.testing.assert_array_equal(jax.device_put(x, jax.devices("cpu")[0]), X)
    np.testing.assert_array_equal(np.asarray(x), X)


def test_donated_arguments_are_deleted():
    """An array on the device that is donated cannot be used again; those on the host can."""
    on_device, on_host = jax.device_put(X, jax.devices("ipu")[0]), jnp.asarray(X)
    add = jax.jit(lambda x, y: (x + y, y), donate_argnums=(0, 1), backend="ipu")
    total, same = add(on_device, on_host)
    assert on_device.is_deleted()
    assert not on_host.is_deleted()
    np.testing.assert_array_equal(total, X + X)
    np.testing.assert_array_equal(same, X)


@pytest.mark.slow
def test_a_program_that_imports_only_jax(tmp_path):
    """JAX finds the platform by itself; its options are JAX's, and replicas have a device each."""
    script = """
import warnings
import jax, numpy as np
warnings.simplefilter("ignore", DeprecationWarning)  # JAX prefers devices of arrays
f = jax.jit(lambda x: x + 1, backend="ipu")
print(len(jax.devices("ipu")), f(np.ones(2, np.float32)).devices())
mapped = jax.pmap(lambda x: x + jax.lax.psum(x, "i"), axis_name="i", backend="ipu")
print(np.asarray(mapped(np.ones((2, 1)))).ravel(), jax.devices("ipu")[0].num_tiles)
"""
    options = {"JAX_IPU_DEVICE_COUNT": "2", "JAX_IPU_MODEL_NUM_TILES": "16"}
    code, printed = run_code(script, tmp_path, **options)
    assert (code, printed.splitlines()) == (0, ["2 {IpuDevice(id=0)}", "[3. 3.] 16"]), printed
