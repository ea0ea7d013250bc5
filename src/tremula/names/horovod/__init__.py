"""The names of Horovod that programs for IPUs import: processes of `poprun` or `tremula launch`."""
