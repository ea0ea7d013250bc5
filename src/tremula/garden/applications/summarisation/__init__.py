"""BART learns to shorten texts, and writes on the device."""
