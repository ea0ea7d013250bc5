"""The core suite: building, compiling and running tile programs."""
