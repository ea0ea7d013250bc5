"""Frameworks whose models Tremula runs: each keeps the public names scripts already use."""
