"""The analyser page, served on this computer or exported as one file."""
