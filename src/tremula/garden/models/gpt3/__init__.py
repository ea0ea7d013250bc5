"""GPT-3 over many chips: two-dimensional tensor parallelism, data parallel, phase by phase."""
