"""The process that compiles: it loads Inductor while a model is captured, then forks for each part.

    python -m tremula.ir.host.compiled.worker       requests on stdin, answers on stdout

A request is a list of functions, which are compiled at the same time and stored; the answer to each
is its number and what went wrong, if anything. The process ends when its input does.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Sequence
from typing import IO

from tremula.ir.host.compiled.prepare import load
from tremula.ir.host.compiled.requests import CompileRequest, receive_requests, send_answer

_NOT_INITIALIZED = 3  # what the driver answers before its first use
_MAX_PROCESSES = 16
_MIN_THREADS = 4  # processes in which a part compiles its kernels
_MAX_TEXT = 2000  # characters of an error, which must fit into a pipe


def main() -> None:
    """A process for this alone."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what compilers print is not an answer
    serve(sys.stdin.buffer, answers)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    load()
    # In a fork, each collection would visit, and copy, all of this: 0.2 to 0.4 s.
    gc.freeze()
    while True:
        try:
            some = receive_requests(requests)
        except EOFError:
            return
        _compile_all(some, answers)


def may_fork() -> bool:
    """Whether this process has not used the driver of a GPU yet."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    count = ctypes.c_int()
    return driver.cuDeviceGetCount(ctypes.byref(count)) == _NOT_INITIALIZED


def _compile_all(requests: Sequence[CompileRequest], answers: IO[bytes]) -> None:
    """A fork for each request; answers are written as they end."""
    n_cores = len(os.sched_getaffinity(0))
    if not may_fork():  # something that was imported has used the GPU
        for number, request in enumerate(requests):
            text = _compiled(request, min(8, n_cores)).removeprefix("done")
            send_answer(answers, number, text)
        return
    # Parts are unequal: each gets twice its share of cores, as others end earlier.
    share = max(_MIN_THREADS, 2 * n_cores // len(requests))
    n_threads = min(_MAX_PROCESSES, n_cores, share)
    running: dict[int, tuple[int, int]] = {}  # number and pipe of each process

    def take_one() -> None:
        process, _status = os.wait()
        number, pipe = running.pop(process)
        # Not until its end: processes that compiled kernels for it have the pipe a second longer.
        error = os.read(pipe, _MAX_TEXT)
        os.close(pipe)
        text = error.decode(errors="replace") if error else "the compiling process ended"
        send_answer(answers, number, text.removeprefix("done"))

    for number, request in enumerate(requests):
        if len(running) >= min(_MAX_PROCESSES, n_cores):
            take_one()
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read)
            gc.disable()  # it ends soon
            os.write(write, _compiled(request, n_threads).encode()[:_MAX_TEXT])
            os._exit(0)
        os.close(write)
        running[process] = number, read
    while running:
        take_one()


def _compiled(request: CompileRequest, n_threads: int) -> str:
    """Compile and store a function; returns "done", or what went wrong."""
    try:
        compile_request(request, n_threads)
    except BaseException as error:  # noqa: BLE001 - a fork must not continue with its parent's work
        return f"{type(error).__name__}: {error}"
    return "done"


def compile_request(request: CompileRequest, n_threads: int = 1) -> None:
    """Compile a function and store it, with all candidates of its kernels."""
    import torch
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    from tremula.ir.host.compiled.compiling import compile_graph
    from tremula.ir.host.compiled.from_inductor import record_of
    from tremula.ir.host.compiled.requests import module_of, stand_ins
    from tremula.ir.host.compiled.store import store_function

    torch.use_deterministic_algorithms(request.is_deterministic)
    torch.set_float32_matmul_precision(request.matmul_precision)
    module, args = module_of(request), stand_ins(request)
    is_on_gpu = any(x.device.type == "cuda" for x in args)
    with config.patch(compile_threads=n_threads, worker_start_method="fork"):
        if is_on_gpu and n_threads > 1:
            AsyncCompile.wait_pool_ready()
        _, compiled = compile_graph(module, args, request.choices)
    (one,) = compiled
    store_function(
        request.key, record_of(one, len(request.results), [a.stride for a in request.arguments])
    )


if __name__ == "__main__":
    main()
