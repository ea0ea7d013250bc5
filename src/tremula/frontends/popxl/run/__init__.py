"""Programs at work: an interpreter, compiled programs, and sessions."""
