"""From a person's text to tokens that know which bytes they came from. Needs a tokenizer, not transformers."""

from regard.text.batching import LengthBuckets as LengthBuckets
from regard.text.generated import continuation as continuation
from regard.text.reading import read_text as read_text
from regard.text.surrogates import without_lone_surrogates as without_lone_surrogates
from regard.text.tokens import Tokenized as Tokenized
from regard.text.tokens import tokenize as tokenize
from regard.text.tokens import tokens_of as tokens_of

__all__ = [
    "LengthBuckets",
    "Tokenized",
    "continuation",
    "read_text",
    "tokenize",
    "tokens_of",
    "without_lone_surrogates",
]
