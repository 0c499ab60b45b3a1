"""An encoder as an ONNX model: what every exporter that writes one keeps to, and what runs it.

An exporter (`impls/onnx_*`) writes a *staged* model (`contract.py`). `binding.py` finds the specification's parameters
in it by value, so that others can be put in. `store.py` keeps the model for the next run. `cut.py` cuts it down to the
model that is deployed. `runtimes.py` runs it, and `adapter.py` makes an adapter of all of these.
"""
