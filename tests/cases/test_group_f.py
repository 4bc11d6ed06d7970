"""Handed cases of group F: files as they are found in the wild, rebuilt with sentences of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import ConfigError, FormatError
from regard.text import (
    Labelled,
    ReadOptions,
    TextPair,
    read_labelled,
    read_pairs,
    read_texts,
    split,
    tokenize,
    train_tokenizer,
)
from tests.text.files import write


def test_f01_polarity_files_with_the_label_in_their_name(tmp_path: Path) -> None:
    good = [b"a warm film", b"bright \x97 and funny", b"caf\xe9 scenes to love", b"muy bueno", b"she shines", b"see it"]
    bad = [b"a cold film", b"dull", b"nobody laughs", b"muy malo", b"he sleeps", b"skip it"]
    paths = [
        write(tmp_path / "pos.txt", b"".join(line + b" \n" for line in good)),
        write(tmp_path / "neg.txt", b" \n".join(bad)),
    ]
    with pytest.raises(FormatError, match=r"pos\.txt, line 2: must be UTF-8, but byte 20 is 0x97\.\n") as raised:
        read_labelled(paths)
    assert "cp1252  would read: bright — and funny" in str(raised.value)
    for given in (paths, tmp_path):
        found = read_labelled(given, options=ReadOptions(encoding="cp1252"))
        assert len(found) == 12
        assert {row.label for row in found} == {"pos", "neg"}
        assert Labelled("bright — and funny", "pos") in found.items
        assert Labelled("café scenes to love", "pos") in found.items
        assert Labelled("skip it", "neg") in found.items
        assert any(note.startswith("the label is the name of the file: ") for note in found.notes)
    ends = [write(tmp_path / "other" / f"reviews.{end}", "yes\nno\n") for end in ("pos", "neg")]
    assert [row.label for row in read_labelled(ends)] == ["pos", "pos", "neg", "neg"]


def test_f03_label_first_two_texts_doubled_quotes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dev.csv",
        "label,sentence1,sentence2\n"
        'equivalent,"""Yes"", he said.",He agreed.\n'
        'not_equivalent,"One, two, three","Four, five"\n'
        "equivalent,It rains.,Rain falls.\n",
    )
    found = read_labelled(path)
    assert list(found) == [
        Labelled('"Yes", he said.', "equivalent", "He agreed."),
        Labelled("One, two, three", "not_equivalent", "Four, five"),
        Labelled("It rains.", "equivalent", "Rain falls."),
    ]


