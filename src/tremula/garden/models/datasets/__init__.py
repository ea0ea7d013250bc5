"""Data sets without a licence question: shipped, generated, or fetched once."""
