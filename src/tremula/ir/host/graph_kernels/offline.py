"""Compiles the text of a kernel for a kind of GPU, without one: a program that imports only Triton.

    python offline.py < requests

Each line of the input is a request in JSON: the file of a text, the types of its arguments, the
choices of a launch and the compute capability. Each answer is a line: what the compiled kernel
takes, or why there is none. What was compiled is in Triton's cache, where a process with a GPU
finds it. Nothing of this package is imported, so that a process is ready in half a second.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

LINE = 200  # characters of a compiler's message that are reported


class _Type:
    """The type of an argument, as Triton reads it."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Type) and other.name == self.name


def _driver(capability: int) -> Any:  # noqa: ANN401 - Triton's own type, which loads it
    """In place of a GPU's driver: what a compiler asks for."""
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.backends.driver import DriverBase  # pyright: ignore[reportMissingImports]

    class Driver(DriverBase):
        """A GPU that is not there."""

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self) -> int:
            return capability  # Triton keeps what it compiled by device

        def get_current_stream(self, _device: int) -> int:
            return 0

        def get_active_torch_device(self) -> object:
            return None

        def get_benchmarker(self) -> object:
            return None

    return Driver()


def compile_offline(
    path: Path, types: Sequence[str], choices: Mapping[str, object], capability: int
) -> dict[str, object]:
    """What a kernel takes; raises what the compiler raises."""
    from triton.runtime.driver import driver  # pyright: ignore[reportMissingImports]
    from triton.runtime.jit import MockTensor  # pyright: ignore[reportMissingImports]

    driver.set_active(_driver(capability))
    arguments = [MockTensor(_Type(name)) for name in types]
    compiled = _function(path).warmup(*arguments, grid=(1,), **choices)
    return {"shared": getattr(compiled.metadata, "shared", 0)}


@cache
def _function(path: Path) -> Any:  # noqa: ANN401 - Triton's own type
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, f"{path} is a module"
    assert spec.loader is not None, f"{path} is a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, path.stem)


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """The answer to a request; an error is one line."""
    import contextlib
    import io

    printed = io.StringIO()  # Triton prints the assembly that the assembler rejects
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return compile_offline(
                Path(request["path"]), request["types"], request["choices"], request["capability"]
            )
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        return {"error": error_line(error)}


def error_line(error: Exception) -> str:
    """The assembler's reason, where Triton quotes it below its own words; else the first line."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if line.startswith("ptxas fatal")), lines[0])[:LINE]


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
