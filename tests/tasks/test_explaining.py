"""What a class depends on: the word that decides is found, and taking it away is what the measures say it is."""

from __future__ import annotations

import pytest
import torch

from regard.errors import ConfigError, UnsupportedError
from regard.tasks import explain, predict, train
from tests.tasks import made

pytestmark = pytest.mark.usefixtures("unchecked")
NAMES = {"attention", "value norms", "rollout", "relevance", "gradient x attention", "gradient x input"}
CONTROLS = ("random", "uniform", "leave-one-out")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Tells good from bad by one word."""
    folder = tmp_path_factory.mktemp("explain")
    options = {"steps": 80, "learning_rate": 5e-3, "warmup": 10, "precision": "fp32"}
    return train("classify", made.reviews(folder / "data.tsv"), folder / "model", preset="tiny", **options).model


@pytest.mark.parametrize(
    ("text", "word"), [("the film was lovely of a scene", "lovely"), ("这 电影 无聊 of a scene", "无")]
)
def test_the_word_that_decides_is_found(model, text, word):
    said, found = explain(model, text)
    assert said == predict(model, [text])[0]
    assert found.prediction == f"probability of {said.label}"
    assert found.value == pytest.approx(said.probability, abs=1e-5)
    assert found.removal == "a word that is taken away becomes <unk>"
    assert set(found.scores) == NAMES
    assert found.controls == CONTROLS
    assert not [*found.problems()]
    named = {"无", "聊"} if word == "无" else {word}
    assert found.strongest("relevance", 1)[0][0] in named
    measures = found.measures["relevance"]
    assert measures["comprehensiveness"] > found.measures["random"]["comprehensiveness"]
    assert measures["deletion_auc"] < found.measures["random"]["deletion_auc"]
    assert found.measures["uniform"]["leave_one_out"] is None
    assert found.measures["leave-one-out"]["leave_one_out"] == pytest.approx(1)


def test_what_is_lost_is_what_the_model_says_without_the_word(model):
    text = "the lovely film"
    said, found = explain(model, text)
    (word, _), (second, _) = found.strongest("relevance", 2)
    assert word == "lovely"
    (without,) = predict(model, ["the zzz film"])
    lost = said.probability - without.probabilities[said.label]
    # one of three words is the top of every share but the half, where it is two of them
    (two,) = predict(model, [" ".join("zzz" if part in (word, second) else part for part in text.split())])
    expected = (4 * lost + said.probability - two.probabilities[said.label]) / 5
    assert found.measures["relevance"]["comprehensiveness"] == pytest.approx(expected, abs=1e-4)


def test_a_model_is_left_as_it_was(model):
    before = {name: weight.clone() for name, weight in model.model.state_dict().items()}
    hooks = len(model.model.get_input_embeddings()._forward_hooks)
    explain(model, ("the film", "was lovely"))
    assert all(weight.grad is None for weight in model.model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.model.state_dict().items())
    assert len(model.model.get_input_embeddings()._forward_hooks) == hooks


def test_what_cannot_be_explained_is_refused(model, tmp_path):
    with pytest.raises(ConfigError, match="the text must have words, but has none"):
        explain(model, " ")
    with pytest.raises(ConfigError, match="there is no option `num_beams` of classify"):
        explain(model, "a film", num_beams=2)
    options = {"steps": 2, "precision": "fp32"}
    data = made.reviews(tmp_path / "data.tsv", 40)
    twin = train("classify", data, tmp_path / "twin", preset="tiny", architecture="cnn", **options).model
    with pytest.raises(ConfigError, match=r"explain\(\): a convolutional network has no weights to look at"):
        explain(twin, "a film")
    rhymes = train(
        "generate", made.rhymes(tmp_path / "rhymes.txt", 60), tmp_path / "lm", preset="tiny", **options
    ).model
    with pytest.raises(UnsupportedError, match="generate explains nothing; classify does"):
        explain(rhymes, "aaa")
