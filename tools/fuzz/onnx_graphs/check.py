"""The kind of case: an ONNX graph on tiles and on the host, against onnx's reference evaluator."""

from collections.abc import Iterable
from random import Random

import numpy as np

from tools.fuzz.case import Case, CheckFailure, IllegalCase, SetAside, plain
from tools.fuzz.onnx_graphs.generate import evaluate, generate, inputs_of, model_of
from tremula.frontends.onnx.backend import OnnxBackend, TileBackend
from tremula.frontends.onnx.errors import UnsupportedOnnx

NOISE, TIMES, TOO_MUCH, LEAST = 3e-7, 30, 2e-2, 2e-5


class OnnxGraphs:
    """Graphs of random operators."""

    name = "onnx"

    def generate(self, random: Random) -> Case:
        return plain(generate(random))

    def features(self, case: Case) -> Iterable[str]:
        return {f"operator:{node['op']}" for node in case["nodes"]}

    def check(self, case: Case) -> None:
        if not case["nodes"]:
            raise SetAside("a graph without a node")
        expected, moved = evaluate(case), evaluate(case, NOISE)
        tolerances = [_tolerance(one, other) for one, other in zip(expected, moved, strict=True)]
        if any(value.dtype != np.float32 for value in expected):
            raise IllegalCase("results in float")
        for where, backend in (("host", OnnxBackend), ("tiles", TileBackend)):
            try:
                results = backend.prepare(model_of(case)).run(list(inputs_of(case).values()))
            except UnsupportedOnnx as why:
                raise SetAside(f"not supported: {str(why)[:60]}") from None
            _compare([np.asarray(value) for value in results], expected, tolerances, where)


def _tolerance(one: np.ndarray, other: np.ndarray) -> float:
    if not np.isfinite(one).all():
        raise SetAside("the plain result is not finite")
    if one.shape != other.shape:
        raise SetAside("the plain result moves by itself")
    scale = float(np.abs(one).max(initial=0)) + 1e-3
    movement = float(np.abs(one - other).max(initial=0)) / scale
    if movement * TIMES > TOO_MUCH:
        raise SetAside("the plain result moves by itself")
    return scale * (movement * TIMES + LEAST)


def _compare(
    results: list[np.ndarray], expected: list[np.ndarray], tolerances: list[float], where: str
) -> None:
    for number, (got, wanted, most) in enumerate(zip(results, expected, tolerances, strict=True)):
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            kinds = f"{got.dtype}{got.shape}, {wanted.dtype}{wanted.shape}"
            raise CheckFailure(f"wrong shape on {where}", f"{number}: {kinds}")
        error = float(np.abs(got - wanted).max(initial=0))
        if not error <= most:
            detail = f"output {number}: off by {error}, allowed {most}: {got!r}, {wanted!r}"
            raise CheckFailure(f"wrong values on {where}", detail)
