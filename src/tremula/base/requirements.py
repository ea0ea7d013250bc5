"""Optional packages: the extra of Tremula that installs each, and the error where one is missing.

Checked where a front end is imported, so that a script fails at its first line and says what to
install, instead of somewhere inside with "No module named …".
"""

from importlib.util import find_spec

from tremula.base.errors import PoplarError

_TORCH = {"torch": "PyTorch"}
_ONNX = {**_TORCH, "onnx": "onnx", "ml_dtypes": "ml_dtypes"}
# For each extra of pyproject.toml: the modules it makes importable, and what they are called.
EXTRAS: dict[str, dict[str, str]] = {
    "torch": _TORCH,
    "geometric": {**_TORCH, "torch_geometric": "PyTorch Geometric"},
    "onnx": _ONNX,
    "popxl": _ONNX,
    "jax": {**_TORCH, "jax": "JAX"},
    "dft": {**_TORCH, "jax": "JAX", "pyscf": "PySCF"},
    "keras": {**_TORCH, "keras": "Keras"},
    "optimum": {**_TORCH, "transformers": "transformers", "accelerate": "accelerate"},
    "serve": {"httptools": "httptools"},
    "sweep": {"distributed": "Dask"},
    "system": {
        "fastapi": "fastapi",
        "uvicorn": "uvicorn",
        "prometheus_client": "prometheus-client",
    },
}


def missing_packages(extra: str) -> list[str]:
    """The packages of an extra that are not installed, by the names people use."""
    return [title for module, title in EXTRAS[extra].items() if find_spec(module) is None]


def install_hint(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'tremula[{extra}]'"


def require(feature: str, extra: str) -> None:
    """Raise an ImportError that says what to install if a package of the extra is missing."""
    missing = missing_packages(extra)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ImportError(
            f"{feature} needs {' and '.join(missing)}, which {verb} not installed: "
            + install_hint(extra)
        )


def require_for_command(command: str, extra: str) -> None:
    """Raise an error of the command line if a package of the extra is missing."""
    missing = missing_packages(extra)
    if missing:
        raise PoplarError(f"`{command}` needs {', '.join(missing)}.", hint=install_hint(extra))
