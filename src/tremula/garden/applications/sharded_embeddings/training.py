"""Training with a shard of the entities on each replica, and scores of all entities afterwards."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

import poptorch
from tremula.compiler.report.report import ProgramReport
from tremula.garden.applications.sharded_embeddings.data import TripleBatch, Triples
from tremula.garden.models.knowledge_graphs.model import Embeddings, ScorerSizes


@contextmanager
def small_chips() -> Iterator[None]:
    """Models compiled in this block are for chips of four tiles, which are quick to simulate."""
    name = "POPTORCH_SMALL_IPU_MODEL"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class ShardedTraining:
    """A model of one scorer on as many simulated chips as there are shards."""

    def __init__(
        self,
        shape: ScorerSizes,
        optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer],
        n_iterations: int = 1,
        *,
        runs: bool = True,  # or is compiled only, for whole chips
    ):
        torch.manual_seed(0)
        self.shape, self.n_iterations = shape, n_iterations
        self.embeddings = Embeddings(shape)
        spread = 1.0 if shape.score in ("TransE", "RotatE") else 0.5
        torch.nn.init.normal_(self.embeddings.entities, std=spread)
        torch.nn.init.normal_(self.embeddings.relations, std=spread)
        options = poptorch.Options().replicationFactor(shape.n_shards)
        options.deviceIterations(n_iterations).outputMode(poptorch.OutputMode.All)
        if runs:
            options.useIpuModel(True)
        else:
            options.connectionType(poptorch.ConnectionType.Never)
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
        chosen = optimizer(self.embeddings.parameters())
        self.model = poptorch.trainingModel(self.embeddings, options, chosen)
        kind, mode = poptorch.CommGroupType.NoGrouping, poptorch.VariableRetrievalMode.OnePerGroup
        self.model.entities.replicaGrouping(kind, 0, mode)

    def step(self, source: Iterator[TripleBatch]) -> float:
        """Some iterations of the device; the mean loss of a triple."""
        columns = self._columns(source)
        losses = self.model(*columns)
        return float(losses.sum()) / columns[0].numel()

    def report(self, source: Iterator[TripleBatch]) -> ProgramReport:
        """What a call takes, from the compiled program alone."""
        self.model.compile(*self._columns(source))
        return self.model.compiled_program().report()

    def _columns(self, source: Iterator[TripleBatch]) -> list[torch.Tensor]:
        drawn = [next(source) for _ in range(self.n_iterations)]
        return [
            torch.from_numpy(np.concatenate([getattr(batch, name) for batch in drawn]))
            for name in ("heads", "relations", "tails", "negatives")
        ]

    def scores(self, triples: Triples) -> np.ndarray:
        """[triples, entities]: every entity as the tail."""
        if self.model.isCompiled():
            self.model.copyWeightsToHost()
        with torch.no_grad():
            table = self.embeddings.entities.transpose(0, 1).flatten(0, 1)  # entity e is row e
            heads = table[torch.from_numpy(triples.head)]
            links = self.embeddings.relations[torch.from_numpy(triples.relation)]
            return self.embeddings.scores_of_tails(heads, links, table).float().numpy()

    def bytes_sent(self) -> np.ndarray:
        """int64[chips]: what each chip sends to others in a call, as the program is compiled."""
        links = self.model.compiled_program().report().links
        return np.bincount(links.source, links.n_bytes, self.shape.n_shards).astype(np.int64)
