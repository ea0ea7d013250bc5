"""poptorch.Options: everything that can be said about how a model runs."""
