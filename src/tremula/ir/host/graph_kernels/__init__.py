"""Steps of graph networks on a GPU: what is computed for each row (edge, node) as one kernel."""
