"""The worker of `conform judge`: it answers from a file of tensors."""
