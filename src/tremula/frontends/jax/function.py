"""`jit`: a function of JAX arrays, traced by JAX, translated once for each kind of arguments.

PyTorch, which takes seconds to import, is loaded when a function is first called.
"""

import functools
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from tremula.base.errors import suggest
from tremula.base.options import parse_options
from tremula.frontends.jax.errors import JaxError
from tremula.ir.settings import host_settings
from tremula.runtime.auto_report import report_folder

if TYPE_CHECKING:
    from tremula.compiler.report.report import Report
    from tremula.frontends.jax.program import JaxProgram

BACKENDS = ("ipu", "tremula")


class JitFunction:
    """A function that runs as one compiled program; made by `jit`."""

    def __init__(
        self,
        function: Callable,
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        report: str | os.PathLike[str] | None = None,
    ):
        functools.update_wrapper(self, function)
        self._static = static_argnums, static_argnames
        self._report_folder = report
        self._programs: dict[Any, tuple[JaxProgram, Any]] = {}  # with the structure of results
        self._traced = jax.jit(
            function, static_argnums=static_argnums, static_argnames=static_argnames
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The function's result. The first call with arguments of a kind compiles for it."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self._traced(*args, **kwargs)  # inside another transformation of JAX
        program, out_tree = self._program(args, kwargs)
        return jax.tree_util.tree_unflatten(out_tree, program.run(leaves))

    def jaxpr(self, *args: Any, **kwargs: Any) -> ClosedJaxpr:  # noqa: ANN401
        """What JAX makes of the function for arguments like these."""
        return self._traced.trace(*args, **kwargs).jaxpr

    def report(self, *args: Any, **kwargs: Any) -> "Report":  # noqa: ANN401
        """Cycles and memory of the tile program for arguments like these, on the chip chosen."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        return self._program(args, kwargs)[0].report(leaves)

    def save_report(self, folder: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Path:  # noqa: ANN401
        """Write the report of the tile program for arguments like these: `tremula view FOLDER`."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        program, _ = self._program(args, kwargs)
        return program.save_report(Path(folder), leaves, self._name)

    @property
    def _name(self) -> str:
        return getattr(self, "__name__", "function").strip("<>")

    def _write_wanted_report(self, program: "JaxProgram", leaves: list) -> None:
        """In the folder that was given, or one in that which the engine's options name.

        Programs for further kinds of arguments get numbered folders inside.
        """
        folder = self._report_folder
        if folder is None:
            root = report_folder(parse_options({}))  # what the environment asks for
            if root is None:
                return
            folder = root / self._name
        number = len(self._programs)
        folder = Path(folder) if number == 1 else Path(folder, str(number))
        program.save_report(folder, leaves, self._name)

    def _dynamic(self, args: tuple, kwargs: dict) -> tuple[list, dict]:
        """Arguments that are arrays."""
        numbers, names = self._static
        places = {i % len(args) for i in numbers if -len(args) <= i < len(args)} if args else set()
        given = {name: value for name, value in kwargs.items() if name not in names}
        return [value for i, value in enumerate(args) if i not in places], given

    def _program(self, args: tuple, kwargs: dict) -> "tuple[JaxProgram, Any]":
        settings = host_settings()
        numbers, names = self._static
        leaves, tree = jax.tree_util.tree_flatten(self._dynamic(args, kwargs))
        key = (
            tree,
            tuple((np.shape(leaf), _type_of(leaf)) for leaf in leaves),
            tuple(args[i] for i in numbers if -len(args) <= i < len(args)),
            tuple((name, kwargs[name]) for name in names if name in kwargs),
            settings,
            jax.config.read("jax_enable_x64"),
        )
        if key not in self._programs:
            from tremula.frontends.jax.program import compile_jaxpr  # loads PyTorch

            traced = self._traced.trace(*args, **kwargs)
            out_tree = jax.tree_util.tree_structure(traced.out_info)
            self._programs[key] = compile_jaxpr(traced.jaxpr, leaves, settings), out_tree
            self._write_wanted_report(self._programs[key][0], leaves)
        return self._programs[key]


def _type_of(leaf: Any) -> Any:  # noqa: ANN401
    return leaf.dtype if hasattr(leaf, "dtype") else type(leaf)


def jit(
    function: Callable | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),  # noqa: ARG001 - memory of arguments is never reused
    backend: str = "ipu",
    report: str | os.PathLike[str] | None = None,
) -> Any:  # noqa: ANN401
    """Compile a function of JAX arrays to one program, on this computer or on tiles.

        @tremula.jax.jit
        def step(w, x):
            return w - 0.1 * jax.grad(loss)(w, x)

    Arguments and results are pytrees of arrays, as with `jax.jit`; so are static arguments. Where
    it runs is chosen by `tremula.configure`: host="inductor", tiles="run", chip="bow". `report`
    is a folder for the report of the tile program, which is compiled for it.
    """
    if backend not in BACKENDS:
        raise JaxError(f"there is no backend {backend!r}.", hint=suggest(backend, BACKENDS))
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if function is None:
        return functools.partial(jit, static_argnums=numbers, static_argnames=names, report=report)
    return JitFunction(function, numbers, names, report)


def pmap(
    function: Callable,
    axis_name: Hashable | None = None,
    *,
    in_axes: int | Sequence | None = 0,
    out_axes: int | Sequence | None = 0,
) -> JitFunction:
    """A function of one replica for all rows of the arguments, with collectives over `axis_name`.

    All replicas are computed by one program, on one chip: the numbers are those of `jax.pmap`.
    """
    return jit(jax.vmap(function, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name))
