"""An encoder as an ONNX model: what every road that writes one keeps to, and what runs it.

A road (`impls/onnx_*`) exports a *staged* model (`contract.py`); `binding.py` finds the specification's parameters in
it, by value, so that others can be put in; `store.py` keeps it for the next run; `cut.py` cuts it down to what is
deployed; `runtimes.py` runs it; `adapter.py` is all of that as an adapter.
"""
