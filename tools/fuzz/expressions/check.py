"""The kinds of cases: an expression in the words of a front end, against PyTorch in float64."""

from collections.abc import Iterable
from functools import partial
from importlib import import_module
from random import Random

import torch

from tools.fuzz.case import Case, IllegalCase, plain, quiet
from tools.fuzz.conditioning import Judge
from tools.fuzz.expressions.generate import OPTIONS, features, generate
from tools.fuzz.expressions.reference import plain_results


class Expressions:
    """Expressions of weights and samples in one front end."""

    def __init__(self, front_end: str):
        self.name = front_end

    def generate(self, random: Random) -> Case:
        return plain(generate(random, self.name))

    def features(self, case: Case) -> Iterable[str]:
        return features(case)

    def check(self, case: Case) -> None:
        torch.set_num_threads(1)
        _check_legal(case)
        is_small = any(node["op"] == "fp8" for node in case["nodes"])
        kind = "half" if case["half"] else "float8" if is_small else "float"
        try:
            judge = Judge(partial(plain_results, case), kind, case["steps"])
        except (RuntimeError, IndexError, ValueError, TypeError) as why:
            raise IllegalCase(str(why)) from None
        run = import_module(f"tools.fuzz.expressions.{self.name}_run").run
        with quiet():
            for where in ("tiles", "host") if case["on_host"] else ("tiles",):
                results = [
                    torch.from_numpy(value) for value in run(case, on_tiles=where == "tiles")
                ]
                judge.compare(results, where, case["steps"] if _gives_weights_only(case) else 0)


def _gives_weights_only(case: Case) -> bool:
    """Whether all steps run in one call that returns nothing: `fit` of Keras."""
    return case["training"] and case.get("executions", 1) > 1


def _check_legal(case: Case) -> None:
    sizes = ("batch", "steps", "replicas", "accumulation")
    if any(case[name] < 1 for name in sizes) or not case["shape"] or min(case["shape"]) < 1:
        raise IllegalCase("sizes")
    if not case["nodes"]:
        raise IllegalCase("an expression")
    if not case["training"] and case["accumulation"] > 1:
        raise IllegalCase("accumulation of gradients")
    if any(name not in case for name in OPTIONS[case["front_end"]]):
        raise IllegalCase("every option")
