"""Worlds of calls: the functions of a public API, values for them, and what must work afterwards.

Each case has a new world. Values are grouped by kind, the name of their class; a
parameter whose annotation names a kind gets one of them most of the time.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, chdir, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from tempfile import TemporaryDirectory

import numpy as np

import tremula
from tools.fuzz.case import CheckFailure
from tremula.base.errors import PoplarError

Function = Callable[..., object]
TARGET = tremula.IPUModel("ipu2", tiles_per_ipu=4)


def _nothing() -> None:
    return None


@dataclass
class World:
    """What a sequence of calls acts on."""

    functions: dict[str, Function]
    values: dict[str, list]
    check: Callable[[], None] = _nothing
    within: AbstractContextManager = field(default_factory=nullcontext)
    errors: tuple[type[Exception], ...] = (PoplarError, TypeError, ValueError, OSError)


def public_functions(module_name: str) -> dict[str, Function]:
    """Functions that a module names in `__all__`, or all of its plain ones."""
    module = import_module(module_name)
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    chosen = ((name, getattr(module, name, None)) for name in names)
    return {name: value for name, value in chosen if inspect.isroutine(value)}


def methods_of(owner: object, prefix: str) -> dict[str, Function]:
    """Public methods of an object, by names such as `Options.set`."""
    names = (name for name in dir(owner) if not name.startswith(("_", "aiOnnx")))
    chosen = ((name, getattr(owner, name, None)) for name in names)
    return {f"{prefix}.{name}": value for name, value in chosen if inspect.isroutine(value)}


# -- PopLibs ---------------------------------------------------------------------------------------


def _poplibs(*rooms: str) -> World:
    graph = tremula.Graph(TARGET.create_device())
    make = graph.add_variable
    tensors = [
        make("float", [2, 3], "first", mapping=0), make("float", [3, 4], "second", mapping=1),
        make("half", [2, 3, 4], "third", mapping=2), make("int", [3], "fourth", mapping=3),
        make("unsigned int", [2], "fifth", mapping=0), make("bool", [2, 3], "sixth", mapping=1),
        make("float", [1, 2, 4, 4], "seventh", mapping=0), make("float", [], "last", mapping=1),
    ]  # fmt: skip
    values = {"Tensor": tensors, "Graph": [graph], "Sequence": [tremula.Sequence()]}
    functions: dict[str, Function] = {}
    for room in rooms:
        prefix = f"{room.partition('.')[2]}." if "." in room else ""
        named = public_functions(f"tremula.poplibs.{room}")
        functions |= {f"{prefix}{name}": function for name, function in named.items()}
    chosen = {n: f for n, f in functions.items() if not n.startswith(("register_", "remove_"))}
    return World(chosen, values, lambda: _still_runs(graph, tensors[0]))


def _popsparse() -> World:
    from tremula.poplibs import popsparse

    rooms = ("popsparse", "popsparse.static", "popsparse.dynamic", "popsparse.experimental")
    world = _poplibs(*rooms)
    dense = np.eye(4, 6, dtype=np.float32)
    for kind in (popsparse.COOMatrix, popsparse.CSRMatrix, popsparse.CSCMatrix):
        matrix = kind.from_dense(dense)
        world.values[kind.__name__] = [matrix]
        world.functions |= methods_of(matrix, kind.__name__)
    return world


def _still_runs(graph: tremula.Graph, first: tremula.Tensor) -> None:
    """Whatever was rejected, the graph still compiles and runs a program."""
    last = graph.add_variable("float", [3], "result", mapping=1)
    graph.create_host_read("the result", last)
    graph.set_initial_value(first, np.ones((2, 3), np.float32))
    engine = tremula.Engine(graph, [tremula.Copy(first[0], last)], {"tremula.threads": 1})
    engine.load().run()
    if engine.read_tensor("the result").tolist() != [1, 1, 1]:
        raise CheckFailure("a graph computes something else after calls that were rejected")


# -- front ends ------------------------------------------------------------------------------------


def _popxl() -> World:
    import popxl
    from popxl import ops

    ir = popxl.Ir()
    with ir.main_graph:
        tensors = [
            popxl.variable(np.ones((2, 3), np.float32)),
            popxl.constant(np.ones((3, 4), np.float32)),
            popxl.variable(np.ones((3,), np.float16)),
            popxl.constant(np.arange(3, dtype=np.int32)),
        ]
        fetch = popxl.d2h_stream((2, 3), popxl.float32)
        first = ops.add(tensors[0], 1.0)

    def check() -> None:
        with ir.main_graph:
            ops.host_store(fetch, ops.add(first, 1.0))
        with popxl.Session(ir, "cpu") as session:
            try:
                result = session.run()
            except RuntimeError:  # PyTorch's, of operations that it has not for all types
                return
            if result[fetch].tolist() != [[3.0] * 3] * 2:
                raise CheckFailure("an IR computes something else after calls that were rejected")

    functions = {**public_functions("popxl.ops"), **public_functions("popxl")}
    values = {"Tensor": tensors, "Ir": [ir], "Graph": [ir.main_graph]}
    errors = (PoplarError, TypeError, ValueError, RuntimeError)  # PyTorch's, of types
    return World(functions, values, check, ir.main_graph, errors)


def _popart() -> World:
    import popart

    builder = popart.Builder()
    first = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]))
    names = [first, builder.addInitializedInputTensor(np.ones((3, 4), np.float32))]
    names.append(builder.aiOnnx.relu([first]))
    functions = {
        **methods_of(builder, "Builder"), **methods_of(builder.aiOnnx, "aiOnnx"),
        **methods_of(builder.aiGraphcore, "aiGraphcore"),
    }  # fmt: skip
    values = {"args": [names[:1], names[:2], names[1:], [names[2], names[0]]], "TensorId": names}
    errors = (PoplarError, TypeError, ValueError, RuntimeError)  # PopART's are RuntimeErrors
    return World(functions, values, lambda: _builds(builder, names[2]), errors=errors)


def _builds(builder: object, name: str) -> None:
    if not builder.getModelProto() or builder.getTensorShape(name) != [2, 3]:
        raise CheckFailure("a builder has lost a tensor after calls that were rejected")


def _poptorch() -> World:
    import poptorch

    options = poptorch.Options()
    functions = methods_of(options, "Options")
    for part in ("Training", "Precision", "TensorLocations", "Distributed", "Jit"):
        functions |= methods_of(getattr(options, part), part)
    functions |= public_functions("poptorch")
    # Of the whole process, or leave options that reject everything, or are not for users.
    excluded = ("setLogLevel", "reeze", "frozen", "apply_to", "Model")
    functions = {n: f for n, f in functions.items() if not n.endswith(excluded)}
    import torch

    values = {"Tensor": [torch.ones(2, 3), torch.arange(4), torch.ones(3).half()]}
    values["Options"] = [options]

    def check() -> None:
        options.outputMode(poptorch.OutputMode.All).toDict()

    # PopTorch asserts what options may be; operations outside of models are PyTorch's.
    errors = (PoplarError, TypeError, ValueError, OSError, AssertionError, RuntimeError)
    return World(functions, values, check, errors=errors)


def _popxl_addons() -> World:
    import popxl_addons

    world = _popxl()
    functions = {n: getattr(popxl_addons, n) for n in popxl_addons.__all__}
    # It moves the operations of a graph into another one, as it should.
    del functions["repeat_graph"]
    world.functions = {n: f for n, f in functions.items() if inspect.isfunction(f)}
    world.within = _in_a_folder(world.within)
    world.errors = (*world.errors, OSError)
    return world


class _in_a_folder:  # noqa: N801 - reads as a context
    """Inside, files are written to a temporary folder."""

    def __init__(self, within: AbstractContextManager):
        self.within = within

    def __enter__(self) -> None:
        self.stack = ExitStack()
        self.stack.enter_context(chdir(self.stack.enter_context(TemporaryDirectory())))
        self.stack.enter_context(self.within)

    def __exit__(self, *error: object) -> None:
        self.stack.__exit__(*error)


def _keras() -> World:
    from tremula.frontends.keras.config import reset_ipu_configuration
    from tremula.keras import ipu

    config = ipu.config.IPUConfig()

    def set_option(option: "OptionName", value: object) -> None:  # noqa: F821 - a kind of value
        *path, last = str(option).split(".")
        node: object = config
        for part in path:
            node = getattr(node, part)
        setattr(node, last, value)

    def check() -> None:
        try:
            fresh = ipu.config.IPUConfig()
            fresh.auto_select_ipus = 1
            fresh.configure_ipu_system()
        finally:
            reset_ipu_configuration()

    functions = methods_of(config, "IPUConfig") | {"set_option": set_option}
    functions |= public_functions("tremula.frontends.keras.ipu")
    values = {"OptionName": [*config.to_dict(), "select_ipus", "odd.name"], "IPUConfig": [config]}
    errors = (PoplarError, TypeError, ValueError, AttributeError)  # names that do not exist
    return World(functions, values, check, errors=errors)


def _jax() -> World:
    import jax.numpy as jnp

    from tremula import jax as tjax

    double = tjax.jit(lambda x: x * 2)
    functions = {
        "jit": tjax.jit, "pmap": tjax.pmap, "ipu_backend": tjax.ipu_backend,
        "call": double.__call__,
    }  # fmt: skip
    functions |= methods_of(double, "JitFunction")
    arrays = [jnp.ones((2, 3)), jnp.arange(3), np.ones((4,), np.float16)]
    values = {"Tensor": arrays, "Callable": [lambda x: x + 1, jnp.sin]}

    def check() -> None:
        if double(np.ones(2, np.float32)).tolist() != [2, 2]:
            raise CheckFailure("a compiled function computes something else after rejected calls")

    # JAX's own, of numbers that its types do not have.
    errors = (PoplarError, TypeError, ValueError, OSError, OverflowError)
    return World(functions, values, check, errors=errors)


def _plain(module_name: str) -> World:
    values: dict[str, list] = {"Chip": [tremula.chip("gc2")], "System": [tremula.system("pod4")]}
    return World(public_functions(module_name), values)


def _reports() -> World:
    import pva

    report = pva.openReport(_report_path())
    functions = methods_of(report, "Report") | methods_of(report.compilation, "Compilation")
    functions |= methods_of(report.compilation.tiles[0], "Tile")
    functions |= public_functions("pva")
    values = {"path": [_report_path()], "Report": [report]}

    def check() -> None:
        if not len(report.compilation.tiles):
            raise CheckFailure("a report has lost its tiles")

    return World(functions, values, check)


@cache
def _report_path() -> str:
    import tempfile
    from pathlib import Path

    from tools.fuzz.files.formats import good_file

    folder = Path(tempfile.mkdtemp(prefix="tremula-fuzz-"))
    (folder / "profile.pop").write_bytes(good_file("report"))
    return str(folder / "profile.pop")


def _solver() -> World:
    from tremula.poplibs import popsolver

    model = popsolver.Model()
    variables = [model.add_variable(0, 9), model.add_variable(1, 4), model.add_constant(3)]
    return World(methods_of(model, "Model"), {"Variable": variables, "Model": [model]})


ROOMS = ("popops", "poplin", "popnn", "poprand", "gcl", "poputil")
WORLDS: dict[str, Callable[[], World]] = {
    **{room: (lambda room=room: _poplibs(room)) for room in ROOMS},
    "popsparse": _popsparse,
    "popxl": _popxl,
    "popxl_addons": _popxl_addons,
    "keras": _keras,
    "jax": _jax,
    "popart": _popart,
    "poptorch": _poptorch,
    "pva": _reports,
    "popsolver": _solver,
    "popdist": lambda: _plain("popdist"),
    **{
        name: (lambda name=name: _plain(f"tremula.{name}"))
        for name in ("hardware", "serving", "onnx")
    },
}


@cache
def parameters_of(world: str) -> dict[str, tuple[tuple[str, str, bool], ...]]:
    """Name, annotation and whether it is needed, of the parameters of all functions of a world."""
    result = {}
    for name, function in WORLDS[world]().functions.items():
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            continue
        result[name] = tuple(
            (p.name, _annotation(p), p.default is p.empty)
            for p in parameters
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        )
    return result


def _annotation(parameter: inspect.Parameter) -> str:
    text = parameter.annotation
    if not isinstance(text, str):
        text = getattr(text, "__name__", str(text)) if inspect.isclass(text) else str(text)
    return "" if parameter.annotation is parameter.empty else text
