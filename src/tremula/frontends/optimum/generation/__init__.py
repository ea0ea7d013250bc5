"""Generation with a key/value cache of fixed size that stays on the device."""
