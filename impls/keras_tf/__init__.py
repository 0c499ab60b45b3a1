"""The encoder layer as Keras layers, on the TensorFlow backend."""
