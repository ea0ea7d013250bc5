"""What scripts take from PopART before PopART itself is here: option enumerations, and its log."""
