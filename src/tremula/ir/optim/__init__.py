"""The weight update of a training step: its settings, its mathematics, its host execution."""
