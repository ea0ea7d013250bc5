"""What a GPT holds and sends, counted from its configuration: memory of a chip, collectives.

Plain arithmetic: the built graphs are counted against it, and so is what compiling them finds.
"""

from dataclasses import dataclass
from math import prod

from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.layout import (
    embedding_weights,
    head_weights,
    layer_weights,
    shard_elements,
)

FORWARD, BACKWARD = "forward", "backward"
_N_STATE_BYTES = 8  # Adam's two moments of a weight, in float32


@dataclass(frozen=True)
class AllReduce:
    """One all-reduce of a layer: for what, in which pass, over which replicas, of which shape."""

    purpose: str
    direction: str
    group: str
    shape: tuple[int, ...]
    is_statistic: bool = False  # of a layer norm: two numbers for each row

    def n_bytes(self, n_bytes_each: int) -> int:
        return prod(self.shape) * n_bytes_each


def feed_forward_all_reduces(config: GPTConfig) -> list[AllReduce]:
    """Of the two-dimensional feed-forward: two each way, and a layer norm's."""
    t, h = config.n_rows, config.model.hidden
    narrow = (t, h // config.parallel.tensor_2)
    wide = (t, 4 * h // config.parallel.tensor_1)
    return [
        AllReduce("ln_2", FORWARD, "tp2", (2, t, 1), is_statistic=True),
        AllReduce("intermediate", FORWARD, "tp2", wide),
        AllReduce("output", FORWARD, "tp1", narrow),
        AllReduce("intermediate", BACKWARD, "tp2", wide),
        AllReduce("input", BACKWARD, "tp1", narrow),
        AllReduce("ln_2", BACKWARD, "tp2", (2, t, 1), is_statistic=True),
    ]


def attention_all_reduces(config: GPTConfig) -> list[AllReduce]:
    """Of the two-dimensional attention: two each way, and a layer norm's."""
    t, h = config.n_rows, config.model.hidden
    narrow = (t, h // config.parallel.tensor_2)
    qkv, heads = (t, 3 * h // config.parallel.tensor_1), (t, h // config.parallel.tensor_1)
    return [
        AllReduce("ln_1", FORWARD, "tp2", (2, t, 1), is_statistic=True),
        AllReduce("qkv", FORWARD, "tp2", qkv),
        AllReduce("output", FORWARD, "tp1", narrow),
        AllReduce("heads", BACKWARD, "tp2", heads),
        AllReduce("input", BACKWARD, "tp1", narrow),
        AllReduce("ln_1", BACKWARD, "tp2", (2, t, 1), is_statistic=True),
    ]


def layer_all_reduces(config: GPTConfig) -> list[AllReduce]:
    return attention_all_reduces(config) + feed_forward_all_reduces(config)


def one_dimensional_all_reduces(config: GPTConfig) -> list[AllReduce]:
    """Of a decoder layer if all replicas of tp split one dimension: rows stay whole."""
    whole = (config.n_rows, config.model.hidden)
    return [
        AllReduce(part, direction, "tp_all", whole)
        for part in ("attention", "feed-forward")
        for direction in (FORWARD, BACKWARD)
    ]


def head_all_reduces(config: GPTConfig) -> list[AllReduce]:
    """Logits, the three of the loss, and the gradient of the head's input."""
    t, tp2 = config.n_rows, config.parallel.tensor_2
    return [
        AllReduce("ln_f", FORWARD, "tp2", (2, t, 1), is_statistic=True),
        AllReduce("logits", FORWARD, "tp2", (t, config.word_rows)),
        AllReduce("maximum", FORWARD, "tp1", (t, 1)),
        AllReduce("denominator", FORWARD, "tp1", (t, 1)),
        AllReduce("loss", FORWARD, "tp1", (t,)),
        AllReduce("input", BACKWARD, "tp1", (t, config.model.hidden // tp2)),
        AllReduce("ln_f", BACKWARD, "tp2", (2, t, 1), is_statistic=True),
    ]


def ring_bytes(n_bytes: int, n_members: int) -> int:
    """What each member of a ring sends to all-reduce `n_bytes`."""
    return 2 * n_bytes * (n_members - 1) // n_members


@dataclass(frozen=True)
class MemoryRow:
    """One row of the table: what it is, where it is, bytes on each replica."""

    item: str
    place: str  # "chip" or "streaming memory"
    n_bytes: int


def chip_rows(config: GPTConfig) -> list[MemoryRow]:
    """Tensors that a replica has on its chip at one time or another, each by itself."""
    model, parallel = config.model, config.parallel
    t, h, n_bytes = config.n_rows, config.model.hidden, config.model.n_bytes
    scores = config.training.micro_batch * model.n_heads // parallel.tensor_1 * model.sequence**2
    layer = sum(w.n_elements for w in layer_weights(config))
    sizes = {
        "decoder layer, gathered": layer,
        "gradients of a decoder layer": layer,
        "activation between layers": t * h // parallel.tensor_2,
        "stored shard of an activation": t * h // parallel.tensor,
        "attention scores": scores,
        "attention scores, serialised": scores // config.machine.attention_serialisation,
        "queries, keys, values": t * 3 * h // parallel.tensor_1,
        "feed-forward activation": t * 4 * h // parallel.tensor_1,
        "word table, gathered": embedding_weights(config)[0].n_elements,
        "logits": t * config.word_rows,
    }
    return [MemoryRow(item, "chip", n * n_bytes) for item, n in sizes.items()]


def streaming_rows(config: GPTConfig) -> list[MemoryRow]:
    """What a replica keeps in streaming memory: shards of everything that outlives a phase."""
    model, parallel = config.model, config.parallel
    layers = model.n_layers * sum(shard_elements(w, parallel) for w in layer_weights(config))
    rest = embedding_weights(config) + head_weights(config)
    others = sum(shard_elements(w, parallel) for w in rest)
    tied = shard_elements(embedding_weights(config)[0], parallel)  # the head's gradient of it
    entries = (model.n_layers + 1) * config.accumulation
    activations = entries * config.n_rows * model.hidden // parallel.tensor * model.n_bytes
    sizes = {
        "decoder weights": layers * model.n_bytes,
        "decoder gradients": layers * model.n_bytes,
        "decoder moments": layers * _N_STATE_BYTES,
        "other weights": others * model.n_bytes,
        "other gradients": (others + tied) * model.n_bytes,
        "other moments": others * _N_STATE_BYTES,
        "activations": activations,
        "gradients of activations": activations,
    }
    return [MemoryRow(item, "streaming memory", n) for item, n in sizes.items()]


def memory_table(config: GPTConfig) -> list[MemoryRow]:
    """Both parts of the table."""
    return chip_rows(config) + streaming_rows(config)
