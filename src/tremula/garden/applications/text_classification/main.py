"""Fine-tunes a small BERT with IPUTrainer, evaluates it, and asks it through a pipeline."""

# Arguments of configurations, models that were spread over chips, and answers of pipelines are not
# what transformers' stubs say.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportOptionalSubscript=false, reportOptionalIterable=false

import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    logging,
)
from transformers.trainer_callback import PrinterCallback

from optimum.graphcore import IPUConfig, IPUTrainer, IPUTrainingArguments, pipeline
from tremula.garden.application import Findings, Settings, modelled_optimum
from tremula.garden.models.datasets.text import PADDING, UNKNOWN, Excerpts

MODULES = ["argparse", "decimal", "statistics", "threading"]
LENGTH, N_BATCH, N_ASKED = 32, 8, 8
N_PLACES = 128  # the length that pipelines pad to


def run(settings: Settings) -> Findings:
    logging.set_verbosity_error()
    torch.manual_seed(0)
    n_epochs, width, n_layers = (6, 32, 1) if settings.tiny else (10, 128, 4)
    texts = Excerpts(MODULES, LENGTH, n_vocabulary=800)
    rows = [{"input_ids": ids, "labels": int(label)} for ids, label in texts]
    rows = [rows[i] for i in torch.randperm(len(rows)).tolist()]
    n_test = len(rows) // 5 // N_BATCH * N_BATCH
    config = BertConfig(
        vocab_size=len(texts.vocabulary), hidden_size=width, num_hidden_layers=n_layers,
        num_attention_heads=4, intermediate_size=2 * width, num_labels=len(MODULES),
        max_position_embeddings=N_PLACES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(MODULES)), label2id={name: i for i, name in enumerate(MODULES)},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    settings.show(f"{len(rows) - n_test} texts to learn from, {n_test} held out")
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(model, rows, n_test, n_epochs, folder)
        trainer.train()
        losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
        accuracy = trainer.evaluate()["eval_accuracy"]
        trained = trainer.model.deparallelize().eval()
    settings.show(f"accuracy on texts held out: {accuracy:.1%}")
    agrees = pipeline_agrees(trained, texts, rows[:N_ASKED], settings)
    batch = {"input_ids": torch.stack([row["input_ids"] for row in rows[:4]]).int()}
    return Findings(
        results={"accuracy": accuracy, "pipeline_agrees": agrees},
        modelled=modelled_optimum(
            BertForSequenceClassification(config), batch, settings, unit="texts/s"
        ),
        curves={"loss": losses},
    )


def trainer_of(
    model: torch.nn.Module, rows: list[dict], n_test: int, n_epochs: int, folder: str
) -> IPUTrainer:
    trainer = IPUTrainer(
        model,
        IPUConfig(gradient_accumulation_steps=2),
        IPUTrainingArguments(
            folder, fp32=True, num_train_epochs=n_epochs, learning_rate=5e-3, report_to=[],
            per_device_train_batch_size=N_BATCH, per_device_eval_batch_size=N_BATCH,
            save_strategy="no", logging_strategy="epoch", disable_tqdm=True,
            dataloader_drop_last=True,
        ),
        train_dataset=rows[n_test:],
        eval_dataset=rows[:n_test],
        compute_metrics=lambda result: {
            "accuracy": float((np.argmax(result.predictions, -1) == result.label_ids).mean())
        },
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer


def pipeline_agrees(
    model: torch.nn.Module, texts: Excerpts, rows: list[dict], settings: Settings
) -> float:
    """Plain text through `pipeline()`, against the model's own scores of the same words."""
    numbers = {word: number for number, word in enumerate(texts.vocabulary)}
    words = Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token=UNKNOWN, pad_token=PADDING, model_max_length=LENGTH
    )
    ask = pipeline("text-classification", model, tokenizer=tokenizer, ipu_config=IPUConfig())
    questions = [" ".join(texts.vocabulary[i] for i in row["input_ids"].tolist()) for row in rows]
    answers = [answer["label"] for answer in ask(questions)]
    settings.show(f"“{questions[0][:40]}…” is of {answers[0]}")
    with torch.no_grad():
        scores = model(input_ids=torch.stack([row["input_ids"] for row in rows])).logits
    expected = [MODULES[i] for i in scores.argmax(1).tolist()]
    return float(np.mean([a == b for a, b in zip(answers, expected, strict=True)]))
