"""Fine-tunes BERT on packed rows; the same weights give unpacked sentences the same scores."""

# `num_labels` is an argument that transformers' stubs do not know.
# pyright: reportCallIssue=false

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import poptorch
from tremula.frontends.optimum.packing import PackedBertForSequenceClassification, PackedDataset
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.packed_bert.sentences import sentences_of

MODULES = ["argparse", "decimal", "statistics", "threading"]
LENGTH, N_PER_ROW, N_BATCH, N_ACCUMULATED = 64, 6, 4, 2
FIELDS = ("input_ids", "attention_mask", "position_ids", "sentence_starts", "labels")


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    text = sentences_of(MODULES, LENGTH)
    order = np.random.default_rng(0).permutation(len(text.rows))
    rows = [text.rows[i] for i in order]
    n_test = len(rows) // 5
    packed = PackedDataset(rows[n_test:], LENGTH, N_PER_ROW)
    packing = packed.packing
    settings.show(f"{len(rows) - n_test:,} sentences in {len(packed)} rows of {LENGTH} words")
    width, n_layers, n_epochs = (32, 1, 5) if settings.tiny else (128, 4, 10)
    config = BertConfig(
        vocab_size=text.n_words, hidden_size=width, num_hidden_layers=n_layers,
        num_attention_heads=4, intermediate_size=2 * width, num_labels=text.n_labels,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    bert = BertForSequenceClassification(config)
    model = PackedWithLoss(PackedBertForSequenceClassification(bert))
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(N_ACCUMULATED)
    data = poptorch.DataLoader(options, packed, batch_size=N_BATCH, shuffle=True, drop_last=True)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=5e-3, bias_correction=True)
    training = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for epoch in range(n_epochs):
        losses += [float(training(*(batch[f] for f in FIELDS)).mean()) for batch in data]
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.copyWeightsToHost()
    test = PackedDataset(rows[:n_test], LENGTH, N_PER_ROW)
    accuracy, difference = compared(bert.eval(), model.model, test)
    settings.show(f"accuracy {accuracy:.1%}; scores differ from unpacked ones by {difference:.1g}")
    n_sentences = round(N_BATCH * N_ACCUMULATED * packing.sequences_per_row)
    return Findings(
        results={
            "accuracy": accuracy,
            "rows_saved": packing.sequences_per_row,
            "share_of_places_used": packing.efficiency,
            "difference_of_scores": difference,
        },
        modelled=modelled_poptorch(training, settings, n_items=n_sentences, unit="sentences/s"),
        curves={"loss": losses},
        picture=attention_of(packed[0]),
    )


class PackedWithLoss(torch.nn.Module):
    def __init__(self, model: PackedBertForSequenceClassification):
        super().__init__()
        self.model = model

    def forward(self, *fields: Tensor) -> Tensor:
        loss = self.model(*fields).loss
        return poptorch.identity_loss(loss, reduction="none")


@torch.no_grad()
def compared(
    bert: BertForSequenceClassification, packed: torch.nn.Module, test: PackedDataset
) -> tuple[float, float]:
    """How many packed sentences are right, and how far scores are from those of single ones."""
    n_right, n_tested, difference = 0, 0, 0.0
    for row, members in enumerate(test.packing.members):
        fields = test[row]
        scores = packed(*(fields[f].unsqueeze(0) for f in FIELDS)).logits[0, : len(members)]
        n_right += int((scores.argmax(1) == fields["labels"][: len(members)]).sum())
        n_tested += len(members)
        if row < 8:
            alone = torch.cat([bert(test.words[i].unsqueeze(0)).logits for i in members])
            difference = max(difference, float((scores - alone).abs().max()))
    return n_right / n_tested, difference


def attention_of(fields: dict[str, Tensor]) -> np.ndarray:
    """Which words of a row see which: blocks, one for each sentence."""
    owner = fields["attention_mask"]
    return ((owner.unsqueeze(0) == owner.unsqueeze(1)) & (owner > 0)).float().numpy()
