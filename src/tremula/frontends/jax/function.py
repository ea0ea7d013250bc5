"""`jit`: a function of JAX arrays, traced by JAX, translated once for each kind of arguments."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr
from torch import Tensor, nn

from tremula.compiler.report.report import Report
from tremula.frontends.jax.carriers import from_array, is_key, of_parts, parts_of, to_array
from tremula.frontends.jax.evaluate import evaluate
from tremula.ir.run.compiled_step import CompiledStep, StepSettings, StepToCompile, compile_step
from tremula.ir.run.tile_program import TileSettings
from tremula.ir.settings import HostSettings, host_settings
from tremula.runtime.forecast import forecast


@dataclass(frozen=True)
class _Program:
    """A function compiled for arguments of some shapes and types."""

    jaxpr: ClosedJaxpr
    out_tree: Any
    compiled: CompiledStep


class _Body(nn.Module):
    """A jaxpr as a module without weights: what capture records."""

    def __init__(self, jaxpr: ClosedJaxpr):
        super().__init__()
        self.jaxpr = jaxpr

    def forward(self, *parts: Tensor) -> list[Tensor]:
        return parts_of(evaluate(self.jaxpr, of_parts(list(parts), list(self.jaxpr.in_avals))))


class JitFunction:
    """A function that runs as one compiled program; made by `jit`."""

    def __init__(self, function: Callable, static_argnums: tuple[int, ...], static_argnames: tuple):
        functools.update_wrapper(self, function)
        self._function = function
        self._static = static_argnums, static_argnames
        self._programs: dict[Any, _Program] = {}
        self._traced = jax.jit(
            function, static_argnums=static_argnums, static_argnames=static_argnames
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The function's result. The first call with arguments of a kind compiles for it."""
        dynamic = self._dynamic(args, kwargs)
        leaves = jax.tree_util.tree_leaves(dynamic)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return self._traced(*args, **kwargs)  # inside another transformation of JAX
        program = self._program(args, kwargs, leaves)
        inputs = self._inputs(program, leaves)
        results: list[Tensor] = []

        def give(_micro_batch: int, outputs: list[Tensor]) -> None:
            results.extend(outputs)

        program.compiled.session.run([inputs], give)
        avals = list(program.jaxpr.out_avals)
        values = of_parts([tensor.cpu() for tensor in results], avals)
        arrays = [to_array(value, aval) for value, aval in zip(values, avals, strict=True)]
        return jax.tree_util.tree_unflatten(program.out_tree, arrays)

    def jaxpr(self, *args: Any, **kwargs: Any) -> ClosedJaxpr:  # noqa: ANN401
        """What JAX makes of the function for arguments like these."""
        return self._traced.trace(*args, **kwargs).jaxpr

    def report(self, *args: Any, **kwargs: Any) -> Report:  # noqa: ANN401
        """Cycles and memory of the tile program for arguments like these, on the chip chosen."""
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        program = self._program(args, kwargs, leaves)
        return forecast(program.compiled.tiles.program().executable)

    def _dynamic(self, args: tuple, kwargs: dict) -> tuple[list, dict]:
        numbers, names = self._static
        places = {i % len(args) for i in numbers if -len(args) <= i < len(args)} if args else set()
        given = {name: value for name, value in kwargs.items() if name not in names}
        return [value for i, value in enumerate(args) if i not in places], given

    def _program(self, args: tuple, kwargs: dict, leaves: list) -> _Program:
        settings = host_settings()
        kinds = tuple((np.shape(leaf), _type_of(leaf)) for leaf in leaves)
        key = (
            kinds,
            _static_part(self, args, kwargs),
            settings,
            bool(jax.config.read("jax_enable_x64")),
        )
        if key not in self._programs:
            self._programs[key] = self._compile(args, kwargs, settings)
        return self._programs[key]

    def _compile(self, args: tuple, kwargs: dict, host: HostSettings) -> _Program:
        traced = self._traced.trace(*args, **kwargs)
        jaxpr = traced.jaxpr
        out_tree = jax.tree_util.tree_structure(traced.out_info)
        leaves = jax.tree_util.tree_leaves(self._dynamic(args, kwargs))
        inputs = _parts(leaves, jaxpr)
        model = _Body(jaxpr)
        asked = StepToCompile(
            model, lambda flat: (list(model(*flat)), None), inputs,
            [f"argument_{i}" for i in range(len(inputs))],
        )  # fmt: skip
        settings = StepSettings(
            host=host, tiles=TileSettings(chip=host.chip), runs_on_tiles=host.tiles == "run"
        )
        return _Program(jaxpr, out_tree, compile_step(asked, settings))

    def _inputs(self, program: _Program, leaves: list) -> list[Tensor]:
        parts = _parts(leaves, program.jaxpr)
        device = program.compiled.input_device
        return parts if device is None else [part.to(device) for part in parts]


def _type_of(leaf: Any) -> Any:  # noqa: ANN401
    return leaf.dtype if hasattr(leaf, "dtype") else type(leaf)


def _static_part(function: JitFunction, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
    numbers, names = function._static
    tree = jax.tree_util.tree_structure(function._dynamic(args, kwargs))
    return (
        tree,
        tuple(args[i] for i in numbers if -len(args) <= i < len(args)),
        tuple((name, kwargs[name]) for name in names if name in kwargs),
    )


def _parts(leaves: list, jaxpr: ClosedJaxpr) -> list[Tensor]:
    """Arguments as they are held, in the types that JAX traced them with."""
    values = []
    for leaf, aval in zip(leaves, jaxpr.in_avals, strict=True):
        if not is_key(aval):
            leaf = np.asarray(leaf).astype(aval.dtype, copy=False)
        values.append(from_array(leaf, aval))
    return parts_of(values)


def jit(
    function: Callable | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),  # noqa: ARG001 - memory of arguments is never reused
    backend: str | None = None,  # noqa: ARG001 - there is one
) -> Any:  # noqa: ANN401
    """Compile a function of JAX arrays to one program, on this computer or on tiles.

        @tremula.jax.jit
        def step(w, x):
            return w - 0.1 * jax.grad(loss)(w, x)

    Arguments and results are pytrees of arrays, as with `jax.jit`; so are static arguments. Where
    it runs is chosen by `tremula.configure`: host="inductor", tiles="run", chip="bow".
    """
    if function is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames
        )
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return JitFunction(function, numbers, names)
