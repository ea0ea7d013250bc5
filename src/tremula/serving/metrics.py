"""What a server has done so far, in Prometheus' text format."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class LatencyHistogram:
    """How many values lie below each bound, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        n = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            n += count
            yield f'{name}_bucket{{le="{bound}"}} {n}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {n}"


@dataclass(slots=True)
class Metrics:
    """Plain numbers: counting must cost nothing beside a request."""

    model: str
    batch_size: int
    by_status: Counter[int] = field(default_factory=Counter)
    n_rows: int = 0
    n_rejected: int = 0
    n_batches: int = 0
    n_failed_batches: int = 0
    n_connections: int = 0
    latency: LatencyHistogram = field(default_factory=lambda: LatencyHistogram(_LATENCY_BOUNDS_S))
    batch_seconds: LatencyHistogram = field(
        default_factory=lambda: LatencyHistogram(_LATENCY_BOUNDS_S)
    )

    def batch(self, n_rows: int, seconds: float, *, is_failure: bool) -> None:
        self.n_batches += 1
        self.n_rows += n_rows
        if is_failure:
            self.n_failed_batches += 1
        else:
            self.batch_seconds.add(seconds)

    def text(self, n_waiting_rows: int, *, is_ready: bool) -> str:
        """All of it, as Prometheus reads it."""
        lines = []
        for name, help, value in (
            ("rows_total", "Rows that were computed", self.n_rows),
            ("refused_total", "Requests refused because the queue was full", self.n_rejected),
            ("batches_total", "Batches that ran", self.n_batches),
            ("failed_batches_total", "Batches that ended with an error", self.n_failed_batches),
        ):
            lines += [*_family(name, "counter", help), f"tremula_serving_{name} {value}"]
        for name, help, value in (
            ("batch_size", "Rows of a full batch", self.batch_size),
            ("queued_rows", "Rows that wait for a batch", n_waiting_rows),
            ("connections", "Open connections", self.n_connections),
            ("ready", "1 if requests are taken", int(is_ready)),
        ):
            lines += [*_family(name, "gauge", help), f"tremula_serving_{name} {value}"]
        lines += _family("requests_total", "counter", "Requests answered, by status")
        lines += [
            f'tremula_serving_requests_total{{status="{status}"}} {n}'
            for status, n in sorted(self.by_status.items())
        ]
        for name, help, histogram in (
            ("latency_seconds", "From a request's arrival to its answer", self.latency),
            ("batch_seconds", "Time to run a batch", self.batch_seconds),
        ):
            lines += _family(name, "histogram", help)
            lines += histogram.lines(f"tremula_serving_{name}")
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP tremula_serving_{name} {help}", f"# TYPE tremula_serving_{name} {kind}"]
