"""BERT on sentences that share rows."""
