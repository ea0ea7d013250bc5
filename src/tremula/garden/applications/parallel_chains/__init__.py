"""Markov chains, one for each worker, that sample a posterior until they agree."""
