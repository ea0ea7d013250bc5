"""Jobs on a Dask cluster: results as they come; a worker that dies gives its jobs to others."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tremula.base.errors import PoplarError

Job = TypeVar("Job")
N_RETRIES = 3


class ClusterFailed(PoplarError):
    """A cluster cannot be reached, or a job fails on it again and again."""


def results_on_cluster(
    address: str, run: Callable[[Job], Any], jobs: Iterable[Job], timeout_s: float = 30
) -> Iterator[tuple[Job, Any]]:
    """Yields (job, result) from the workers of a cluster, "tcp://host:8786" say."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise ClusterFailed(
            "sweeping on a cluster needs Dask, which is not installed.",
            hint="pip install 'tremula[sweep]'",
        ) from error
    try:
        client = Client(address, timeout=timeout_s, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterFailed(
            f"no cluster answers at {address!r}: {error}.",
            hint="start one with  dask scheduler  and  dask worker tcp://host:8786",
        ) from error
    with client:
        listed = list(jobs)
        futures = {client.submit(run, job, pure=False, retries=N_RETRIES): job for job in listed}
        for future in as_completed(futures, loop=client.loop):
            if future.status != "finished":
                raise ClusterFailed(
                    f"a job failed on the cluster: {future.exception()!r}.",
                    hint="look at the workers' logs; results so far are kept",
                )
            yield futures[future], future.result()
