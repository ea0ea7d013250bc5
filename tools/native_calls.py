"""`make test-valgrind`: native loops of a sample of programs, called again under valgrind.

Programs of the fuzzer are compiled and run with every loop over columns in native code. Each call
is recorded with its arrays, then tools/replay_calls.c makes it again with arrays of exactly their
size, outside of Python, whose libraries valgrind cannot read everywhere.
"""

import argparse
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tools.fuzz.run_log import Batch
from tools.fuzz.workers import run_batch
from tremula.column_loops import native, sweep

MOST_CALLS = 40  # of one loop
VALGRIND = ("valgrind", "--quiet", "--error-exitcode=9", "--track-origins=yes", "--leak-check=no")


class Recorder:
    """Writes calls of native loops to a file."""

    def __init__(self, path: Path):
        self._file = path.open("wb")
        self.n_calls: Counter[str] = Counter()

    def compiled(self, function: Callable, columns: tuple) -> Callable | None:
        """As `native.compiled`, with every call recorded."""
        run = _COMPILED(function, columns)
        if run is None:
            return None
        translated = run.translated
        path = str(native._library(translated.text()))

        def recorded(*arguments: np.ndarray | int) -> object:
            if self.n_calls[path] < MOST_CALLS:
                self.n_calls[path] += 1
                self._write(path, arguments, translated.n_results)
            return run(*arguments)

        return recorded

    def _write(self, path: str, arguments: tuple, n_results: int) -> None:
        name = path.encode()
        self._file.write(struct.pack("=q", len(name)) + name + struct.pack("=q", len(arguments)))
        for argument in arguments:
            if isinstance(argument, int):
                self._file.write(struct.pack("=qq", 0, argument))
                continue
            column = np.ascontiguousarray(argument)
            sizes = column.shape[0], column.shape[-1], column.nbytes
            self._file.write(struct.pack("=qqqq", 1, *sizes) + column.tobytes())
        self._file.write(struct.pack("=q", n_results))

    def close(self) -> None:
        self._file.close()


_COMPILED = native.compiled


def record(path: Path, n_programs: int) -> Counter[str]:
    """Compile and run programs of the fuzzer; how often each library was called and recorded."""
    recorder = Recorder(path)
    native.compiled, sweep.TURNS_IN_PYTHON = recorder.compiled, 0
    try:
        failures = run_batch(Batch("tiles", "", 0, n_programs))
    finally:
        native.compiled = _COMPILED
        recorder.close()
    assert not failures, failures
    return recorder.n_calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=60, help="of the fuzzer (60)")
    parser.add_argument("--plain", action="store_true", help="without valgrind, to try the calls")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calls, replay = Path(folder, "calls"), Path(folder, "replay")
        counts = record(calls, args.programs)
        source = Path(__file__).with_name("replay_calls.c")
        subprocess.run(["gcc", "-g", "-O1", "-o", replay, source, "-ldl"], check=True)
        command = [*(() if args.plain else VALGRIND), str(replay), str(calls)]
        done = subprocess.run(command, check=False)
    print(f"{counts.total()} calls of {len(counts)} native loops: exit code {done.returncode}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
