"""Tells Kubernetes how many IPUs a node offers, as a device plugin would, without an operator.

An extended resource is a number in the status of a node, which any user may write whom a role
allows. The scheduler counts it; the controller decides which IPUs a job gets.
"""

import json
import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from tremula.base.errors import SystemRuntimeError

RESOURCE = "tremula.dev/ipu"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Kubernetes' API is, and the account of this pod."""

    url: str = "https://kubernetes.default.svc"
    account: Path = ACCOUNT

    def offer(self, node: str, n_ipus: int) -> None:
        """Write the number of IPUs into the status of a node."""
        escaped = RESOURCE.replace("~", "~0").replace("/", "~1")
        patch = [{"op": "add", "path": f"/status/capacity/{escaped}", "value": str(n_ipus)}]
        request = urllib.request.Request(
            f"{self.url}/api/v1/nodes/{node}/status",
            data=json.dumps(patch).encode(),
            method="PATCH",
            headers={
                "Content-Type": "application/json-patch+json",
                "Authorization": f"Bearer {(self.account / 'token').read_text().strip()}",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._trust()) as answer:
                answer.read()
        except URLError as error:
            raise SystemRuntimeError(
                f"Kubernetes did not take {n_ipus} IPUs for node {node!r}: {error}.",
                hint="its account needs `patch` on `nodes/status`",
            ) from None

    def _trust(self) -> ssl.SSLContext | None:
        certificate = self.account / "ca.crt"
        if not self.url.startswith("https:"):
            return None
        return ssl.create_default_context(cafile=str(certificate) if certificate.exists() else None)
