"""Everything the fleet's page shows at one moment, in columns."""

import json

from tremula.system.control import faults, inventory
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller


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
