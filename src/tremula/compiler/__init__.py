"""Graph → executable: verify, exchange, liveness, cost, placement, emit; files and their cache."""
