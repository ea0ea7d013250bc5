"""Starts the instances of a topology, shows their output, and ends all when one fails."""

import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TextIO

from tremula.base.names import is_installed
from tremula.system.launch.topology import Topology

_COLOURS = (36, 33, 35, 32, 34, 31)
_N_KEPT = 40  # lines of a failed instance that are shown again if they were not shown
_SECONDS_TO_END = 5.0
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class InstanceLaunch:
    """What to run, and how to show it."""

    topology: Topology
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    only_instance: int | None = None  # whose output is shown; None: all
    log_folder: Path | None = None  # a file of each instance's output
    n_restarts: int = 0
    is_numa_aware: bool = False
    is_partition: bool = False  # each instance has its own graph compilation domain


@dataclass(slots=True)
class _Instance:
    number: int
    process: subprocess.Popen[bytes]
    log: IO[bytes] | None
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=_N_KEPT))
    rest: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a start ended: 0, or the first instance that failed and its code."""

    code: int
    instance: int = 0


def launch(wanted: InstanceLaunch) -> int:
    """Run all instances to their end; returns the exit code of the first that failed, or 0.

    After a failure all are started again, up to `n_restarts` times; scripts go on from their last
    checkpoint.
    """
    code = 0
    for attempt in range(wanted.n_restarts + 1):
        ended = _run_once(wanted, attempt)
        if ended.code == 0:
            return 0
        code = ended.code if ended.code > 0 else 128 - ended.code
        what = f"instance {ended.instance} of {wanted.topology.n_instances} failed with exit code"
        left = wanted.n_restarts - attempt
        then = f"all are started again ({left} left)" if left else "the others were stopped"
        _say(f"error: {what} {code}; {then}")
    return code


def _run_once(wanted: InstanceLaunch, attempt: int) -> _Ended:
    shared = _meeting_point(wanted.topology) | {"TORCHELASTIC_RESTART_COUNT": str(attempt)}
    instances: list[_Instance] = []
    try:
        # Not a comprehension: if one cannot start, those before it must end.
        for number in range(wanted.topology.n_instances):
            instances += [_start(wanted, number, shared)]
        ended = _watch(wanted, instances)
    finally:
        _end_all(instances)
        for instance in instances:
            if instance.log is not None:
                instance.log.close()
    if ended.code and wanted.only_instance not in (None, ended.instance):
        for line in instances[ended.instance].last_lines:
            _say(f"[{ended.instance}] {line}")
    return ended


def _meeting_point(topology: Topology) -> dict[str, str]:
    """Where torch.distributed's processes meet: a free port of the first host."""
    first = topology.hosts[0]
    host = "127.0.0.1" if all(_is_here(h) for h in topology.hosts) else first
    with socket.socket() as probe:
        probe.bind(("", 0))
        return {"MASTER_ADDR": host, "MASTER_PORT": str(probe.getsockname()[1])}


def _is_here(host: str) -> bool:
    return host in _HERE or host == socket.gethostname()


# -- processes -------------------------------------------------------------------------------------


def _start(wanted: InstanceLaunch, number: int, shared: Mapping[str, str]) -> _Instance:
    topology = wanted.topology
    own = {**wanted.environment, **shared, **topology.environment(number)}
    own.setdefault("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS") or _n_threads(topology))
    own["PYTHONUNBUFFERED"] = "1"
    if wanted.is_partition:
        own["IPUOF_VIPU_API_GCD_ID"] = str(number)
    host = topology.host_of(number)
    if not _is_here(host) and is_installed():
        own.setdefault("PYTHONPATH", os.environ["PYTHONPATH"])  # which has the names
    command = list(wanted.command) if _is_here(host) else remote_command(host, wanted.command, own)
    if wanted.is_numa_aware and _is_here(host):
        cores = _cores_of(number % topology.n_local_instances, topology)
        command = ["taskset", "--cpu-list", cores, *command]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **own},
        start_new_session=True,  # so that its own children end with it
    )
    log = None
    if wanted.log_folder is not None:
        log = (wanted.log_folder / f"instance{number}.log").open("ab")
    return _Instance(number, process, log)


