"""Trains BERT to guess masked words on two replicas of two stages, states sharded off the chips."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.serialised import SlicedLinear

N_WORDS, LENGTH, MASK = 32, 16, 0  # words of the vocabulary, of a row; the word that hides others
N_REPLICAS, N_BATCH, N_ACCUMULATED = 2, 16, 4
IGNORED = -100
N_SENTENCES, MASKED_SHARE = 12, 0.2
N_SLICES = 4  # of the output layer


class MaskedWords(nn.Module):
    """BERT in two stages: embeddings and the first layers, the rest with the output layer."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.bert = BertForMaskedLM(config)
        predictions = self.bert.cls.predictions
        mode = poptorch.MatMulSerializationMode.OutputChannels
        predictions.decoder = SlicedLinear(config.hidden_size, N_WORDS, N_SLICES, mode)
        layers = self.bert.bert.encoder.layer
        poptorch.BeginBlock(self.bert.bert.embeddings, "first", ipu_id=0)
        poptorch.BeginBlock(layers[len(layers) // 2], "second", ipu_id=1)

    def forward(self, words: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.bert(input_ids=words).logits
        loss = functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        return scores.argmax(-1), loss


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    width, n_layers, n_updates = (32, 2, 60) if settings.tiny else (256, 6, 1000)
    config = BertConfig(
        vocab_size=N_WORDS, hidden_size=width, num_hidden_layers=n_layers, num_attention_heads=2,
        intermediate_size=2 * width, max_position_embeddings=LENGTH, tie_word_embeddings=False,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1,
    )  # fmt: skip
    model = MaskedWords(config)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.01, bias_correction=True)
    training = poptorch.trainingModel(model, options_of(), optimizer)
    per_call = N_REPLICAS * N_ACCUMULATED * N_BATCH
    settings.show(f"{n_layers} layers on 2 chips, {N_REPLICAS} replicas, {per_call} rows an update")
    draw = torch.Generator().manual_seed(1)
    sentences = torch.randint(1, N_WORDS, (N_SENTENCES, LENGTH), generator=draw)
    losses, accuracy = [], 0.0
    for update in range(n_updates):
        words, labels = rows_of(per_call, sentences, draw)
        guesses, loss = training(words, labels)
        losses.append(float(loss.mean()))
        is_masked = labels != IGNORED
        accuracy = float((guesses == labels)[is_masked].float().mean())
        if update % 10 == 9:
            settings.show(f"  update {update + 1}: loss {losses[-1]:.3f}, right {accuracy:.2f}")
    return Findings(
        results={"accuracy_of_masked_words": accuracy},
        modelled=modelled_poptorch(training, settings, n_items=per_call, unit="rows/s"),
        curves={"loss": losses},
    )


def rows_of(n: int, sentences: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sentences with some words hidden, and labels of the hidden ones."""
    chosen = torch.randint(len(sentences), (n,), generator=draw)
    words = sentences[chosen]
    is_masked = torch.rand(words.shape, generator=draw) < MASKED_SHARE
    is_masked[:, 0] |= ~is_masked.any(1)
    labels = torch.where(is_masked, words, IGNORED)
    return words.masked_fill(is_masked, MASK).int(), labels.int()


def options_of() -> poptorch.Options:
    options = poptorch.Options().replicationFactor(N_REPLICAS)
    options.Training.gradientAccumulation(N_ACCUMULATED)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    states = poptorch.TensorLocationSettings().useOnChipStorage(False)
    states.useReplicatedTensorSharding(True).minElementsForReplicatedTensorSharding(N_REPLICAS)
    options.TensorLocations.setOptimizerLocation(states)
    return options.outputMode(poptorch.OutputMode.All)
