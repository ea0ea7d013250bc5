"""The files that programs find a partition by, one for each graph compilation domain."""

import json
from pathlib import Path

from tremula.base.errors import InvalidOption
from tremula.system.client import Client, in_path
from tremula.system.private_files import write_private

FOLDER = Path("~/.ipuof.conf.d")


def config_path(partition: str, gcd: int, folder: Path | None = None) -> Path:
    if "/" in partition or partition.startswith("."):
        raise InvalidOption(f"{partition!r} is not the name of a partition.", hint="p1, say")
    return (folder or FOLDER).expanduser() / f"{partition}_gcd{gcd}.conf"


def write_config_files(client: Client, partition: str, folder: Path | None = None) -> list[Path]:
    """Ask for the configuration of all domains, and write it where only the user can read it."""
    result, n_gcds = [], 1
    while len(result) < n_gcds:
        gcd = len(result)
        table = client.get(f"partitions/{in_path(partition)}/ipuof?gcd={gcd}")
        n_gcds = table["n_gcds"]
        path = config_path(partition, gcd, folder)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        table |= {"host": client.host, "port": client.port}
        write_private(path, json.dumps(table, indent=1))
        result.append(path)
    return result


def remove_config_files(partition: str, folder: Path | None = None) -> None:
    gcd = 0
    while (path := config_path(partition, gcd, folder)).exists():
        path.unlink()
        gcd += 1
