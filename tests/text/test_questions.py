from __future__ import annotations

import json

import pytest

from regard.errors import FormatError
from regard.text import Answer, Question, ReadOptions, read_questions
from tests.text.files import write

CONTEXT = "The bank is old. Anna sits on the bank. 银行在河边。"


def rows_file(path, *rows):
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "one",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {"id": "a", "question": "Who sits?", "answers": [{"text": "Anna", "answer_start": 17}]},
                        {"id": "b", "question": "Who sings?", "answers": [], "is_impossible": True},
                        {
                            "id": "c",
                            "question": "Who stands?",
                            "is_impossible": True,
                            "answers": [],
                            "plausible_answers": [{"text": "Anna", "answer_start": 17}],
                        },
                    ],
                }
            ],
        },
        {"title": "two", "paragraphs": [{"context": "河边很美。", "qas": [{"id": "d", "question": "哪里？"}]}]},
    ],
}


@pytest.mark.parametrize("indent", [None, 1])
def test_squad(tmp_path, indent) -> None:
    found = read_questions(write(tmp_path / "dev.json", json.dumps(SQUAD, indent=indent)))
    assert list(found) == [
        Question(CONTEXT, "Who sits?", (Answer("Anna", 17),)),
        Question(CONTEXT, "Who sings?"),
        Question(CONTEXT, "Who stands?"),
        Question("河边很美。", "哪里？"),
    ]
    assert [question.id for question in found] == ["a", "b", "c", "d"]
    assert str(found.places[3]).endswith("dev.json, line 1, data[1].paragraphs[0].qas[0]")


def test_squad_with_a_broken_paragraph(tmp_path) -> None:
    broken = {"data": [{"paragraphs": [{"context": "x", "qas": None}]}, *SQUAD["data"]]}
    found = read_questions(write(tmp_path / "dev.json", json.dumps(broken)))
    assert len(found) == 4
    assert [place.within for place in found.skipped["no list of qas"]] == ["data[0].paragraphs[0]"]


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": [{"text": "Anna", "answer_start": 17}]},
        {"answers": {"text": ["Anna"], "answer_start": [17]}},
        {"answers": {"text": "Anna", "answer_start": 17}},
        {"answers": [["Anna", 17]]},
        {"answers": ["Anna"]},
        {"answers": "Anna"},
        {"answer": "Anna", "answer_start": 17},
        {"answer": " Anna", "answer_start": 16},
        {"answers": [{"text": "Anna", "answer_start": 3}]},
        {"answers": ["Anna", "Otto", "Anna"]},
    ],
)
def test_the_shapes_of_answers(tmp_path, answers) -> None:
    path = rows_file(tmp_path / "a.jsonl", {"context": CONTEXT, "question": "Who?"} | answers)
    assert read_questions(path)[0].answers == (Answer("Anna", 17),)


@pytest.mark.parametrize(
    "none", [{}, {"answers": []}, {"answers": None}, {"answer": ""}, {"answers": {"text": [], "answer_start": []}}]
)
def test_a_question_without_an_answer(tmp_path, none) -> None:
    path = rows_file(tmp_path / "a.jsonl", {"context": CONTEXT, "question": "Who?"} | none)
    assert read_questions(path)[0].answers == ()


def test_places_that_are_missing_or_wrong_are_looked_for_and_said(tmp_path) -> None:
    ask = {"context": CONTEXT, "question": "Where?"}
    found = read_questions(
        rows_file(
            tmp_path / "a.jsonl",
            ask | {"answers": ["bank"]},
            ask | {"answers": [{"text": "bank", "answer_start": 30}]},
            ask | {"answers": ["sea"]},
            ask | {"answers": ["Anna", "sea"]},
            ask | {"answers": ["an"]},
            ask | {"answers": ["河边"]},
            ask | {"answers": 7},
        )
    )
    assert [question.answers[0].start for question in found] == [4, 34, 17, CONTEXT.index("an"), CONTEXT.index("河边")]
    assert [place.line for place in found.skipped["answer that does not stand in the context"]] == [3, 7]
    assert found.notes[1:4] == (
        "1 answer did not stand where the file says, and was found nearby (first on line 2)",
        "2 answers without a place occur several times: the first is taken (first on line 1)",
        "1 answer does not stand in its context; others of the question do (first on line 4)",
    )


