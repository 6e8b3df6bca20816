"""Is a mask of a graph exactly a band `lower <= j - i <= upper`? By symbolic proof; what is not proved is unknown."""

from .intervals import KeyAtom, ProvedBand
from .recognise import MaskReader, Unknown

__all__ = ["KeyAtom", "MaskReader", "ProvedBand", "Unknown"]
