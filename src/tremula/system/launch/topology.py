"""What PopRun lays out: hosts, instances (processes), replicas and their chips."""

import re
from dataclasses import dataclass

from tremula.base.errors import InvalidOption

_RANGE = re.compile(r"(?P<before>[^\[\],]*)\[(?P<numbers>[\d,\s-]+)\](?P<after>[^\[\],]*)")


@dataclass(frozen=True, slots=True)
class Topology:
    """Instances over hosts, replicas over instances: as evenly as they must be."""

    hosts: tuple[str, ...]
    n_instances: int
    n_replicas: int
    n_ipus_per_replica: int
    n_ilds: int = 1

    def __post_init__(self) -> None:
        _divides(self.n_replicas, self.n_instances, "replicas", "instances")
        _divides(self.n_instances, len(self.hosts), "instances", "hosts")
        _divides(self.n_replicas, self.n_ilds, "replicas", "IPU-Link domains")

    @property
    def n_local_replicas(self) -> int:
        """Replicas of an instance."""
        return self.n_replicas // self.n_instances

    @property
    def n_local_instances(self) -> int:
        """Instances of a host."""
        return self.n_instances // len(self.hosts)

    @property
    def n_ipus(self) -> int:
        return self.n_replicas * self.n_ipus_per_replica

    def host_of(self, instance: int) -> str:
        return self.hosts[instance // self.n_local_instances]

    def table(self) -> str:
        """A picture of who is where."""
        lines = [f"{'Host':<20}  {'ILD':<4} {'Instance':<9} {'Replicas':<12} IPUs"]
        per = self.n_local_replicas
        for instance in range(self.n_instances):
            first = instance * per
            ild = first * self.n_ilds // self.n_replicas
            ipus = (
                f"{first * self.n_ipus_per_replica}–{(first + per) * self.n_ipus_per_replica - 1}"
            )
            replicas = f"{first}–{first + per - 1}"
            lines.append(
                f"{self.host_of(instance):<20}  {ild:<4} {instance:<9} {replicas:<12} {ipus}"
            )
        return "\n".join(lines)

    def environment(self, instance: int) -> dict[str, str]:
        """What tells PopTorch, popdist and torch.distributed which instance a process is."""
        n_local = self.n_local_instances
        numbers = {
            "POPDIST_NUM_TOTAL_REPLICAS": self.n_replicas,
            "POPDIST_NUM_IPUS_PER_REPLICA": self.n_ipus_per_replica,
            "POPDIST_NUM_LOCAL_REPLICAS": self.n_local_replicas,
            "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
            "POPDIST_REPLICA_INDEX_OFFSET": instance * self.n_local_replicas,
            "POPDIST_LOCAL_INSTANCE_INDEX": instance % n_local,
            "OMPI_COMM_WORLD_SIZE": self.n_instances,
            "OMPI_COMM_WORLD_RANK": instance,
            "OMPI_COMM_WORLD_LOCAL_SIZE": n_local,
            "OMPI_COMM_WORLD_LOCAL_RANK": instance % n_local,
            "WORLD_SIZE": self.n_instances,
            "RANK": instance,
            "LOCAL_WORLD_SIZE": n_local,
            "LOCAL_RANK": instance % n_local,
        }
        return {name: str(number) for name, number in numbers.items()}


def _divides(many: int, few: int, of_many: str, of_few: str) -> None:
    if few < 1 or many < few or many % few:
        raise InvalidOption(
            f"{many} {of_many} cannot be split across {few} {of_few}.",
            hint=f"the number of {of_many} must be a multiple of that of {of_few}",
        )


def expand_hosts(text: str) -> tuple[str, ...]:
    """`node[0-2,4],other` → node0, node1, node2, node4, other."""
    result: list[str] = []
    for part in re.findall(r"[^,\[\]]*\[[^\]]*\][^,\[\]]*|[^,]+", text):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            result.append(_checked_host(part.strip()))
            continue
        before, after = match["before"], match["after"]
        result += [_checked_host(f"{before}{n}{after}") for n in _numbers(match["numbers"])]
    if not result:
        raise InvalidOption("there is no host.", hint="-H node[0-3], say")
    return tuple(result)


def _numbers(text: str) -> list[str]:
    """`0-2,4` → 0, 1, 2, 4; leading zeros stay."""
    result: list[str] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) < int(first):
            raise InvalidOption(f"{part!r} is not a range of hosts.", hint="node[0-3,8], say")
        result += [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)]
    return result


def _checked_host(name: str) -> str:
    # It becomes an argument of ssh: a leading dash would be an option.
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*", name):
        raise InvalidOption(f"{name!r} is not the name of a host.", hint="-H node[0-3], say")
    return name
