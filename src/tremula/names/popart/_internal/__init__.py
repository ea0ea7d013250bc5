"""popart._internal: views of programs, for scripts that look into them."""
