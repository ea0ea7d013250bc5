"""GPT-2 over several chips learns to spell, and writes."""
