"""How often a call repeats a step, and how the gradients of its micro-batches combine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Repetition:
    """A call runs `n_iterations` × `n_accumulation` × `n_replicas` micro-batches, in that order."""

    n_iterations: int = 1
    n_accumulation: int = 1
    n_replicas: int = 1  # of this process
    gradient_scale: float = 1.0  # 1 / (accumulation × all replicas) for the mean
    n_processes: int = 1
    has_running_mean: bool = False  # gradients are averaged as they come, not summed and divided

    def index_of(self, number: int) -> tuple[int, int, int]:
        """Iteration, accumulation step and replica of a micro-batch; replicas vary fastest."""
        rest, replica = divmod(number, self.n_replicas)
        return (*divmod(rest, self.n_accumulation), replica)

    @property
    def n_micro_batches(self) -> int:
        return self.n_iterations * self.n_accumulation * self.n_replicas
