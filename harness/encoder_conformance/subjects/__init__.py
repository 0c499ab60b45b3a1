"""Opens whatever can be judged, each in a worker of its own: an implementation, a module, a file, a checkpoint."""
