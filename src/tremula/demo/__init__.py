"""What `tremula demo` runs: digits, a small network for them, and heat in a plate."""
