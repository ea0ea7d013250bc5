"""A small GPT-3 over eight replicas, phase by phase."""
