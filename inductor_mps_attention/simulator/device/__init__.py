"""The simulated "mps" device: a C++ core that PyTorch dispatches to (`native/`), and the Python around it.

Where it is not as a build with MPS:

- An LSTM is one operator, `_lstm_mps`, as there; what its three workspaces hold is our own, in the same shapes. A
  real build's backward takes the layers' outputs from before the dropout between them, by its source; ours from after.
- `cpp_wrapper` and AOTInductor are refused: the C++ that they write needs a libtorch with MPS.
- There are no sparse and no quantized tensors, and no pinned memory.
- Numbers are the CPU kernels', and each operation is complete when its call returns.
- "mps:1" is taken for the one device there is.
"""
