"""Trains a Conformer as a pipeline with CTC's loss, and reads new words by beams."""

import torch

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.conformer_ctc.model import LetterDecoder, Recogniser
from tremula.garden.applications.conformer_ctc.tones import Words, edit_distance, words_of_tones

N_BATCH, N_ACCUMULATED, N_TEST = 16, 4, 48


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_words, n_epochs, width = (640, 9, 16) if settings.tiny else (10000, 20, 64)
    known = words_of_tones(n_words, seed=1)
    model = Recogniser(width, n_blocks=2)
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(N_ACCUMULATED)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=1e-2)
    training = poptorch.trainingModel(model, options, optimizer)
    per_call = N_BATCH * N_ACCUMULATED
    losses = []
    for epoch in range(n_epochs):
        for rows in torch.randperm(n_words).split(per_call):
            parts = (known.sounds, known.letters.int(), known.lengths.int())
            losses.append(float(training(*(part[rows] for part in parts)).mean()))
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.detachFromDevice()
    test = words_of_tones(N_TEST, seed=2)
    reading = poptorch.inferenceModel(
        LetterDecoder(model.eval()), poptorch.Options().deviceIterations(2)
    )
    letters, lengths = reading(test.sounds)
    errors = error_rate(letters, lengths, test)
    settings.show(f"letters wrong in {N_TEST} new words: {errors:.1%}")
    return Findings(
        results={"letter_error_rate": errors},
        modelled=modelled_poptorch(training, settings, n_items=per_call, unit="words/s"),
        curves={"loss": losses},
        picture=test.sounds[:4].flatten(0, 1).t().numpy(),
    )


def error_rate(letters: torch.Tensor, lengths: torch.Tensor, truth: Words) -> float:
    """Letters to insert, delete or replace, of all letters."""
    n_wrong = sum(
        edit_distance(result[:n].tolist(), wanted[:m].tolist())
        for result, n, wanted, m in zip(
            letters, lengths.tolist(), truth.letters, truth.lengths.tolist(), strict=True
        )
    )
    return n_wrong / int(truth.lengths.sum())
