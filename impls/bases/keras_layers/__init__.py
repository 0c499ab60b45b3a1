"""What Keras brings, put together as its documentation does; imported once KERAS_BACKEND is chosen."""
