"""BERT fine-tuned with IPUTrainer, then asked through a pipeline."""
