"""The garden: models and data sets, applications made of them, and their catalogue."""
