"""Pictures and captions in one space, as CLIP has them."""
