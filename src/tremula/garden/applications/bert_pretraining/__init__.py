"""BERT's pre-training over chips and replicas."""
