"""ATen operations spelled out in simpler ones before they are lowered to tiles."""
