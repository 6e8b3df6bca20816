"""The simulated "mps" device: a C++ core that PyTorch dispatches to (`native/`), and the Python around it.

Where it is not as a build with MPS:

- An LSTM runs, and is traced, as plain operators. A build with MPS has one operator for it, `_lstm_mps`, whose
  backward takes a workspace of Apple's graph compiler; no CPU kernel can stand in for that pair.
- `cpp_wrapper` and AOTInductor are refused: the C++ that they write needs a libtorch with MPS.
- There are no sparse and no quantized tensors, and no pinned memory.
- Numbers are the CPU kernels', and each operation is complete when its call returns.
- "mps:1" is taken for the one device there is.
"""