def remote_command(host: str, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """This command on another host, in the same folder. Keys go with it, over ssh."""
    assignments = [f"{name}={value}" for name, value in environment.items()]
    line = shlex.join(["env", *assignments, *command])
    text = f"cd {shlex.quote(os.getcwd())} && exec {line}"
    return ["ssh", "-o", "BatchMode=yes", "-tt", "--", host, text]


def _n_threads(topology: Topology) -> str:
    return str(max(1, len(os.sched_getaffinity(0)) // topology.n_local_instances))


def _cores_of(local: int, topology: Topology) -> str:
    cores, n = sorted(os.sched_getaffinity(0)), topology.n_local_instances
    mine = cores[local * len(cores) // n : (local + 1) * len(cores) // n] or [
        cores[local % len(cores)]
    ]
    return ",".join(map(str, mine))


def _end_all(instances: list[_Instance]) -> None:
    """Ask all to end, and after some seconds insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        living = [i.process for i in instances if i.process.poll() is None]
        for process in living:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue
        until = time.monotonic() + _SECONDS_TO_END
        for process in living:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
    for instance in instances:
        for pipe in (instance.process.stdout, instance.process.stderr):
            if pipe is not None:
                pipe.close()


# -- output ----------------------------------------------------------------------------------------


def _watch(wanted: InstanceLaunch, instances: list[_Instance]) -> _Ended:
    """Show lines as they come, until all have ended or one has failed."""
    with selectors.DefaultSelector() as selector:
        for instance in instances:
            for name in ("stdout", "stderr"):
                pipe = getattr(instance.process, name)
                selector.register(pipe, selectors.EVENT_READ, (instance, name))
        while selector.get_map():
            for key, _ in selector.select(timeout=0.5):
                instance, name = key.data
                data = os.read(key.fd, 1 << 16)
                _show(wanted, instance, name, data)
                if not data:
                    selector.unregister(key.fileobj)
            failed = next((i for i in instances if i.process.poll()), None)
            if failed is not None:
                _drain(wanted, failed)
                return _Ended(failed.process.returncode, failed.number)
    for instance in instances:
        if instance.process.wait():
            return _Ended(instance.process.returncode, instance.number)
    return _Ended(0)


def _drain(wanted: InstanceLaunch, failed: _Instance) -> None:
    """What a failed instance said last."""
    for name in ("stdout", "stderr"):
        pipe = getattr(failed.process, name)
        os.set_blocking(pipe.fileno(), False)
        while data := pipe.read(1 << 16):
            _show(wanted, failed, name, data)
        _show(wanted, failed, name, b"")


def _show(wanted: InstanceLaunch, instance: _Instance, name: str, data: bytes) -> None:
    """Whole lines, each with its instance; what is left of one waits for the rest."""
    text = instance.rest.pop(name, b"") + data
    *lines, rest = text.split(b"\n")
    if rest and not data:  # the end, without a newline
        lines, rest = [*lines, rest], b""
    if rest:
        instance.rest[name] = rest
    stream = sys.stdout if name == "stdout" else sys.stderr
    for line in lines:
        shown = line.decode(errors="replace").rstrip("\r")
        instance.last_lines.append(shown)
        if instance.log is not None:
            instance.log.write(line + b"\n")
            instance.log.flush()
        if wanted.only_instance in (None, instance.number):
            _say(f"{_tag(wanted, instance.number, stream)}{shown}", stream)


def _tag(wanted: InstanceLaunch, number: int, stream: IO[str]) -> str:
    if wanted.topology.n_instances == 1 or wanted.only_instance is not None:
        return ""
    tag = f"[{number}] "
    return f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{tag}\x1b[0m" if stream.isatty() else tag


def _say(text: str, stream: TextIO | None = None) -> None:
    to = stream if stream is not None else sys.stderr
    to.write(f"{text}\n")
    to.flush()
