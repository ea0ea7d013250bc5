"""A controller in memory, one that serves, and whoever calls them."""

import json
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tremula.hardware import single, system
from tremula.system.client import Client
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.system.web.server import serving

ADMIN = Caller("admin", "admin")


@pytest.fixture
def controller():
    made = Controller(":memory:")
    made.add_cluster(ADMIN, "cl0", system("pod16"))
    yield made
    made.close()


@pytest.fixture
def rack():
    """A controller of a rack, whose links form a torus."""
    made = Controller(":memory:")
    made.add_cluster(ADMIN, "cl0", single("bow", 64))
    yield made
    made.close()


@pytest.fixture
def admin(controller):
    """A client of a controller that serves, with the administrator's key."""
    with serving(controller) as port:
        yield Client(port=port, key=controller.admin_key)


@contextmanager
def attached_to(client, partition, monkeypatch, tmp_path, **options):
    """The environment of a program on a new partition."""
    made = client.post("partitions", name=partition, **options)
    table = client.get(f"partitions/{partition}/ipuof?gcd=0")
    path = tmp_path / f"{partition}.conf"
    path.write_text(json.dumps({**table, "host": client.host, "port": client.port}))
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    yield made


def measured(text):
    """(metric, ipu) → value of all chips, from a scrape; further labels are joined to the ipu."""
    usual = {"cluster", "ipum", "serial", "partition"}
    return {
        (sample.name, ",".join(v for k, v in sorted(sample.labels.items()) if k not in usual)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
