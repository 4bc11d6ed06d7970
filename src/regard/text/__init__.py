"""A person's files as examples, and texts as tokens that know which bytes they came from. Needs no transformers."""

from regard.text.batching import LengthBuckets as LengthBuckets
from regard.text.documents import Document as Document
from regard.text.documents import read_documents as read_documents
from regard.text.examples import Examples as Examples
from regard.text.examples import Place as Place
from regard.text.generated import continuation as continuation
from regard.text.images import CaptionedImage as CaptionedImage
from regard.text.images import LabelledImage as LabelledImage
from regard.text.images import read_captioned_images as read_captioned_images
from regard.text.images import read_idx as read_idx
from regard.text.images import read_labelled_images as read_labelled_images
from regard.text.joining import joined as joined
from regard.text.labelled import Labelled as Labelled
from regard.text.labelled import read_labelled as read_labelled
from regard.text.levels import Level as Level
from regard.text.levels import TextSpan as TextSpan
from regard.text.levels import find_span as find_span
from regard.text.levels import spans_of as spans_of
from regard.text.levels import token_ranges as token_ranges
from regard.text.options import ReadOptions as ReadOptions
from regard.text.pairs import TextPair as TextPair
from regard.text.pairs import read_pairs as read_pairs
from regard.text.questions import Answer as Answer
from regard.text.questions import Question as Question
from regard.text.questions import read_questions as read_questions
from regard.text.reading import read_text as read_text
from regard.text.segments import sentences as sentences
from regard.text.segments import split_words as split_words
from regard.text.splitting import Overlap as Overlap
from regard.text.splitting import linked as linked
from regard.text.splitting import overlap as overlap
from regard.text.splitting import same_input as same_input
from regard.text.splitting import split as split
from regard.text.surrogates import without_lone_surrogates as without_lone_surrogates
from regard.text.texts import read_texts as read_texts
from regard.text.tokens import Tokenized as Tokenized
from regard.text.tokens import tokenize as tokenize
from regard.text.tokens import tokens_of as tokens_of
from regard.text.vocabulary import train_tokenizer as train_tokenizer
from regard.text.vocabulary import vocabulary_hash as vocabulary_hash

__all__ = [
    "Answer",
    "CaptionedImage",
    "Document",
    "Examples",
    "Labelled",
    "LabelledImage",
    "LengthBuckets",
    "Level",
    "Overlap",
    "Place",
    "Question",
    "ReadOptions",
    "TextPair",
    "TextSpan",
    "Tokenized",
    "continuation",
    "find_span",
    "joined",
    "linked",
    "overlap",
    "read_captioned_images",
    "read_documents",
    "read_idx",
    "read_labelled",
    "read_labelled_images",
    "read_pairs",
    "read_questions",
    "read_text",
    "read_texts",
    "same_input",
    "sentences",
    "spans_of",
    "split",
    "split_words",
    "token_ranges",
    "tokenize",
    "tokens_of",
    "train_tokenizer",
    "vocabulary_hash",
    "without_lone_surrogates",
]
