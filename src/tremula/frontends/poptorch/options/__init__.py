"""poptorch.Options: how a model runs."""
