"""Text to token ids and back, for every kind of file that a tokenizer comes in."""

from edgert.tokenizer.detokenizer import Detokenizer
from edgert.tokenizer.loading import load, load_tokenizer, tokenizer_files
from edgert.tokenizer.tokenizer import SpecialTokens, Tokenizer

__all__ = ["Detokenizer", "SpecialTokens", "Tokenizer", "load", "load_tokenizer", "tokenizer_files"]
