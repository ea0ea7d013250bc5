"""The kind of case: calls of every public function with values that fit and values that do not."""

import contextlib
import io
import re
import warnings
from collections.abc import Iterable
from random import Random

from tools.fuzz.calls.check import ODD
from tools.fuzz.calls.worlds import WORLDS, World, parameters_of
from tools.fuzz.case import Case, IllegalCase, plain

FITTING = 0.75  # share of arguments that fit their annotation


class ApiCalls:
    """Sequences of calls in one world."""

    name = "apis"

    def generate(self, random: Random) -> Case:
        world = random.choice(list(WORLDS))
        functions = parameters_of(world)
        calls = [_call(random, functions) for _ in range(random.randint(2, 8))]
        return plain({"world": world, "calls": calls})

    def features(self, case: Case) -> Iterable[str]:
        return {f"world:{case['world']}"} | {
            f"function:{case['world']}.{call['call']}" for call in case["calls"]
        }

    def check(self, case: Case) -> None:
        if case["world"] not in WORLDS:
            raise IllegalCase("a world")
        world = WORLDS[case["world"]]()
        quiet = (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        )
        with quiet[0], quiet[1], warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in case["calls"]:
                _make(call, world)
            world.check()


def _call(random: Random, functions: dict) -> Case:
    name = random.choice(list(functions))
    args = {
        parameter: _argument(random, annotation)
        for parameter, annotation, is_needed in functions[name]
        if is_needed or random.random() < 0.3
    }
    return {"call": name, "args": args}


def _argument(random: Random, annotation: str) -> Case:
    number = random.randrange(8)
    if random.random() > FITTING:
        value = random.choice((*ODD, {"kind": "Tensor", "number": number}))
        return _as_json(value)
    words = [w for w in re.findall(r"\w+", annotation) if w[0].isupper()]
    if "Sequence[int]" in annotation or "tuple[int" in annotation:
        return {"value": [random.randint(0, 3) for _ in range(random.randint(0, 3))]}
    if words and words[0] not in ("Any", "Literal", "Type", "None"):
        return {"kind": words[0], "number": number}
    choices: dict[str, tuple] = {
        "bool": (True, False), "int": (0, 1, 2, 3, -1), "float": (0.5, 1.0, 2, -1.0, 0.0),
        "str": ("x", "a name", "add", "float"), "Type": ("float", "half", "int"),
        "dtype": ("float", "half"),
    }  # fmt: skip
    for word, values in choices.items():
        if re.search(rf"\b{word}\b", annotation):
            return {"value": random.choice(values)}
    return random.choice(({"kind": "Tensor", "number": number}, {"kind": "args", "number": number},
                          _as_json(random.choice(ODD))))  # fmt: skip


def _as_json(value: object) -> Case:
    if isinstance(value, dict) and "kind" in value:
        return value
    return {"value": "inf"} if value == float("inf") else {"value": value}


def _make(call: Case, world: World) -> None:
    function = world.functions.get(call["call"])
    if function is None:
        raise IllegalCase("a function")
    args = {name: _value(argument, world) for name, argument in call["args"].items()}
    try:
        with world.within:
            result = function(**args)
    except world.errors:
        return
    kind = type(result).__name__
    if kind in world.values:
        world.values[kind].append(result)


def _value(argument: Case, world: World) -> object:
    if "kind" in argument:
        values = world.values.get(argument["kind"], [None])
        return values[argument["number"] % len(values)]
    return float("inf") if argument["value"] == "inf" else argument["value"]
