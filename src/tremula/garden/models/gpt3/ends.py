"""Both ends of a GPT over replicas: embeddings, and the head with its loss."""

import numpy as np

import popxl
from popxl import ops
from popxl_addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.garden.models.gpt3.layers import (
    MASKED,
    Build,
    ShardedLayerNorm,
    _Part,
    dropped,
    shared,
    whole,
)


class ShardedEmbedding(_Part):
    """Words and positions; each replica has some rows of both tables, and some columns."""

    def __init__(self, build: Build, name: str = "embeddings"):
        super().__init__(build, name)

    def build(self, words: popxl.Tensor, seed: popxl.Tensor | None = None) -> popxl.Tensor:
        """Words [T] → rows [T, h / tp2]."""
        config, groups = self.of.config, self.of.replicas
        columns = config.model.hidden // config.parallel.tensor_2
        n_places = config.model.sequence // config.parallel.tensor_1
        word = self.weight("word", (config.word_rows, columns), "both")
        position = self.weight("position", (n_places, columns), "both")
        first_word = first_row(self, "first_word", config.word_rows)
        first_place = first_row(self, "first_place", n_places)
        places = np.tile(np.arange(config.model.sequence), config.training.micro_batch)
        places = popxl.constant(places.astype(np.int32), popxl.int32, "places")
        result = ops.gather(word, words - first_word, axis=0, zero_OOR=True)
        result = result + ops.gather(position, places - first_place, axis=0, zero_OOR=True)
        return dropped(whole(result, groups.tp1), seed, config.model.dropout)


class LanguageModelHead(_Part):
    """The last layer norm, logits with the word table, and the cross entropy of the words."""

    def __init__(self, build: Build, name: str = "head"):
        super().__init__(build, name)
        self.ln_f = ShardedLayerNorm(build, f"{name}.ln_f")

    def build(self, x: popxl.Tensor, word: popxl.Tensor, labels: popxl.Tensor) -> popxl.Tensor:
        """Rows [T, h / tp2], the word table's part, labels [T] → the mean loss."""
        config, groups = self.of.config, self.of.replicas
        y = shared(self.ln_f(x), groups.tp1)
        logits = whole(y @ ops.transpose(word, (1, 0)), groups.tp2)
        if config.word_rows * config.parallel.tensor_1 != config.model.vocabulary:
            logits = logits + self._padding()
        first_word = first_row(self, "first_word", config.word_rows)
        return cross_entropy_sharded_loss(logits, labels - first_word, replica_grouping=groups.tp1)

    def _padding(self) -> popxl.Tensor:
        """Rows of the table that are not words get no probability."""
        config = self.of.config
        n = config.word_rows * config.parallel.tensor_1
        bias = np.where(np.arange(n) < config.model.vocabulary, 0, MASKED).astype(np.float32)
        parts = bias.reshape(config.parallel.tensor_1, -1)
        group = self.of.replicas.holding("tp1")
        return self.add_variable_input("padding", list(parts), self.of.dtype, False, group)


def first_row(module: _Part, name: str, n_rows: int) -> popxl.Tensor:
    """The number of the first row that this replica has of a table split over tp1."""
    replicas = module.of.replicas
    numbers = [np.array(i * n_rows, np.int32) for i in range(replicas.parallel.tensor_1)]
    return module.add_variable_input(name, numbers, popxl.int32, False, replicas.holding("tp1"))
