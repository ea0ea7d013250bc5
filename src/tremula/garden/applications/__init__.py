"""Applications: a folder each, with a manifest and a `main.py` that has `run(settings)`."""
