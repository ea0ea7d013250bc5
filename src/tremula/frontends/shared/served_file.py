"""The name of the file in a folder of `export_for_ipu_serving`, for those who write and read it."""

FILE_NAME = "model.served"
