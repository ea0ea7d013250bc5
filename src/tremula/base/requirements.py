"""Optional packages: the extra of Tremula that installs each, and the error where one is missing.

Checked where a front end is imported, so that a script fails at its first line and says what to
install, instead of somewhere inside with "No module named …".
"""

from importlib.util import find_spec

from tremula.base.errors import PoplarError
from tremula.base.libraries.parts import MissingPackage, install_hint, missing_distributions
from tremula.base.library_versions import remedy, unsupported

_TORCH = {"torch": "PyTorch"}
_ONNX = {**_TORCH, "onnx": "onnx", "ml_dtypes": "ml_dtypes"}
# For each extra of pyproject.toml: the modules of other projects it makes importable, and what they
# are called. Which parts of Tremula it installs is in `parts`.
EXTRAS: dict[str, dict[str, str]] = {
    "torch": _TORCH,
    "garden": {},
    "geometric": {**_TORCH, "torch_geometric": "PyTorch Geometric"},
    "onnx": _ONNX,
    "popxl": _ONNX,
    "jax": {**_TORCH, "jax": "JAX"},
    "dft": {**_TORCH, "jax": "JAX", "pyscf": "PySCF"},
    "keras": {**_TORCH, "keras": "Keras"},
    "optimum": {**_TORCH, "transformers": "transformers", "accelerate": "accelerate"},
    "serve": {"httptools": "httptools"},
    "sweep": {"distributed": "Dask"},
    "fit": {"scipy": "SciPy"},
    "system": {
        "fastapi": "fastapi",
        "uvicorn": "uvicorn",
        "prometheus_client": "prometheus-client",
    },
}


# Modules of packages that those of an extra bring with them, and of packages no extra has.
_BROUGHT = {
    "google": "onnx", "jaxlib": "jax", "triton": "torch", "tokenizers": "optimum",
    "starlette": "system", "pydantic": "system", "h11": "system", "uvloop": "serve",
    "tqdm": "geometric", "dask": "sweep",
}  # fmt: skip
_ALONE = {"PIL": "pillow", "pandas": "pandas", "pyarrow": "pyarrow", "wandb": "wandb",
          "onnxruntime": "onnxruntime", "pytest": "pytest",
          "matplotlib": "matplotlib", "h5py": "h5py", "tensorflow": "tensorflow"}  # fmt: skip


def explained(error: ImportError) -> MissingPackage | None:
    """What to install, for an import that failed; None if it is not an optional package."""
    missing = getattr(error, "missing", None)
    if isinstance(missing, MissingPackage):  # of `require`
        return missing
    module = (error.name or "").split(".")[0]
    is_missing = isinstance(error, ModuleNotFoundError) and not _is_there(module)
    return _of_module(module) if is_missing else None


def is_known(module: str) -> bool:
    """Whether there is advice for a module that is missing."""
    return _of_module(module) is not None


def _of_module(module: str) -> MissingPackage | None:
    for extra, modules in EXTRAS.items():
        if module in modules:
            return MissingPackage(f"{modules[module]} is not installed", install_hint(extra))
    if module in _BROUGHT:
        return MissingPackage(f"{module} is not installed", install_hint(_BROUGHT[module]))
    if module in _ALONE:
        return MissingPackage(f"{module} is not installed", f"pip install {_ALONE[module]}")
    return None


def _is_there(module: str) -> bool:
    """Whether a module can be found, although one of its parts could not be imported."""
    try:
        return bool(module) and find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def missing_packages(extra: str) -> list[str]:
    """The packages of an extra that are not installed, by the names people use."""
    libraries = [title for module, title in EXTRAS[extra].items() if find_spec(module) is None]
    return libraries + missing_distributions(extra)


def require(feature: str, extra: str) -> None:
    """Raise an ImportError that says what to install if a package of an extra is missing.

    So does one whose version is outside the range of `library_versions`.
    """
    missing = missing_packages(extra)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{feature} needs {' and '.join(missing)}, which {verb} not installed"
        raise _import_error(MissingPackage(what, install_hint(extra)))
    for module in EXTRAS[extra]:
        if what := unsupported(module):
            raise _import_error(MissingPackage(f"{feature}: {what}", remedy(module)))


def _import_error(missing: MissingPackage) -> ImportError:
    error = ImportError(f"{missing.what}: {missing.hint}")
    error.missing = missing  # pyright: ignore[reportAttributeAccessIssue]
    return error


def require_for_command(command: str, extra: str) -> None:
    """Raise an error of the command line if a package of the extra is missing, or unsupported."""
    missing = missing_packages(extra)
    if missing:
        raise PoplarError(f"`{command}` needs {', '.join(missing)}.", hint=install_hint(extra))
    for module in EXTRAS[extra]:
        if what := unsupported(module):
            raise PoplarError(f"`{command}`: {what}.", hint=remedy(module))
