"""`vipu VERB THING …`: ask a controller for partitions, and administer it."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tremula.commands.arguments import port
from tremula.commands.system.config_files import remove_config_files, write_config_files
from tremula.commands.system.tables import show
from tremula.system.client import Client, client_from, in_path
from tremula.system.private_files import write_private

Action = Callable[[Client, argparse.Namespace], None]

_PARTITION_COLUMNS = {
    "name": "Name", "owner": "User", "allocation": "Allocation", "size": "IPUs", "n_gcds": "GCDs",
    "is_reconfigurable": "Reconf.", "routing": "Routing", "first": "First", "state": "State",
}  # fmt: skip
_LISTS: dict[str, tuple[str, dict[str, str]]] = {
    "partitions": ("partitions", _PARTITION_COLUMNS),
    "clusters": (
        "clusters",
        {"name": "Name", "system": "System", "n_agents": "Agents", "n_ipus": "IPUs",
         "n_ipus_used": "In use", "topology": "Topology"},
    ),
    "agents": (
        "agents",
        {"name": "Name", "cluster": "Cluster", "allocation": "Allocation", "host": "Host",
         "serial": "Serial", "is_up": "Up"},
    ),
    "allocations": (
        "allocations",
        {"name": "Name", "cluster": "Cluster", "n_ipus": "IPUs", "n_ipus_free": "Free",
         "users": "Users"},
    ),
    "users": (
        "users",
        {"name": "Name", "role": "Role", "max_ipus": "IPUs at most",
         "max_partitions": "Partitions at most"},
    ),
    "faults": ("faults", {"id": "Id", "kind": "Kind", "cluster": "Cluster", "what": "What"}),
    "processes": (
        "leases",
        {"partition": "Partition", "ipus": "IPUs", "pid": "PID", "user": "User", "host": "Host",
         "command": "Command"},
    ),
    "ipu-attrs": (
        "devices",
        {"cluster": "Cluster", "ipu": "IPU", "agent": "Agent", "serial": "Serial",
         "partition": "Partition", "fault": "Fault"},
    ),
    "audit": (
        "audit",
        {"at": "At", "user": "User", "action": "Action", "subject": "Subject",
         "outcome": "Outcome"},
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server_options(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_list(verbs.add_parser("list", help="show what there is"))
    _add_create(verbs.add_parser("create", help="make something"))
    _add_get(verbs.add_parser("get", help="show one thing, or write its configuration"))
    _add_remove(verbs.add_parser("remove", help="remove something"))
    reset = verbs.add_parser("reset", help="reset the devices of a partition")
    _thing(reset, {"partition": _reset_partition})
    grant = verbs.add_parser("grant", help="let a user use an allocation")
    grant.add_argument("allocation")
    grant.add_argument("user")
    grant.set_defaults(action=_grant)
    _add_faults(verbs)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-H", "--api-host", metavar="HOST", help="where the controller is")
    parser.add_argument("--api-port", type=port, metavar="PORT", help="its port (8090)")
    parser.add_argument("--api-user-id", metavar="NAME", help="not needed: keys tell who you are")
    parser.add_argument("--api-access-key", metavar="KEY", help="or $VIPU_CLI_API_ACCESS_KEY")
    parser.add_argument("--config", metavar="FILE.hcl", help="all of these in a file")


def client_of(args: argparse.Namespace) -> Client:
    return client_from(args.api_host, args.api_port, args.api_access_key, args.config)


def run(args: argparse.Namespace) -> int:
    action: Action = args.action
    action(client_of(args), args)
    return 0


def _thing(
    parser: argparse.ArgumentParser, actions: dict[str, Action], name_help: str = "its name"
) -> dict[str, argparse.ArgumentParser]:
    """A parser for each thing that a verb takes, with its name."""
    things = parser.add_subparsers(dest="thing", required=True, metavar="THING")
    result = {}
    for thing, action in actions.items():
        result[thing] = things.add_parser(thing)
        result[thing].add_argument("name", help=name_help)
        result[thing].set_defaults(action=action)
    return result


# -- list and get ----------------------------------------------------------------------------------


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "thing", type=_plural, choices=list(_LISTS), metavar="THING", help=", ".join(_LISTS)
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(action=_list)


def _plural(thing: str) -> str:
    """`vipu list partition` is as good as `vipu list partitions`."""
    return f"{thing}s" if f"{thing}s" in _LISTS else thing


def _list(client: Client, args: argparse.Namespace) -> None:
    path, columns = _LISTS[args.thing]
    show(client.get(path), columns, as_json=args.json)


def _add_get(parser: argparse.ArgumentParser) -> None:
    things = _thing(parser, {"partition": _get_partition, "config": _get_config})
    things["partition"].add_argument("--json", action="store_true", help="as JSON")
    _add_config_folder(things["config"])


def _add_config_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config-folder", type=Path, metavar="FOLDER", help="instead of ~/.ipuof.conf.d"
    )


def _get_partition(client: Client, args: argparse.Namespace) -> None:
    result = client.get(f"partitions/{in_path(args.name)}")
    if args.json:
        print(json.dumps(result, indent=2))
        return
    show([result], _PARTITION_COLUMNS, as_json=False)
    for domain in result["gcds"]:
        print(f"GCD {domain['gcd']}: IPUs {_span(domain['ipus'])}")
    groups = (f"{g['name']} {g['first']}+{g['size']}" for g in result["sync_groups"])
    print(f"sync groups: {', '.join(groups)}")
    if result["why"]:
        print(f"why: {result['why']}")


def _span(ipus: list[int]) -> str:
    return f"{ipus[0]}–{ipus[-1]}" if len(ipus) > 1 else str(ipus[0])


def _get_config(client: Client, args: argparse.Namespace) -> None:
    for path in write_config_files(client, args.name, args.config_folder):
        print(path)


# -- create and remove -----------------------------------------------------------------------------


def _add_create(parser: argparse.ArgumentParser) -> None:
    made = {
        "partition": _create_partition,
        "cluster": _create_cluster,
        "allocation": _create_allocation,
        "user": _create_user,
    }
    things = _thing(parser, made)
    one = things["partition"]
    one.add_argument("--size", type=int, required=True, help="IPUs: 1, 2, 4, …")
    one.add_argument("--allocation", help="where to cut it from")
    one.add_argument("--gcds", type=int, default=1, help="graph compilation domains (1)")
    one.add_argument("--reconfigurable", action="store_true", help="devices of all sizes")
    one.add_argument("--topology", default="auto", help="ring, mesh or torus (the best there is)")
    one.add_argument("--index", type=int, help="the IPU to begin at (wherever it fits best)")
    one.add_argument("--no-config", action="store_true", help="do not write ~/.ipuof.conf.d files")
    _add_config_folder(one)
    one = things["cluster"]
    one.add_argument("--system", help="pod16, pod64, …")
    one.add_argument("--chip", help="bow, gc200, …")
    one.add_argument("--n-ipus", type=int, help="number of chips, without --system")
    one = things["allocation"]
    one.add_argument("--cluster", required=True)
    one.add_argument("--agents", required=True, type=_names, help="names, with commas")
    one.add_argument("--users", default=[], type=_names, help="names, with commas")
    one = things["user"]
    one.add_argument("--role", default="user", help="viewer, user, operator or admin (user)")
    one.add_argument("--max-ipus", type=int, help="quota")
    one.add_argument("--max-partitions", type=int, help="quota")
    one.add_argument("--output", type=Path, metavar="FILE.hcl", help="write the key here")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _create_partition(client: Client, args: argparse.Namespace) -> None:
    made = client.post(
        "partitions",
        name=args.name,
        size=args.size,
        allocation=args.allocation,
        n_gcds=args.gcds,
        is_reconfigurable=args.reconfigurable,
        topology=args.topology,
        first=args.index,
    )
    last = made["first"] + made["size"] - 1
    print(
        f"partition {args.name}: IPUs {made['first']} to {last}, {made['routing']}, {made['state']}"
    )
    if not args.no_config:
        for path in write_config_files(client, args.name, args.config_folder):
            print(f"export IPUOF_CONFIG_PATH={path}")


def _create_cluster(client: Client, args: argparse.Namespace) -> None:
    made = client.post(
        "clusters", name=args.name, system=args.system, chip=args.chip, n_ipus=args.n_ipus
    )
    print(f"cluster {args.name}: {made['n_ipus']} IPUs")


def _create_allocation(client: Client, args: argparse.Namespace) -> None:
    client.post(
        "allocations", name=args.name, cluster=args.cluster, agents=args.agents, users=args.users
    )
    print(f"allocation {args.name}: {len(args.agents)} machines")


def _create_user(client: Client, args: argparse.Namespace) -> None:
    made = client.post(
        "users",
        name=args.name,
        role=args.role,
        max_ipus=args.max_ipus,
        max_partitions=args.max_partitions,
    )
    lines = {
        "api-host": client.host,
        "api-port": str(client.port),
        "api-user-id": args.name,
        "api-access-key": made["key"],
    }
    text = "".join(f'{name} = "{value}"\n' for name, value in lines.items())
    if args.output is None:
        print(text, end="")
        return
    write_private(args.output, text)
    print(f"the key of {args.name} is in {args.output}")


def _add_remove(parser: argparse.ArgumentParser) -> None:
    kinds = ("cluster", "allocation", "user")
    things = _thing(parser, {"partition": _remove_partition, **dict.fromkeys(kinds, _remove)})
    things["partition"].add_argument("--force", action="store_true", help="even if programs use it")


def _remove_partition(client: Client, args: argparse.Namespace) -> None:
    client.delete(f"partitions/{in_path(args.name)}?force={str(args.force).lower()}")
    remove_config_files(args.name)
    print(f"partition {args.name} is removed")


def _remove(client: Client, args: argparse.Namespace) -> None:
    client.delete(f"{args.thing}s/{in_path(args.name)}")
    print(f"{args.thing} {args.name} is removed")


def _reset_partition(client: Client, args: argparse.Namespace) -> None:
    client.post(f"partitions/{in_path(args.name)}/reset")
    print(f"partition {args.name} is reset")


def _grant(client: Client, args: argparse.Namespace) -> None:
    client.ask("PUT", f"allocations/{in_path(args.allocation)}/users/{in_path(args.user)}")
    print(f"{args.user} may use {args.allocation}")


# -- faults ----------------------------------------------------------------------------------------


def _add_faults(verbs: Any) -> None:  # noqa: ANN401 - argparse's own class is private
    inject = verbs.add_parser("inject", help="break something on purpose")
    inject.add_argument("kind", choices=("link", "parity", "reset", "agent"))
    inject.add_argument("numbers", type=int, nargs="+", help="IPU; both ends of a link; machine")
    inject.add_argument("--cluster", default="cl0", help="(cl0)")
    inject.set_defaults(action=_inject)
    clear = verbs.add_parser("clear", help="repair what was broken")
    clear.add_argument("number", type=int, help="as `tremula vipu list faults` shows it")
    clear.set_defaults(action=_clear)


def _inject(client: Client, args: argparse.Namespace) -> None:
    a, b, *_ = (*args.numbers, None)
    made = client.post("faults", kind=args.kind, cluster=args.cluster, a=a, b=b)
    number = f"fault {made['id']}: " if made["id"] else ""
    print(f"{number}{made['what']}")


def _clear(client: Client, args: argparse.Namespace) -> None:
    client.delete(f"faults/{args.number}")
    print(f"fault {args.number} is cleared")
