"""A partition of a machine that a controller lends: found in the environment, held by leases.

`IPUOF_CONFIG_PATH` names a file that `vipu create partition` wrote; or `IPUOF_VIPU_API_HOST`,
`_PORT` and `_PARTITION_ID` say where to ask for the same. Without them nothing here does anything.
"""

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from tremula.base.errors import (
    FileLoadError,
    InvalidOption,
    PoplarError,
    RecoverableRuntimeError,
    SystemRuntimeError,
    UnknownRuntimeError,
    UnrecoverableRuntimeError,
)
from tremula.base.storage import strict_json
from tremula.base.storage.strict_json import JsonObject
from tremula.hardware import System, system_from_toml

CONFIG_PATH = "IPUOF_CONFIG_PATH"
API = "IPUOF_VIPU_API_"
ACCESS_KEY = "VIPU_CLI_API_ACCESS_KEY"
DEFAULT_PORT = 8090
_MAX_CONFIG_BYTES = 1 << 20
_PATIENCE_S = 5.0  # with a controller that does not answer: a program must be able to end
_OK, _CONFLICT, _GONE = 200, 409, (404, 410)


@dataclass(slots=True)
class DeviceLoad:
    """What a program has done with its devices since it attached: sums over all of them."""

    busy_s: float = 0.0  # while a program ran, by the host's clock
    cycles: int = 0  # of the modelled clock
    joules: float = 0.0  # of the modelled program
    modelled_s: float = 0.0  # what these cycles take on the chip
    host_bytes: int = 0
    exchange_bytes: int = 0
    link_bytes: int = 0
    tile_bytes: int = 0  # the fullest tile

    def times(self, n: int) -> "DeviceLoad":
        """The load of n such calls; the fullest tile stays as full."""
        sums = {name: value * n for name, value in asdict(self).items() if name != "tile_bytes"}
        return DeviceLoad(**sums, tile_bytes=self.tile_bytes)


@dataclass(frozen=True, slots=True)
class Partition:
    """Where a controller is, and what of a partition this process may use."""

    name: str
    host: str
    port: int
    key: str
    gcd: int
    ipus: tuple[int, ...]  # of this graph compilation domain, as the cluster counts them
    is_reconfigurable: bool
    system_toml: str
    timeout_s: float = 120.0

    @property
    def system(self) -> System:
        """The chips of this domain as a separate machine."""
        return system_from_toml(self.system_toml, origin=f"partition {self.name!r}")

    def lease(self, first: int, n_ipus: int) -> "Lease | None":
        """Hold some of its chips, counted from its first one; None if another program does."""
        wanted = self.ipus[first : first + n_ipus]
        body = {"partition": self.name, "gcd": self.gcd, "ipus": list(wanted), **_this_process()}
        status, answer = self.ask("POST", "/api/v1/leases", body)
        if status == _CONFLICT and answer.get("code") == "held":
            return None
        if status != _OK:
            raise SystemRuntimeError(
                f"partition {self.name!r} gives no devices: {answer.get('error', status)}",
                hint=answer.get("hint", "") or "`tremula vipu get partition` shows its state",
            )
        return Lease(self, answer)

    def ask(
        self, method: str, path: str, body: object = None, timeout_s: float | None = None
    ) -> tuple[int, JsonObject]:
        """A request to the controller; (0, …) if it cannot be reached."""
        import http.client  # those who use no partition need not wait for it

        patience_s = self.timeout_s if timeout_s is None else timeout_s
        connection = http.client.HTTPConnection(self.host, self.port, timeout=patience_s)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, strict_json.loads(text) if text else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, {"error": f"{self.host}:{self.port} does not answer ({error})"}
        finally:
            connection.close()


