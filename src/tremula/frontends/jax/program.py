"""A jaxpr as a compiled program: recorded, placed, and run with arrays of JAX."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.interpreters.partial_eval import dce_jaxpr
from torch import Tensor, nn

from tremula.base.options import parse_options
from tremula.compiler.report.report import ProgramReport
from tremula.frontends.jax.carriers import from_argument, is_key, of_parts, parts_of, to_arrays
from tremula.frontends.jax.evaluate import evaluate
from tremula.frontends.jax.mapped import MappedFunction, mapped_function
from tremula.frontends.jax.mesh import ReplicaMesh, on_replicas
from tremula.frontends.shared.program import StepProgram, compile_program
from tremula.ir.repetition import Repetition
from tremula.ir.run.compiled_step import StepSettings, StepToCompile
from tremula.ir.run.tile_program import TileSettings
from tremula.ir.settings import HostSettings
from tremula.runtime.auto_report import report_folder


class _Body(nn.Module):
    """A jaxpr as a module without weights: what capture records."""

    def __init__(self, jaxpr: ClosedJaxpr, mesh: ReplicaMesh | None = None):
        super().__init__()
        self.jaxpr = jaxpr
        self.around = nullcontext if mesh is None else partial(on_replicas, mesh)

    def forward(self, *parts: Tensor) -> list[Tensor]:
        with self.around():
            return parts_of(evaluate(self.jaxpr, of_parts(list(parts), list(self.jaxpr.in_avals))))


@dataclass(frozen=True)
class JaxProgram:
    """A jaxpr compiled for a device, ready to run."""

    jaxpr: ClosedJaxpr
    program: StepProgram

    def run(self, arrays: list[Any], places: Sequence[Any] | None = None) -> list[Any]:
        """Results as arrays of JAX, on its default device or where `places` says for each."""
        (inputs,) = self.inputs(arrays)
        (results,) = self.program.call([inputs])
        avals = list(self.jaxpr.out_avals)
        return to_arrays(of_parts(_own(results, inputs), avals), avals, places)

    def inputs(self, arrays: list[Any]) -> list[list[Tensor]]:
        """The arguments of each replica as tensors."""
        return [_inputs(arrays, self.jaxpr)]

    def report(self, arrays: list[Any]) -> ProgramReport:
        """Cycles and memory of the tile program for these arguments."""
        return self.program.report(self.inputs(arrays))

    def save_report(self, folder: Path, arrays: list[Any], name: str) -> Path:
        """Write the report of the tile program for the analyser, and a summary; its path."""
        return self.program.save_report(folder, name, self.inputs(arrays))


@dataclass(frozen=True)
class ReplicatedProgram(JaxProgram):
    """The body of a `shard_map` as the program of each chip of a machine."""

    mapped: MappedFunction

    def run(self, arrays: list[Any], places: Sequence[Any] | None = None) -> list[Any]:
        """Results as arrays of JAX, joined from what the replicas gave."""
        mesh, avals = self.mapped.mesh, list(self.jaxpr.out_avals)
        of_replicas = [
            to_arrays(of_parts(results, avals), avals)
            for results in self.program.call(self.inputs(arrays))
        ]
        joined = [
            mesh.joined([np.asarray(part) for part in parts], aval.shape, cuts)
            for parts, aval, cuts in zip(
                zip(*of_replicas, strict=True), self.mapped.out_avals, self.mapped.outs, strict=True
            )
        ]
        results = [joined[number] for number in self.mapped.order]
        return jax.device_put(results, None if places is None else list(places))

    def inputs(self, arrays: list[Any]) -> list[list[Tensor]]:
        """What each replica holds of the arguments."""
        return [
            _inputs(self.mapped.operands_of(arrays, r), self.jaxpr) for r in range(self.n_replicas)
        ]

    @property
    def n_replicas(self) -> int:
        return self.mapped.mesh.n_replicas


def compile_traced(
    jaxpr: ClosedJaxpr,
    arrays: list[Any],
    host: HostSettings,
    *,
    for_report: bool = False,
    n_tiles: int = 0,
) -> JaxProgram:
    """A program for a function that JAX has traced.

    On tiles, a function that is nothing but a `shard_map` has a chip for each replica; this
    computer computes all replicas at once.
    """
    mapped = mapped_function(jaxpr)
    if mapped is not None and (for_report or host.tiles == "run"):
        return compile_mapped(mapped, arrays, host, n_tiles)
    return compile_jaxpr(jaxpr, arrays, host, n_tiles)


def write_wanted_report(
    program: JaxProgram,
    arrays: list[Any],
    name: str,
    number: int,
    folder: str | os.PathLike[str] | None = None,
) -> None:
    """In a folder, or in one of the function's name in that which the engine's options name.

    Programs after the first get numbered folders inside.
    """
    if folder is None:
        root = report_folder(parse_options({}))  # what the environment asks for
        if root is None:
            return
        folder = root / name
    folder = Path(folder) if number == 1 else Path(folder, str(number))
    program.save_report(folder, arrays, name)


def compile_jaxpr(
    jaxpr: ClosedJaxpr, arrays: list[Any], host: HostSettings, n_tiles: int = 0
) -> JaxProgram:
    """A program for arrays like these, on the device that the settings choose."""
    model = _Body(_without_dead_parts(jaxpr))
    return JaxProgram(jaxpr, _compiled(model, _inputs(arrays, jaxpr), host, n_tiles=n_tiles))


def compile_mapped(
    mapped: MappedFunction, arrays: list[Any], host: HostSettings, n_tiles: int = 0
) -> JaxProgram:
    """A program for a machine with a chip for each replica, on tiles."""
    body = mapped.body
    inputs = _inputs(mapped.operands_of(arrays, 0), body)
    program = _compiled(_Body(body, mapped.mesh), inputs, host, mapped.mesh.n_replicas, n_tiles)
    return ReplicatedProgram(body, program, mapped)


def _compiled(
    model: nn.Module,
    inputs: list[Tensor],
    host: HostSettings,
    n_replicas: int = 1,
    n_tiles: int = 0,
) -> StepProgram:
    names = [f"argument_{i}" for i in range(len(inputs))]
    request = StepToCompile(model, lambda flat: (list(model(*flat)), None), inputs, names)
    settings = StepSettings(
        Repetition(n_replicas=n_replicas),
        host=host,
        tiles=TileSettings(chip=host.chip, n_tiles=n_tiles),
        runs_on_tiles=host.tiles == "run" or n_replicas > 1,
    )
    return compile_program(request, settings)


def _without_dead_parts(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Without equations, and values carried through loops, that no result needs."""
    wanted = [True] * len(jaxpr.jaxpr.outvars)
    live, _ = dce_jaxpr(jaxpr.jaxpr, wanted, instantiate=True)
    return jaxpr.replace(jaxpr=live)


def _inputs(arrays: list[Any], jaxpr: ClosedJaxpr) -> list[Tensor]:
    """Arguments as tensors, in the types that JAX traced them with."""
    values = []
    for array, aval in zip(arrays, jaxpr.in_avals, strict=True):
        if not is_key(aval) and getattr(array, "dtype", None) != aval.dtype:
            array = np.asarray(array).astype(aval.dtype)
        values.append(from_argument(array, aval))
    return parts_of(values)


def _own(results: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Results on this computer, in memory that no argument has: it may be written later."""
    taken = {part.untyped_storage().data_ptr() for part in inputs}
    own = []
    for result in results:
        here = result.cpu()
        own.append(here.clone() if here.untyped_storage().data_ptr() in taken else here)
    return own
