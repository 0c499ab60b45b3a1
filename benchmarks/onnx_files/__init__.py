"""Files that others' exporters and tools write, and faults planted in them: what `conform validate` says of each."""
