"""The platform "ipu" of JAX: `jax.devices("ipu")` and `jax.jit(f, backend="ipu")` as they are.

JAX finds the plug-in `jax_plugins.tremula_ipu`, or `import tremula.jax` adds the platform. What is
compiled for one of its devices becomes a program of Tremula's, as with `tremula.jax.jit`:

    jax.jit(f, backend="ipu")(x) ─► traced by JAX ─► jit's implementation ─┬─ for an IPU: a program
                                                                           └─ else: XLA, as before

Functions without `backend` run there, too, where their arguments are on an IPU, or where an IPU is
JAX's default device. JAX's own small functions (an addition outside of any `jit`) are computed by
XLA at once.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import jax
from jax._src import pjit, xla_bridge
from jax.extend.core import ClosedJaxpr

from tremula.base.libraries.patching import install
from tremula.base.processes import fork_safe
from tremula.frontends.jax.device import PLATFORM, Device, is_ours, make_client
from tremula.frontends.jax.evaluate import JAX_FOLDER
from tremula.frontends.jax.options import add_options, n_tiles_of_option
from tremula.ir.settings import HostSettings, host_settings

if TYPE_CHECKING:
    from tremula.frontends.jax.program import JaxProgram

_lock = fork_safe(threading.RLock())
_is_added = False
_plain = pjit._pjit_call_impl_python
_Key = tuple[HostSettings, int]
_programs: WeakKeyDictionary[ClosedJaxpr, dict[_Key, "JaxProgram"]] = WeakKeyDictionary()


def add_platform() -> None:
    """Register the platform with JAX, once. Its client starts when JAX starts its platforms."""
    global _is_added  # noqa: PLW0603 - of the process, as JAX's table of platforms is
    with _lock:
        if _is_added:
            return
        _is_added = True
        add_options()
        install(pjit, "_pjit_call_impl_python", _run)
        if xla_bridge.backends_are_initialized():  # too late to be found: join them
            xla_bridge._backends.setdefault(PLATFORM, make_client())
            return
        xla_bridge.register_backend_factory(PLATFORM, make_client, priority=-100)
        chosen = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        if chosen and PLATFORM not in chosen.split(","):
            jax.config.update("jax_platforms", f"{chosen},{PLATFORM}")


def _run(
    *args: object,
    jaxpr: ClosedJaxpr,
    in_shardings: Sequence[object],
    out_shardings: Sequence[object],
    donated_invars: Sequence[bool],
    name: str,
    **others: object,
) -> tuple:
    """JAX's implementation of a call of a compiled function; ours if it is for an IPU."""
    device = _ipu_of(args, jaxpr, (*in_shardings, *out_shardings))
    if device is None:
        return _plain(
            *args, jaxpr=jaxpr, in_shardings=in_shardings, out_shardings=out_shardings,
            donated_invars=donated_invars, name=name, **others,
        )  # fmt: skip
    places = [place if hasattr(place, "device_set") else device for place in out_shardings]
    results = _program(jaxpr, args, name).run(list(args), places)
    for arg, is_donated in zip(args, donated_invars, strict=True):
        if is_donated and isinstance(arg, jax.Array) and _ipu_of_array(arg) is not None:
            arg.delete()
    return results, None, None, []  # no executable of XLA's, which JAX would call the next time


def _ipu_of(args: Sequence[object], jaxpr: ClosedJaxpr, shardings: Sequence[object]) -> Device:
    """The IPU that a call is for, or None."""
    for sharding in shardings:
        for device in getattr(sharding, "device_set", ()):
            return device if is_ours(device) else None
    if _is_of_jax(jaxpr):
        return None
    arrays = [arg for arg in args if isinstance(arg, jax.Array) and arg.committed]
    if not arrays:
        return _default_ipu()
    return next((device for arg in arrays if (device := _ipu_of_array(arg)) is not None), None)


def _default_ipu() -> Device:
    """The IPU that JAX was told to use where nothing else says a device, or None."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is None or isinstance(chosen, str):
        chosen = xla_bridge.get_backend(chosen).local_devices()[0]
    return chosen if is_ours(chosen) else None


def _ipu_of_array(array: jax.Array) -> Device:
    device = next(iter(array.devices()))
    return device if is_ours(device) else None


def _is_of_jax(jaxpr: ClosedJaxpr) -> bool:
    """Whether JAX's own code wrote the function: an operation outside of any `jit`."""
    file = jaxpr.jaxpr.debug_info.func_filename
    return file is None or file.startswith(JAX_FOLDER)


def _program(jaxpr: ClosedJaxpr, args: Sequence[object], name: str) -> "JaxProgram":
    """The program of a function that JAX has traced, for the settings in force."""
    from tremula.frontends.jax.program import compile_traced, write_wanted_report  # loads PyTorch

    key = host_settings(), n_tiles_of_option()
    with _lock:
        programs = _programs.setdefault(jaxpr, {})
        if key not in programs:
            programs[key] = compile_traced(jaxpr, list(args), key[0], n_tiles=key[1])
            write_wanted_report(programs[key], list(args), name, number=len(programs))
        return programs[key]


def forget_programs() -> None:
    """Drop all programs of the platform; a function that is called is compiled again."""
    with _lock:
        _programs.clear()
