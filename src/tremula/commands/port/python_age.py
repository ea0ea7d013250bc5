"""Shims for scripts written for older versions of Python and NumPy."""

import collections
import collections.abc
import inspect
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tremula.commands.port.shims import ModuleShim, NameShim, Shim, elsewhere, names


def _dataclass(module: ModuleType, _name: str) -> Callable[..., Any]:
    """`dataclasses.dataclass` that takes objects that can change as defaults, shared as before."""
    original, field = module.dataclass, module.field

    def dataclass(cls: type | None = None, /, **options: object) -> Any:  # noqa: ANN401
        def wrap(cls: type) -> type:
            shared = {
                name: vars(cls)[name]
                for name in vars(cls).get("__annotations__", {})
                if name in vars(cls) and _is_rejected(vars(cls)[name], module)
            }
            for name, value in shared.items():
                setattr(cls, name, field(default_factory=lambda value=value: value))
            result = original(cls, **options)
            for name, value in shared.items():  # as a plain default is
                setattr(result, name, value)
            return result

        return wrap if cls is None else wrap(cls)

    return dataclass


def _is_rejected(value: object, dataclasses: ModuleType) -> bool:
    """Whether Python 3.11 rejects a default that 3.10 took: not a list, dict or set."""
    if isinstance(value, list | dict | set | dataclasses.Field):
        return False
    return type(value).__hash__ is None


def _sample(module: ModuleType, _name: str) -> Callable[..., list]:
    original = module.sample

    def sample(population: object, k: int, **options: object) -> list:
        if isinstance(population, collections.abc.Set):
            population = tuple(population)
        return original(population, k, **options)

    return sample


def _fromstring(module: ModuleType, _name: str) -> Callable[..., Any]:
    original = module.fromstring

    def fromstring(string: Any, dtype: object = float, count: int = -1, *, sep: str = "") -> Any:  # noqa: ANN401
        if sep:
            return original(string, dtype=dtype, count=count, sep=sep)
        data = string.encode("latin1") if isinstance(string, str) else string
        return module.frombuffer(data, dtype=dtype, count=count).copy()

    return fromstring


_BUILTINS = {"int": int, "float": float, "complex": complex, "object": object, "str": str}
_BUILTINS |= {"bool": bool, "unicode": str, "long": int}
_NUMPY_NOW = {
    "float_": "float64", "complex_": "complex128", "unicode_": "str_", "string_": "bytes_",
    "bool8": "bool_", "int0": "intp", "uint0": "uintp", "Inf": "inf", "Infinity": "inf",
    "infty": "inf", "PINF": "inf", "NaN": "nan", "product": "prod", "cumproduct": "cumprod",
    "alltrue": "all", "sometrue": "any", "row_stack": "vstack",
    "trapz": "trapezoid", "round_": "round",
    "longfloat": "longdouble", "singlecomplex": "complex64", "cfloat": "complex128",
}  # fmt: skip

_FILTERS = {"ANTIALIAS": "LANCZOS", "CUBIC": "BICUBIC", "LINEAR": "BILINEAR"}
_INTEGRALS = {"simps": "simpson", "trapz": "trapezoid", "cumtrapz": "cumulative_trapezoid"}


def _yaml_load(module: ModuleType, _name: str) -> Callable[..., Any]:
    original = module.load

    def load(stream: object, Loader: object = None) -> Any:  # noqa: ANN401, N803 - PyYAML's name
        return original(stream, Loader or module.FullLoader)

    return load


SHIMS: tuple[Shim, ...] = (
    NameShim(
        "dataclasses", ("dataclass",), _dataclass,
        "Python 3.11 rejects defaults without a hash, such as another dataclass: they are shared by"
        " all objects, as they were",
        replaces=True,
    ),
    NameShim(
        "collections",
        names("Callable Container Hashable Iterable Iterator Mapping MutableMapping MutableSequence"
              " MutableSet Sequence Set Sized"),
        lambda _module, name: getattr(collections.abc, name),
        "Python 3.10 has the abstract classes in collections.abc only",
    ),
    NameShim(
        "inspect", ("getargspec",), lambda *_: _getargspec,
        "Python 3.11 has getfullargspec only",
    ),
    NameShim("time", ("clock",), lambda *_: time.perf_counter, "Python 3.8 has perf_counter only"),
    NameShim(
        "random", ("sample",), _sample,
        "Python 3.11 takes no sets: they are listed first",
        replaces=True,
    ),
    NameShim(
        "numpy", tuple(_BUILTINS), lambda _module, name: _BUILTINS[name],
        "NumPy 1.24 dropped its names of Python's own types",
    ),
    NameShim(
        "numpy", tuple(_NUMPY_NOW), lambda module, name: getattr(module, _NUMPY_NOW[name]),
        "NumPy 2 has one name of each",
    ),
    NameShim(
        "numpy", ("in1d",),
        lambda module, _name: lambda a, b, **options: module.isin(a, b, **options).ravel(),
        "NumPy 2.4 has isin only",
    ),
    NameShim(
        "numpy", ("find_common_type",),
        lambda module, _name: lambda arrays, scalars: module.result_type(*arrays, *scalars),
        "NumPy 2 has result_type only",
    ),
    NameShim("numpy", ("NINF",), lambda module, _name: -module.inf, "NumPy 2 has -inf only"),
    NameShim(
        "numpy", ("asscalar",), lambda *_: lambda array: array.item(),
        "NumPy 1.23 has the method item() only",
    ),
    NameShim(
        "numpy", ("msort",), lambda module, _name: lambda array: module.sort(array, axis=0),
        "NumPy 2 has sort(axis=0) only",
    ),
    NameShim(
        "numpy", names("VisibleDeprecationWarning ComplexWarning RankWarning AxisError"),
        elsewhere({n: f"numpy.exceptions.{n}" for n in names(
            "VisibleDeprecationWarning ComplexWarning RankWarning AxisError")}),
        "NumPy 2 has them in numpy.exceptions",
    ),
    NameShim(
        "numpy", ("fromstring",), _fromstring,
        "NumPy 2.3 reads no bytes with it: a copy of frombuffer, as before",
        replaces=True,
    ),
    ModuleShim("imp", "Python 3.12 has importlib only", ("importlib.reload",)),
    *(
        ModuleShim(f"distutils{part}", "Python 3.12 leaves it to setuptools",
                   package=f"setuptools._distutils{part}")
        for part in ("", ".dir_util", ".file_util", ".spawn", ".util", ".version")
    ),
    NameShim(
        "yaml", ("load",), _yaml_load,
        "PyYAML 6 wants a loader: FullLoader, its default before, which makes plain values only",
        replaces=True,
    ),
    NameShim(
        "PIL.Image", tuple(_FILTERS), lambda module, name: getattr(module, _FILTERS[name]),
        "Pillow 10 has one name of each filter",
    ),
    NameShim(
        "scipy.integrate", tuple(_INTEGRALS),
        lambda module, name: getattr(module, _INTEGRALS[name]),
        "SciPy 1.14 has the longer names only",
    ),
)  # fmt: skip


def _getargspec(function: Callable[..., object]) -> Any:  # noqa: ANN401
    full = inspect.getfullargspec(function)
    specification = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
    return specification(full.args, full.varargs, full.varkw, full.defaults)
