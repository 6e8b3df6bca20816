"""The simulated "mps" device: a C++ core that PyTorch dispatches to (`native/`), and the Python around it."""
