"""Whisper writes from sound, with a cache that stays on the device."""
