"""The wire protocol between the harness and an adapter: frames and messages."""
