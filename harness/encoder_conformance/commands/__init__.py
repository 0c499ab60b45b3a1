"""The `conform` command, one module a subcommand."""
