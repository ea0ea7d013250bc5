"""A controller's client: one method for any request, errors in the controller's own words."""

import http.client
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tremula.base.errors import FileLoadError, SystemRuntimeError
from tremula.base.storage import strict_json, strict_toml
from tremula.base.storage.strict_json import JsonObject
from tremula.poplar.partition import ACCESS_KEY, DEFAULT_PORT

CONFIG = "VIPU_CLI_CONFIG"
_CONFIG_PATHS = ("~/.vipu.hcl", "/etc/vipu/vipu-cli.hcl")
_API = "VIPU_CLI_API_"


class ControllerError(SystemRuntimeError):
    """A request that the controller rejected, or that could not be sent; `status` is 0 then."""

    def __init__(self, what: str, *, hint: str = "", status: int = 0, code: str = ""):
        self.status, self.code = status, code
        super().__init__(what, hint=hint)


@dataclass(frozen=True, slots=True)
class Client:
    """Requests to a controller."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    key: str = ""
    timeout_s: float = 30.0

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self.ask("GET", path)

    def post(self, path: str, **body: object) -> Any:  # noqa: ANN401 - JSON
        return self.ask("POST", path, body)

    def delete(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self.ask("DELETE", path)

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """The answer to a request; `path` begins after /api/v1/."""
        status, text = self._send(method, f"/api/v1/{path}", body)
        try:
            answer = strict_json.loads(text or "{}")
        except ValueError:
            raise self._unreachable("it is not a controller") from None
        if status >= 400:
            raise ControllerError(
                answer.get("error", f"status {status}"),
                hint=answer.get("hint", ""),
                status=status,
                code=answer.get("code", ""),
            )
        return answer

    def metrics(self) -> str:
        return self._send("GET", "/metrics", None)[1].decode()

    def _send(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def _unreachable(self, why: object) -> ControllerError:
        return ControllerError(
            f"the controller at {self.host}:{self.port} does not answer ({why}).",
            hint="start one with `tremula vipu-server`, or name another with --api-host",
        )


def in_path(name: str) -> str:
    """A name as part of an address."""
    return quote(name, safe="")


def client_from(host: str | None, port: int | None, key: str | None, config: str | None) -> Client:
    """From options, or the environment, or a configuration file, in this order."""
    config_values = _read_config(config or os.environ.get(CONFIG))
    environment = {name: os.environ.get(f"{_API}{name.upper()}") for name in ("host", "port")}
    chosen_port = port or environment["port"] or config_values.get("api-port") or DEFAULT_PORT
    return Client(
        str(host or environment["host"] or config_values.get("api-host") or "127.0.0.1"),
        int(chosen_port),
        str(key or os.environ.get(ACCESS_KEY) or config_values.get("api-access-key") or ""),
    )


def _read_config(path: str | None) -> JsonObject:
    """Lines such as `api-host = "10.1.3.101"`: what HCL and TOML have in common."""
    candidates = [path] if path else _CONFIG_PATHS
    for candidate in map(Path, candidates):
        file = candidate.expanduser()
        if path is None and not file.is_file():
            continue
        try:
            return strict_toml.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileLoadError(
                f"{str(file)!r} cannot be read: {error}.", hint='it has lines api-host = "…"'
            ) from None
    return {}
