"""Figures of Optimum: fine-tuning, generation, packing, families of models, the import."""
