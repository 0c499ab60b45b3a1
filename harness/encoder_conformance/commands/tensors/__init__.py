"""Questions and answers as files: for whatever can read and write tensors, and runs no adapter."""
