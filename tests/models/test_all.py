"""What holds for every model of the package."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from torch import nn

from regard.errors import ConfigError, DTypeError, ShapeError
from regard.models import RecurrentEncoderDecoderConfig
from tests.models.tiny import CLASSIFIERS, LMS, all_models, convolutional_lm, recurrent_lm, text_cnn, texts, translator

NAMES = sorted(all_models())


@pytest.mark.parametrize("name", NAMES)
def test_copies_compute_the_same(name: str) -> None:
    model, inputs = all_models()[name]
    expected = model(*inputs)
    fresh = type(model)(model.config).eval()
    assert not torch.equal(fresh(*inputs), expected)
    fresh.load_state_dict(model.state_dict())
    for same in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(same(*inputs), expected)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_drawn_explicitly_and_reproducibly(name: str) -> None:
    model, _ = all_models()[name]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    torch.manual_seed(5)
    model.reset_parameters()
    drawn = copy.deepcopy(model.state_dict())
    assert all(torch.isfinite(value).all() for value in drawn.values())
    assert any(not torch.equal(drawn[key], value) for key, value in before.items())
    torch.manual_seed(5)
    model.reset_parameters()
    assert all(torch.equal(drawn[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    model, inputs = all_models()[name]
    model.train()(*inputs).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_logits_stay_near(name: str) -> None:
    model, inputs = all_models()[name]
    expected = model(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(*inputs)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("unchecked")
def test_wrong_tokens_are_named(name: str) -> None:
    model, inputs = all_models()[name]
    wrong = inputs[0].clone()
    wrong[1, 2] = 99
    with pytest.raises(ConfigError, match=r"must be ids from 0 to \d+, but is 99 at row 1, position 2"):
        model(wrong, *inputs[1:])
    wrong[1, 2] = -1
    with pytest.raises(ConfigError, match=r"but is -1 at row 1, position 2"):
        model(wrong, *inputs[1:])
    with pytest.raises(DTypeError, match=r"must be token ids \(int64 or int32\), but is torch.float32"):
        model(inputs[0].float(), *inputs[1:])
    with pytest.raises(ShapeError, match=r"\[batch, length\].*\n.*hint: a single text is \w+\[None\]"):
        model(inputs[0][0], *inputs[1:])
    keep = "source_keep" if len(inputs) == 2 else "keep"
    with pytest.raises(ShapeError, match=rf"`{keep}` must be of shape"):
        model(*inputs, **{keep: torch.ones(3, 2).bool()})
    with pytest.raises(DTypeError, match=rf"`{keep}` must be bool"):
        model(*inputs, **{keep: torch.ones(inputs[0].shape)})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("unchecked")
def test_configs_are_frozen_and_name_every_problem(name: str) -> None:
    config = all_models()[name][0].config
    with pytest.raises(FrozenInstanceError):
        config.vocab_size = 3
    with pytest.raises(
        ConfigError, match=r"(?s)2 problems:.*`embed_dim`.*at least 1, but is 0.*`dropout_p`.*but is 1.5"
    ):
        replace(config, embed_dim=0, dropout_p=1.5)
    with pytest.raises(ConfigError, match=r"`pad_id` must be an id of the vocabulary \(0 to 10\), but is -1"):
        replace(config, pad_id=-1)
    if any(field.name == "eos_id" for field in fields(config)):
        with pytest.raises(ConfigError, match=r"`pad_id` must be another id than `eos_id`"):
            replace(config, eos_id=config.pad_id)
    if hasattr(config, "kind"):
        with pytest.raises(ConfigError, match=r'`kind` must be "lstm" or "gru", but is \'rnn\''):
            replace(config, kind="rnn")


@pytest.mark.usefixtures("unchecked")
def test_configs_of_the_encoder_decoder_and_the_text_cnn() -> None:
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`attention`.*'cosine'.*`hidden_dim` must be even.*at most"):
        RecurrentEncoderDecoderConfig(9, 9, attention="cosine", hidden_dim=7, decoder_layers=2)
    with pytest.raises(ConfigError, match="an id of the source too"):
        RecurrentEncoderDecoderConfig(9, 20, pad_id=9)
    with pytest.raises(ConfigError, match=r"`kernel_sizes`"):
        text_cnn(kernel_sizes=(3, 0))


@pytest.mark.parametrize(
    "make", [recurrent_lm, convolutional_lm, lambda **options: translator("lstm", "dot", **options)]
)
def test_tied_embeddings_are_one_parameter(make) -> None:
    free, tied = make(), make(tie_embeddings=True)
    embedding = tied.target_embedding if hasattr(tied, "target_embedding") else tied.embedding
    assert tied.output.weight is embedding.weight
    assert copy.deepcopy(tied).output.weight is not embedding.weight
    more = sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in tied.parameters())
    assert more == embedding.weight.numel()


@pytest.mark.parametrize("name", sorted(LMS | CLASSIFIERS))
def test_padding_of_any_content_and_length_changes_nothing(name: str) -> None:
    model, tokens = (LMS | CLASSIFIERS)[name](), texts(2, 5)
    expected = model(tokens)
    for front, back in ((0, 1), (3, 0), (2, 9)):
        padded = torch.nn.functional.pad(tokens, (front, back))
        found = model(padded)
        torch.testing.assert_close(found[:, front : front + 5] if name in LMS else found, expected)
        keep = padded != 0
        content = torch.where(keep, padded, 7)
        same = model(content, keep=keep)
        torch.testing.assert_close(same[:, front : front + 5] if name in LMS else same, expected)
    unlike = model(torch.nn.functional.pad(tokens, (3, 0), value=7))
    assert not torch.allclose(unlike[:, 3:] if name in LMS else unlike, expected)


@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
def test_a_text_without_tokens_is_read_like_zeros(name: str) -> None:
    model = CLASSIFIERS[name]()
    with torch.no_grad():
        model.output.bias.copy_(torch.tensor([1.0, 2, 3]))
    tokens = torch.stack((texts(1, 4)[0], torch.zeros(4, dtype=torch.int64)))
    logits = model(tokens)
    assert torch.equal(logits[1], torch.tensor([1.0, 2, 3]))
    assert not torch.equal(logits[0], logits[1])
    assert torch.equal(model(tokens[:, :0]), torch.tensor([[1.0, 2, 3]]).expand(2, 3))
    model(tokens).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("name", ["lstm_none", "gru_additive", "lstm_dot", "lstm", "convolutional", "attention", "cnn"])
def test_double_backward(name: str) -> None:
    model, inputs = all_models()[name]
    embeddings = [part.weight for part in model.modules() if isinstance(part, nn.Embedding)][:1]
    (first,) = torch.autograd.grad(model(*inputs).square().sum(), embeddings, create_graph=True)
    first.square().sum().backward()
    assert torch.isfinite(embeddings[0].grad).all()
    assert embeddings[0].grad.any()
