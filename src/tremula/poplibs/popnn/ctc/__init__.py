"""Connectionist temporal classification: loss and beam search."""
