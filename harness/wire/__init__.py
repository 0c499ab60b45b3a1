"""The wire between the harness and an adapter: frames and the messages in them."""