class Lease:
    """Chips that this process has leased. A thread reports life and load to the controller.

    If it dies, the reports stop and the chips go back. Faults of the machine come with the answers;
    `check` raises them where the program is.
    """

    def __init__(self, partition: Partition, answer: JsonObject):
        self.partition = partition
        self.id: str = str(answer["id"])
        self.ipus: tuple[int, ...] = tuple(answer["ipus"])
        self._beat_s, self._ttl_s = float(answer["heartbeat_s"]), float(answer["ttl_s"])
        self._pid = os.getpid()  # children must not give back what their parent holds
        self._loads: dict[int, DeviceLoad] = {}  # of each program that ran
        self._busy_s, self._heard_at = 0.0, time.monotonic()
        self._busy_since: float | None = None
        self._failure: PoplarError | None = None
        self._ends = threading.Event()
        atexit.register(self.release)
        threading.Thread(target=self._keep, name=f"lease {self.id}", daemon=True).start()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The devices are busy inside. A fault that is known is raised before or after."""
        self.check()
        started, self._busy_since = time.monotonic(), time.monotonic()
        try:
            yield
        finally:
            self._busy_since = None
            self._busy_s += time.monotonic() - started
        self.check()

    def report(self, program: object, load: DeviceLoad) -> None:
        """Tell what one of the programs here has taken so far; busy time is counted anyway."""
        self._loads[id(program)] = load

    def check(self) -> None:
        """Raise what the machine has done to this program, if anything."""
        if self._failure is not None:
            raise self._failure

    def release(self) -> None:
        """Give the devices back."""
        if self._ends.is_set() or os.getpid() != self._pid:
            return
        self._ends.set()
        atexit.unregister(self.release)
        self.beat()  # its last load
        self.partition.ask("DELETE", f"/api/v1/leases/{self.id}", timeout_s=_PATIENCE_S)

    def beat(self) -> None:
        """Say that this process lives, and hear of faults."""
        path = f"/api/v1/leases/{self.id}/beat"
        status, answer = self.partition.ask("POST", path, self._load_report(), _PATIENCE_S)
        if status == _OK:
            self._heard_at = time.monotonic()
            faults = answer.get("faults", [])
            if faults and self._failure is None:
                self._failure = failure_of(faults[0], self.partition.name)
        elif status in _GONE and self._failure is None:
            self._failure = UnknownRuntimeError(
                f"the controller took the devices of partition {self.partition.name!r} back: "
                f"{answer.get('error', 'the lease ended')}",
                hint="attach again; the controller's audit log says why",
            )
        elif time.monotonic() - self._heard_at > self._ttl_s and self._failure is None:
            self._failure = UnknownRuntimeError(
                f"the controller of partition {self.partition.name!r} has been silent for "
                f"{self._ttl_s:g} s: {answer.get('error', status)}",
                hint="see whether `tremula vipu-server` runs, then attach again",
            )

    def _load_report(self) -> JsonObject:
        since, totals = self._busy_since, asdict(DeviceLoad())
        for load in list(self._loads.values()):
            sums = asdict(load)
            tile_bytes = max(totals["tile_bytes"], sums["tile_bytes"])
            totals = {name: totals[name] + sums[name] for name in totals}
            totals["tile_bytes"] = tile_bytes
        running_s = time.monotonic() - since if since is not None else 0.0
        return totals | {"busy_s": self._busy_s + running_s}

    def _keep(self) -> None:
        while not self._ends.wait(self._beat_s):
            self.beat()


# What a program sees of each kind of fault: the error, and the reset that clears it.
_FAILURES: dict[str, tuple[type[SystemRuntimeError], str]] = {
    "parity": (RecoverableRuntimeError, "IPU_RESET"),
    "link": (RecoverableRuntimeError, "LINK_RESET"),
    "reset": (RecoverableRuntimeError, "PARTITION_RESET"),
    "agent": (UnrecoverableRuntimeError, ""),
}


def failure_of(fault: JsonObject, partition: str) -> PoplarError:
    """The error that a fault is to a program: `kind` and `what` come from the controller."""
    kind, action = _FAILURES.get(str(fault.get("kind")), (UnknownRuntimeError, ""))
    what = f"partition {partition!r}: {fault.get('what', 'the machine failed')}"
    if kind is RecoverableRuntimeError:
        hint = f"`tremula vipu reset partition {partition}`, then load the program again"
        return RecoverableRuntimeError(what, hint=hint, recovery_action=action)
    return kind(what, hint="ask the operator; another partition may still work")


# -- from the environment --------------------------------------------------------------------------


def partition_of_environment() -> Partition | None:
    """The partition this process runs on, if its environment names one."""
    names = (CONFIG_PATH, f"{API}PARTITION_ID")
    if not any(os.environ.get(name) for name in names):
        return None
    variables = {n: v for n, v in os.environ.items() if n.startswith("IPUOF_") or n == ACCESS_KEY}
    return _partition(tuple(sorted(variables.items())))


@lru_cache(maxsize=8)
def _partition(environment: tuple[tuple[str, str], ...]) -> Partition:
    variables = dict(environment)
    path = variables.get(CONFIG_PATH)
    return _from_file(Path(path)) if path else _from_server(variables)


def _from_file(path: Path) -> Partition:
    try:
        text = path.read_bytes()[: _MAX_CONFIG_BYTES + 1]
    except OSError as error:
        raise FileLoadError(
            f"{CONFIG_PATH} names {str(path)!r}, which cannot be read: {error.strerror}.",
            hint="`tremula vipu create partition` writes such a file",
        ) from None
    try:
        return partition_from(strict_json.loads(text))
    except (ValueError, KeyError, TypeError):
        raise FileLoadError(
            f"{str(path)!r} does not describe a partition.",
            hint="`tremula vipu get config` writes it again",
        ) from None


def _from_server(options: dict[str, str]) -> Partition:
    name = options[f"{API}PARTITION_ID"]
    gcd, port = _whole(options, f"{API}GCD_ID", 0), _whole(options, f"{API}PORT", DEFAULT_PORT)
    host, timeout_s = options.get(f"{API}HOST", "127.0.0.1"), _whole(options, f"{API}TIMEOUT", 120)
    key = options.get(ACCESS_KEY, "")
    unknown = Partition(name, host, port, key, gcd, (), False, "", timeout_s)
    path = f"/api/v1/partitions/{quote(name, safe='')}/ipuof?gcd={gcd}"
    status, answer = unknown.ask("GET", path)
    if status != _OK:
        raise SystemRuntimeError(
            f"the controller does not give partition {name!r}: {answer.get('error', status)}",
            hint=answer.get("hint", "") or f"check {API}HOST, {API}PORT and {ACCESS_KEY}",
        )
    return partition_from({**answer, "host": host, "port": port, "timeout_s": timeout_s})


def partition_from(table: JsonObject) -> Partition:
    """From what the controller writes into an IPUoF file."""
    return Partition(
        name=str(table["partition"]),
        host=str(table["host"]),
        port=int(table["port"]),
        key=str(table["key"]),
        gcd=int(table["gcd"]),
        ipus=tuple(int(i) for i in table["ipus"]),
        is_reconfigurable=bool(table["is_reconfigurable"]),
        system_toml=str(table["system"]),
        timeout_s=float(table.get("timeout_s", 120.0)),
    )


def _whole(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name) or str(default)
    if not text.isdecimal():
        raise InvalidOption(f"{name} must be a whole number, got {text!r}.", hint=f"{name}=0, say")
    return int(text)


def _this_process() -> JsonObject:
    import getpass
    import socket

    user = "unknown"
    with suppress(OSError, KeyError):  # a user without a name
        user = getpass.getuser()
    command = " ".join(sys.argv)[:200] or sys.executable
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "user": user, "command": command}
