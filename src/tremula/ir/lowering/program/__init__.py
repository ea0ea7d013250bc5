"""The tile program of a captured step: variables, streams, schedule, pipelines."""
