"""Trains a small BART to copy the first words of a text, and lets it write on the device."""

# `generate` and models that were spread over chips are not what transformers' stubs say.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import copy
import tempfile

import torch
from transformers import BartForConditionalGeneration, logging
from transformers.trainer_callback import PrinterCallback

from optimum.graphcore import IPUConfig, IPUSeq2SeqTrainer, IPUSeq2SeqTrainingArguments
from optimum.graphcore.generation import generating
from tremula.garden.application import Findings, Settings, modelled_optimum
from tremula.garden.applications.summarisation.task import bart_config, rows_of

N_WORDS, N_SUMMARY = 6, 2


def run(settings: Settings) -> Findings:
    logging.set_verbosity_error()
    torch.manual_seed(0)
    n_steps, width, n_layers = (200, 32, 1) if settings.tiny else (2000, 64, 2)
    config = bart_config(width, n_layers)
    model = BartForConditionalGeneration(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = IPUSeq2SeqTrainer(
            model,
            IPUConfig(),
            IPUSeq2SeqTrainingArguments(
                folder, fp32=True, max_steps=n_steps, learning_rate=1e-2, report_to=[],
                per_device_train_batch_size=32, save_strategy="no", logging_steps=20,
                disable_tqdm=True,
            ),
            train_dataset=rows_of(2048, 1, N_WORDS, N_SUMMARY),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    settings.show(f"{n_steps} steps: loss {losses[0]:.2f}, then {losses[-1]:.2f}")
    trainer.copy_weights_to_host()
    plain = trainer.model.deparallelize().eval()
    right, is_same = written(plain, settings)
    words = rows_of(1, 2, N_WORDS, N_SUMMARY)[0]["input_ids"].unsqueeze(0).int()
    batch = {"input_ids": words, "decoder_input_ids": words[:, :1]}
    return Findings(
        results={"words_right": right, "written_as_transformers": float(is_same)},
        modelled=modelled_optimum(
            BartForConditionalGeneration(config), batch, settings, unit="texts/s"
        ),
        curves={"loss": losses},
    )


def written(model: BartForConditionalGeneration, settings: Settings) -> tuple[float, bool]:
    """Summaries of new texts: how many words are right, and whether transformers agrees."""
    words = torch.stack([row["input_ids"] for row in rows_of(8, 2, N_WORDS, N_SUMMARY)])
    plain = BartForConditionalGeneration(model.config).eval()
    plain.load_state_dict(model.state_dict())
    writer = generating(copy.deepcopy(plain))
    ways = ({"do_sample": False}, {"num_beams": 2})
    result = [writer.generate(words, max_new_tokens=N_SUMMARY + 1, **way) for way in ways]
    theirs = [plain.generate(words, max_new_tokens=N_SUMMARY + 1, **way) for way in ways]
    right = (result[0][:, 1 : 1 + N_SUMMARY] == words[:, :N_SUMMARY]).float().mean()
    settings.show(f"words right: {right:.0%}")
    return float(right), all(torch.equal(a, b) for a, b in zip(result, theirs, strict=True))
