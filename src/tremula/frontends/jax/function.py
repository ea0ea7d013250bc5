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
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from tremula.base.errors import suggest
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.mapped import mapped_function
from tremula.ir.settings import host_settings

if TYPE_CHECKING:
    from tremula.compiler.report.report import ProgramReport
    from tremula.frontends.jax.program import JaxProgram

BACKENDS = ("ipu", "tremula")
Axes = int | Sequence[int | None] | None  # of all arguments or results, or of each


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

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        """The function's result. The first call with arguments of a kind compiles for it."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self._traced(*args, **kwargs)  # inside another transformation of JAX
        program, out_tree = self._program(args, kwargs)
        return jax.tree_util.tree_unflatten(out_tree, program.run(leaves))

    def jaxpr(self, *args: object, **kwargs: object) -> ClosedJaxpr:
        """What JAX makes of the function for arguments like these."""
        return self._trace(args, kwargs).jaxpr

    def report(self, *args: object, **kwargs: object) -> "ProgramReport":
        """Cycles and memory of the tile program for arguments like these, on the chip chosen."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        return self._program(args, kwargs, for_report=True)[0].report(leaves)

    def save_report(self, folder: str | os.PathLike[str], *args: object, **kwargs: object) -> Path:
        """Write the report of the tile program for arguments like these: `tremula view FOLDER`."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        program, _ = self._program(args, kwargs, for_report=True)
        return program.save_report(Path(folder), leaves, self._name)

    @property
    def _name(self) -> str:
        return getattr(self, "__name__", "function").strip("<>")

    def _dynamic(self, args: tuple, kwargs: dict) -> tuple[list, dict]:
        """Arguments that are arrays."""
        numbers, names = self._static
        places = {i % len(args) for i in numbers if -len(args) <= i < len(args)} if args else set()
        values = {name: value for name, value in kwargs.items() if name not in names}
        return [value for i, value in enumerate(args) if i not in places], values

    def _trace(self, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
        return self._traced.trace(*args, **kwargs)

    def _program(
        self, args: tuple, kwargs: dict, *, for_report: bool = False
    ) -> "tuple[JaxProgram, Any]":
        """The program and the structure of its results.

        On tiles, a function that is nothing but a `shard_map` has a chip for each replica; this
        computer computes all replicas at once.
        """
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
            for_report,
        )
        if key not in self._programs:
            from tremula.frontends.jax.program import (  # loads PyTorch
                compile_traced,
                write_wanted_report,
            )

            traced = self._trace(args, kwargs)
            out_tree = jax.tree_util.tree_structure(traced.out_info)
            if for_report and mapped_function(traced.jaxpr) is None:
                return self._program(args, kwargs)
            program = compile_traced(traced.jaxpr, leaves, settings, for_report=for_report)
            self._programs[key] = program, out_tree
            if not for_report:
                number = len(self._programs)
                write_wanted_report(program, leaves, self._name, number, self._report_folder)
        return self._programs[key]


class PmapFunction(JitFunction):
    """A function of one replica for all of them; made by `pmap`."""

    def __init__(
        self,
        function: Callable,
        axis_name: Hashable,
        in_axes: Axes,
        out_axes: Axes,
        report: str | os.PathLike[str] | None,
    ):
        # Inside other transformations it is a `vmap`.
        mapped = jax.vmap(function, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
        super().__init__(functools.wraps(function)(mapped), (), (), report)
        self._function, self._axis_name = function, axis_name
        self._in_axes, self._out_axes = in_axes, out_axes

    def _trace(self, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
        """As a `shard_map` over a mesh of one axis."""
        in_axes = [_axis_of(self._in_axes, i) for i in range(len(args))]
        values = [*zip(args, in_axes, strict=True), (kwargs, 0)]
        sizes = {
            np.shape(leaf)[axis]
            for arg, axis in values
            if axis is not None
            for leaf in jax.tree_util.tree_leaves(arg)
        }
        if len(sizes) != 1:
            raise ValueError(
                f"pmap takes arguments with one length along the mapped axis, got {sorted(sizes)}."
            )
        name = self._axis_name

        def of_replica(args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
            own = [_without_axis(arg, axis) for arg, axis in zip(args, in_axes, strict=True)]
            result = self._function(*own, **_without_axis(kwargs, 0))
            return _with_axis(result, self._out_axes)

        mapped = jax.shard_map(
            of_replica,
            mesh=AbstractMesh(tuple(sizes), (name,), axis_types=(AxisType.Auto,)),  # pyright: ignore[reportArgumentType]
            in_specs=(tuple(_spec(axis, name) for axis in in_axes), _spec(0, name)),
            out_specs=_specs(self._out_axes, name),
            check_vma=False,
        )
        return jax.jit(mapped).trace(args, kwargs)


def _axis_of(axes: Axes, argument: int) -> int | None:
    return axes[argument] if isinstance(axes, Sequence) else axes


def _spec(axis: int | None, name: Hashable) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, name)


def _specs(axes: Axes, name: Hashable) -> Any:  # noqa: ANN401
    if isinstance(axes, Sequence):
        return tuple(_spec(axis, name) for axis in axes)
    return _spec(axes, name)


def _without_axis(tree: object, axis: int | None) -> Any:  # noqa: ANN401
    """What one replica sees of arguments that are cut into single rows."""
    if axis is None:
        return tree
    return jax.tree_util.tree_map(lambda x: jax.numpy.squeeze(x, axis), tree)


def _with_axis(result: Any, axes: Axes) -> Any:  # noqa: ANN401
    if isinstance(axes, Sequence):
        return tuple(_with_axis(one, axis) for one, axis in zip(result, axes, strict=True))
    if axes is None:
        return result
    return jax.tree_util.tree_map(lambda x: jax.numpy.expand_dims(x, axes), result)


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
    function: Callable | None = None,
    axis_name: Hashable = "replicas",
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    report: str | os.PathLike[str] | None = None,
) -> Any:  # noqa: ANN401
    """A function of one replica for all rows of the arguments, with collectives over `axis_name`.

    On tiles there is a chip for each replica, and collectives go over their links. This computer
    computes all replicas at once. The numbers are those of `jax.pmap`.
    """
    if function is None:
        return functools.partial(
            pmap, axis_name=axis_name, in_axes=in_axes, out_axes=out_axes, report=report
        )
    return PmapFunction(function, axis_name, in_axes, out_axes, report)
