"""The passes, each in a file: verify, exchange, liveness, cost, placement, emit."""
