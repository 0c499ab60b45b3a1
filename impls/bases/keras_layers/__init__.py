"""Keras' own layers, put together as its documentation does. `block` is imported once KERAS_BACKEND is chosen."""
