"""The fleet's page: its files, what browsers may do with them, and all it shows at one moment."""

import json
from functools import lru_cache
from importlib.resources import files

from tremula.system.control import faults, inventory
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.vision.serve.page_files import page_files

# Only the page's own files run, nothing is sent elsewhere, no other page can frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SHARED = ("dom.js",)  # with the analyser's page


@lru_cache(maxsize=1)
def _contents() -> dict[str, bytes]:
    folder, of_analyser = files("tremula.system.web") / "page", page_files()
    shared = {name: of_analyser[name] for name in _SHARED}
    return shared | {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}


def page_file(name: str) -> bytes | None:
    """A file by its name; None if the page has none of that name."""
    return _contents().get(name)


def state_json(controller: Controller, caller: Caller) -> str:
    """Clusters with a column of each measure, partitions, programs, faults."""
    clusters = [_cluster(controller, caller, c) for c in controller.clusters(caller)]
    return json.dumps(
        {
            "clusters": clusters,
            "partitions": controller.partitions(caller),
            "leases": controller.leases(caller),
            "faults": faults.list_faults(controller.store),
        }
    )


def _cluster(controller: Controller, caller: Caller, cluster: dict) -> dict:
    name = cluster["name"]
    system, columns = inventory.system_of(controller.store, name), controller.columns(name)
    columns.warm()
    devices = inventory.devices(controller.store, caller, name)
    return {
        **cluster,
        "n_machines_per_rack": min(system.n_machines_per_rack, system.n_machines),
        "partition": [device["partition"] for device in devices],
        "fault": [device["fault"] for device in devices],
        "is_held": [device["lease"] is not None for device in devices],
        "watts": columns.watts.round(1).tolist(),
        "die_celsius": columns.die_celsius.round(1).tolist(),
        "utilisation": columns.utilisation.round(4).tolist(),
        "tdp_watts": system.watts_per_ipu,
    }
