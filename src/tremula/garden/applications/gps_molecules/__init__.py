"""Messages along bonds and attention over whole molecules, in one layer."""