def test_f04_dialogs_are_written_by_a_template_that_is_said(tmp_path: Path) -> None:
    dialogs = [
        [("user", "Hello"), ("assistant", "Hi!")],
        [("system", "Be brief."), ("user", "你好"), ("assistant", "您好！")],
        [("user", "Hm"), ("assistant", " ")],
    ]
    rows = [{"messages": [{"role": role, "content": content} for role, content in turns]} for turns in dialogs]
    path = write(tmp_path / "chat.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = read_texts(path)
    assert list(found) == ["user: Hello\nassistant: Hi!\n", "system: Be brief.\nuser: 你好\nassistant: 您好！\n"]
    assert "a dialog is written as '{role}: {content}\\n' for each message" in found.notes
    assert [place.line for place in found.skipped["empty messages[].content"]] == [3]
    assert read_texts(path, turn="<{role}>{content}")[0] == "<user>Hello<assistant>Hi!"
    shared = [{"conversations": [{"from": "human", "value": "{role}?"}, {"from": "gpt", "value": "{content}"}]}]
    path = write(tmp_path / "shared.json", json.dumps(shared))
    assert list(read_texts(path)) == ["human: {role}?\ngpt: {content}\n"]
    with pytest.raises(ConfigError, match=r"`turn` must be a text with \{content\} in it, but is 'x'\."):
        read_texts(path, turn="x")


def test_f10_columns_apart_by_several_characters(tmp_path: Path) -> None:
    lines = [
        "1_!_101_!_story_!_雨夜的桥_!_雨,桥",
        "2_!_102_!_sport_!_球队赢了_!_",
        "3_!_101_!_story_!_A bridge, at night_!_",
        "4_!_103_!_money_!_价格下跌_!_价格",
        "5_!_102_!_sport_!_新的纪录_!_纪录",
    ]
    path = write(tmp_path / "toutiao.txt", "\n".join(lines))
    options = ReadOptions(delimiter="_!_", columns={"text": "4", "label": "3"})
    found = read_labelled(path, options=options)
    assert [(row.text, row.label) for row in found] == [
        ("雨夜的桥", "story"),
        ("球队赢了", "sport"),
        ("A bridge, at night", "story"),
        ("价格下跌", "money"),
        ("新的纪录", "sport"),
    ]
    assert "column 1, column 2, column 5 are not used" in found.notes
    with pytest.raises(
        FormatError, match=r"but has these on line 1: 1 '1', 2 '101', 3 'story', 4 '雨夜的桥', 5 '雨,桥'"
    ):
        read_labelled(path, options=ReadOptions(delimiter="_!_"))


def test_f11_pairs_with_a_licence_and_narrow_spaces(tmp_path: Path) -> None:
    narrow = "\u202f"
    texts = [("Go.", f"Va{narrow}!"), ("Go.", "Bouge."), ("Wait!", f"Attends{narrow}!"), ("Hi.", "Salut.")]
    texts += [("Who?", f"Qui{narrow}?"), ("Rain.", f"{narrow}Pluie.{narrow}")]
    path = write(tmp_path / "fra.txt", "".join(f"{a}\t{b}\tCC-BY by someone\n" for a, b in texts))
    assert list(read_pairs(path)) == [TextPair(a, b) for a, b in texts]


def test_f13_measurements_are_no_classes(tmp_path: Path) -> None:
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    rows = [
        f"{i}\tnews\tf\t2012\t000{i}\ta\tb\tText {i}.\tOther {i}.\t{s}\n" for i, s in enumerate(("5.000", "2.4", "0"))
    ]
    path = write(tmp_path / "dev.tsv", header + "".join(rows))
    with pytest.raises(FormatError, match=r"dev\.tsv, line 3: `label` must be a class, but is a measurement: 2\.4\."):
        read_labelled(path)
    found = read_labelled(path, scores=True)
    assert [(row.text, row.pair, row.label) for row in found] == [
        ("Text 0.", "Other 0.", "5.000"), ("Text 1.", "Other 1.", "2.4"), ("Text 2.", "Other 2.", "0"),
    ]  # fmt: skip
    whole = write(tmp_path / "whole.tsv", "a\t1.0\nb\t0.0\nc\t1.0\n")
    assert [row.label for row in read_labelled(whole)] == ["1.0", "0.0", "1.0"]


TAGGED = "-DOCSTART- -X- O O\n\nAnna NNP B-PER\nlives VBZ O\nin IN O\nBern NNP B-LOC\n. . O\n\nShe PRP O\nsings VBZ O\n"


def test_f14_tokens_with_tags_are_sentences(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.txt", TAGGED)
    found = read_texts(path)
    assert list(found) == ["Anna lives in Bern .", "She sings"]
    assert [place.line for place in found.places] == [3, 9]
    assert any("CoNLL" in note for note in found.notes)
    with pytest.raises(
        FormatError, match=r"must be a file of texts with labels, but holds one token with its tag per line"
    ):
        read_labelled(path)
    plain = write(tmp_path / "plain.txt", "Anna B-PER\nsingt O\n\nSie O\nlacht O")
    assert list(read_texts(plain)) == ["Anna singt", "Sie lacht"]
    counted = write(
        tmp_path / "counted.tsv", "# source\n1\tAnna\tB-PER\tO\n2\tsingt\tO\tO\n\n1\tSie\tO\tO\n2\tlacht\tO\tO\n"
    )
    assert list(read_texts(counted)) == ["Anna singt", "Sie lacht"]


def test_f16_numbered_choices_are_refused_with_the_fields_that_are_there(tmp_path: Path) -> None:
    row = {"sent1": "She opens the door.", "sent2": "She", "label": 2} | {f"ending{i}": f"end {i}" for i in range(4)}
    path = write(tmp_path / "sample.json", "".join(json.dumps(row) + "\n" for _ in range(2)))
    with pytest.raises(FormatError) as raised:
        read_labelled(path)
    assert str(raised.value) == (
        f"read_labelled(): {path} must be a file with a column for `text`, but has these fields: "
        "sent1, sent2, label, ending0, ending1, ending2, ending3.\n"
        "  hint: ReadOptions(columns={…}) says which column (its name, or its number from 1) is what."
    )


def test_f17_fasttext_labels(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train.txt",
        "__label__pos a fine day\n__label__neg , rain again\n"
        "__label__a __label__b two at once\n__label__好 天气很好，出门\n",
    )
    found = read_labelled(path)
    assert list(found) == [
        Labelled("a fine day", "pos"),
        Labelled("rain again", "neg"),
        Labelled("天气很好，出门", "好"),
    ]
    assert [place.line for place in found.skipped["several labels (one is supported)"]] == [3]
    behind = write(tmp_path / "behind.txt", "rain __label__neg\nno label here\nsun __label__pos\n")
    found = read_labelled(behind, options=ReadOptions(format="fasttext"))
    assert list(found) == [Labelled("rain", "neg"), Labelled("sun", "pos")]
    assert [place.line for place in found.skipped["no label"]] == [2]


WIKI = (
    " \n = Heading = \n \n The <unk> bank @-@ note </s> of <pad> the <s> river . \n"
    " = = Part = = \n \n <unk> <unk> \n 银行 \n"
)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
def test_f18_marks_in_a_text_are_text(tmp_path: Path, kind: str) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    found = read_texts(write(tmp_path / "wiki.txt", WIKI), lines=True)
    assert len(found) == 5
    tokenizer = train_tokenizer(found, kind=kind, vocab_size=400)
    text = found[1]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert not {0, 1, 2, 3} & set(ids)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert loaded.encode(text, add_special_tokens=False).ids == ids
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, split_special_tokens=True, **names)
    wrapped.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    for each in (wrapped, again):
        assert each(text, add_special_tokens=False)["input_ids"] == ids
        assert each(text)["input_ids"] == [1, *ids, 2]
        assert each.decode(each(text)["input_ids"], skip_special_tokens=True) == text
        assert [token.text for token in tokenize(each, text).sequence.tokens if token.special] == ["<s>", "</s>"]


def test_f20_one_pair_without_a_line_end(tmp_path: Path) -> None:
    path = write(tmp_path / "eng-fra.txt", "I walk.\tJe marche.")
    found = read_pairs(path)
    assert list(found) == [TextPair("I walk.", "Je marche.")]
    assert found.report().startswith("1 pair read from eng-fra.txt\n")
    with pytest.raises(ConfigError, match=r"split\(\): `examples` must be at least 2 to be split, but is 1\."):
        split(found, share=0.1)