def test_a_word_of_its_own_comes_before_a_part_of_one(tmp_path) -> None:
    row = {"context": "Another ape sat. He ate. 他喝水，水很好", "question": "Who?"}
    path = rows_file(tmp_path / "a.jsonl", row | {"answer": "he"}, row | {"answer": "He"}, row | {"answer": "水"})
    found = read_questions(path)
    assert [question.answers[0].start for question in found] == [4, 17, row["context"].index("水")]


def test_sentences_that_support_an_answer_say_where_to_look(tmp_path) -> None:
    story = ["Mary is in the hall.", "John is in the hall.", "Mary left."]
    row = {"story": story, "question": "Where is John?", "answer": "hall"}
    found = read_questions(rows_file(tmp_path / "a.jsonl", row | {"support": [1]}, row))
    assert found[0].context == "Mary is in the hall. John is in the hall. Mary left."
    assert [question.answers for question in found] == [(Answer("hall", 36),), (Answer("hall", 15),)]
    assert "1 answer without a place occurs several times: the first is taken (first on line 2)" in found.notes


def test_white_space_around_a_context_keeps_its_places(tmp_path) -> None:
    row = {"context": f"\n {CONTEXT} ", "question": " Who? ", "answers": [{"text": "Anna", "answer_start": 19}]}
    found = read_questions(rows_file(tmp_path / "a.jsonl", row))
    assert found[0] == Question(f"\n {CONTEXT} ", "Who?", (Answer("Anna", 19),))
    assert len(found.notes) == 1


def test_tables_and_names_of_ones_own(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", f"context\tquestion\tanswer\n{CONTEXT}\tWho?\tAnna\n{CONTEXT}\tWhat?\t\n")
    assert [question.answers for question in read_questions(path)] == [(Answer("Anna", 17),), ()]
    path = rows_file(tmp_path / "a.jsonl", {"in": {"p": CONTEXT}, "q": "Who?", "a": ["Anna"]})
    options = ReadOptions(columns={"context": "in.p", "question": "q", "answers": "a"})
    assert read_questions(path, options=options)[0].answers == (Answer("Anna", 17),)
    with pytest.raises(FormatError, match="a column for `context`, but has these fields: in, q, a"):
        read_questions(path)
    with pytest.raises(FormatError, match="must be SQuAD, JSON Lines or a table of questions, but is read as 'text'"):
        read_questions(write(tmp_path / "a.txt", "text"))


def test_answers_of_an_unknown_form_are_skipped(tmp_path) -> None:
    row = {"context": CONTEXT, "question": "Who?"}
    path = rows_file(tmp_path / "a.jsonl", row, row | {"answers": [{"words": "Anna"}]}, row | {"question": None})
    found = read_questions(path, options=ReadOptions(max_bad_share=0.9))
    assert {reason: places[0].line for reason, places in found.skipped.items()} == {
        "answers are a list of an unknown form": 2,
        "empty question": 3,
    }


def test_answers_are_unescaped_as_their_context_is(tmp_path) -> None:
    row = {
        "context": "R&amp;D at AT&amp;T.",
        "question": "Where?",
        "answers": [{"text": "AT&amp;T", "answer_start": 11}],
    }
    path = write(tmp_path / "a.jsonl", json.dumps(row))
    (found,) = read_questions(path, options=ReadOptions(unescape_html=True))
    assert (found.context, found.answers) == ("R&D at AT&T.", (Answer("AT&T", 7),))
