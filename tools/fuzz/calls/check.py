"""The kind of case: a state machine over the API of graphs, tensors, programs and engines.

A case is a list of calls such as {"of": "Tensor", "on": 2, "call": "slice", "args": […]}: methods
of values that earlier calls gave, or public functions. Only errors of ours, TypeError and
ValueError may come out, and a graph that rejected a call still compiles and runs.
"""

import contextlib
import io
import warnings
from collections.abc import Iterable
from random import Random

import numpy as np

import tremula
from tools.fuzz.case import Case, CheckFailure, IllegalCase, plain
from tremula.base.errors import PoplarError

ALLOWED = (PoplarError, TypeError, ValueError)
ODD = (
    None, True, 0, 1, -1, 2, 3, 7, 2**31, 2**62, 3.5, float("inf"), "", "x", "float", "INT", "half",
    [], [0], [1, 2], [3], [-1], [2**62], [1.5], ["a"], [[1]], {}, {"a": 1}, [2, 2], 12,
)  # fmt: skip
METHODS = {
    "Graph": ("add_variable", "add_constant", "add_compute_set", "set_tile_mapping", "clone",
              "create_host_read", "create_host_write", "set_initial_value", "add_function",
              "add_host_to_device_fifo", "add_device_to_host_fifo", "get_tile_mapping",
              "add_remote_buffer", "map_linearly"),
    "Tensor": ("slice", "reshape", "flatten", "dim_shuffle", "dim_shuffle_partial", "dim_roll",
               "transpose", "expand", "squeeze", "reverse", "sub_sample", "upsample", "broadcast",
               "reinterpret", "index", "slices", "reshape_partial", "__getitem__", "dim"),
    "tremula": ("Copy", "Sequence", "Repeat", "If", "Switch", "RepeatWhileTrue", "Execute", "Call",
                "concat", "Sync", "PrintTensor", "WriteUndef", "IPUModel", "chip", "system",
                "AbortOnCondition", "CrossReplicaCopy", "Block", "append"),
    "Engine": ("run", "read_tensor", "write_tensor", "connect_stream", "load", "report"),
}  # fmt: skip


class CallSequences:
    """Calls one after another, each on what the calls before left."""

    name = "calls"

    def generate(self, random: Random) -> Case:
        calls = [_call(random) for _ in range(random.randint(4, 16))]
        return plain({"calls": calls})

    def features(self, case: Case) -> Iterable[str]:
        return {f"call:{call['of']}.{call['call']}" for call in case["calls"]}

    def check(self, case: Case) -> None:
        graph = tremula.Graph(tremula.IPUModel("ipu2", tiles_per_ipu=4).create_device())
        first = graph.add_variable("float", [2, 3], "first", mapping=0)
        graph.create_host_read("first", first)
        program = tremula.Copy(first[0], first[1])
        engine = tremula.Engine(graph, [program], {"tremula.threads": 1}).load()
        values: dict[str, list] = {"Graph": [graph], "Tensor": [first], "Engine": [engine]}
        values |= {"Program": [program], "ComputeSet": [graph.add_compute_set("set")]}
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in case["calls"]:
                _make(call, values)
            _check_usable(graph, first)


def _call(random: Random) -> Case:
    owner = random.choice(("Graph", "Graph", "Tensor", "Tensor", "tremula", "tremula", "Engine"))
    args = [_argument(random) for _ in range(random.randint(0, 4))]
    number = random.randrange(8)
    return {"of": owner, "on": number, "call": random.choice(METHODS[owner]), "args": args}


def _argument(random: Random) -> Case:
    """Half of the arguments are values of earlier calls, the others are odd."""
    if random.random() < 0.5:
        kinds = ("Tensor", "Tensor", "Program", "ComputeSet", "Graph")
        return {"kind": random.choice(kinds), "number": random.randrange(8)}
    value = random.choice(ODD)
    return {"value": "inf"} if value == float("inf") else {"value": value}


def _make(call: Case, values: dict[str, list]) -> None:
    try:
        args = [_value(argument, values) for argument in call["args"]]
        owner = tremula if call["of"] == "tremula" else _pick(values[call["of"]], call["on"])
        function = getattr(owner, call["call"])
    except (KeyError, AttributeError, IndexError) as why:
        raise IllegalCase(repr(why)) from None
    try:
        result = function(*args)
    except ALLOWED:
        return
    for kind in ("Tensor", "Program", "ComputeSet"):
        if isinstance(result, getattr(tremula, kind)):
            values[kind].append(result)


def _value(argument: Case, values: dict[str, list]) -> object:
    if "kind" in argument:
        return _pick(values[argument["kind"]], argument["number"])
    return float("inf") if argument["value"] == "inf" else argument["value"]


def _pick(values: list, number: int) -> object:
    return values[number % len(values)]


def _check_usable(graph: tremula.Graph, first: tremula.Tensor) -> None:
    """Whatever was rejected, the graph still compiles and runs a program."""
    last = graph.add_variable("float", [3], "last", mapping=1)
    graph.create_host_read("the last", last)
    graph.set_initial_value(first, np.ones((2, 3), np.float32))
    try:
        engine = tremula.Engine(graph, [tremula.Copy(first[0], last)], {"tremula.threads": 1})
        engine.load().run()
    except PoplarError as error:  # a legal call can leave a tensor without a tile
        if "map" in str(error) or "tile" in str(error):
            return
        raise
    if engine.read_tensor("the last").tolist() != [1, 1, 1]:
        raise CheckFailure("a graph computes something else after calls that were rejected")
