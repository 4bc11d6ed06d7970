"""What the Transformer replaced, in transformers: checkpoints, Auto classes, losses, and ``generate`` with a state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    DynamicCache,
)

from regard.errors import ConfigError, UnsupportedError
from regard.hf import (
    RegardConvolutionalDecoderConfig,
    RegardConvolutionalEncoderConfig,
    RegardConvolutionalForCausalLM,
    RegardConvolutionalForSequenceClassification,
    RegardRecurrentDecoderConfig,
    RegardRecurrentEncoderConfig,
    RegardRecurrentForCausalLM,
    RegardRecurrentForConditionalGeneration,
    RegardRecurrentForSequenceClassification,
    RegardRecurrentSeq2SeqConfig,
)

pytestmark = pytest.mark.usefixtures("unchecked")

TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 12, "dropout_p": 0.0}
RECURRENT: dict[str, Any] = {**TINY, "hidden_dim": 16}
GENERATE: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False}


def words(*shape: int, seed: int = 2) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(seed))


def sharpened(model: Any) -> Any:
    """Larger weights: logits far enough apart that rounding chooses no other token."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return model.eval()


def seq2seq(kind: str = "lstm", attention: str = "additive", **options: Any) -> Any:
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    config = RegardRecurrentSeq2SeqConfig(**{**RECURRENT, **layers, "kind": kind, "attention": attention, **options})
    return RegardRecurrentForConditionalGeneration(config)


def recurrent(**options: Any) -> Any:
    return RegardRecurrentForCausalLM(RegardRecurrentDecoderConfig(**{**RECURRENT, "num_layers": 2, **options}))


def convolutional(**options: Any) -> Any:
    return RegardConvolutionalForCausalLM(RegardConvolutionalDecoderConfig(**{**TINY, "num_layers": 3, **options}))


def bilstm(**options: Any) -> Any:
    config = RegardRecurrentEncoderConfig(**{**RECURRENT, "num_labels": 3, **options})
    return RegardRecurrentForSequenceClassification(config)


def cnn(**options: Any) -> Any:
    config = RegardConvolutionalEncoderConfig(**{**TINY, "num_labels": 3, "num_filters": 5, **options})
    return RegardConvolutionalForSequenceClassification(config)


TEXT = {"input_ids": words(2, 5)}
PAIR = {**TEXT, "labels": words(2, 4)}
CLASSES = {**TEXT, "labels": torch.tensor([0, 2])}
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (lambda: seq2seq("lstm", "none"), AutoModelForSeq2SeqLM, PAIR),
    "lstm-additive": (seq2seq, AutoModelForSeq2SeqLM, PAIR),
    "gru-dot": (lambda: seq2seq("gru", "dot", tie_embeddings=True), AutoModelForSeq2SeqLM, PAIR),
    "two vocabularies": (lambda: seq2seq(source_vocab_size=50), AutoModelForSeq2SeqLM, PAIR),
    "lm": (recurrent, AutoModelForCausalLM, {**TEXT, "labels": words(2, 5)}),
    "tied lm": (lambda: recurrent(kind="gru", tie_embeddings=True), AutoModelForCausalLM, TEXT),
    "conv lm": (lambda: convolutional(gated=True), AutoModelForCausalLM, {**TEXT, "labels": words(2, 5)}),
    "tied conv lm": (lambda: convolutional(tie_embeddings=True), AutoModelForCausalLM, TEXT),
    "bilstm": (bilstm, AutoModelForSequenceClassification, CLASSES),
    "pooled": (lambda: bilstm(pooling="attention"), AutoModelForSequenceClassification, CLASSES),
    "cnn": (lambda: cnn(kernel_sizes=(2, 3)), AutoModelForSequenceClassification, CLASSES),
}
names = pytest.mark.parametrize("name", MODELS)


@names
def test_a_checkpoint_comes_back_through_its_auto_class(name: str, tmp_path: Path) -> None:
    make, auto, inputs = MODELS[name]
    model = make().eval()
    model.save_pretrained(tmp_path)
    for loader in (auto, AutoModel):
        again = loader.from_pretrained(tmp_path).eval()
        assert type(again) is type(model)
        assert again.config.settings == model.config.settings
        for key, found in again(**inputs).items():
            if isinstance(found, Tensor):
                assert torch.equal(found, model(**inputs)[key]), key
    assert again.num_parameters() == model.num_parameters()  # what is tied comes back tied


@names
def test_a_wrapper_begins_as_the_model_inside_does(name: str) -> None:
    torch.manual_seed(5)
    wrapper = MODELS[name][0]()
    torch.manual_seed(5)
    plain = wrapper.inner(wrapper.config.settings)
    for (part, ours), (_, theirs) in zip(wrapper.model.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), part


@names
def test_what_a_checkpoint_lacks_is_drawn_as_where_it_is_made(name: str, tmp_path: Path) -> None:
    wrapper = MODELS[name][0]()
    first = next(iter(wrapper.state_dict()))
    only = {first: torch.full_like(wrapper.state_dict()[first], 7.0)}
    wrapper.save_pretrained(tmp_path, state_dict=only)
    loaded = type(wrapper).from_pretrained(tmp_path)
    tied = {
        name
        for name, weight in wrapper.named_parameters(remove_duplicate=False)
        if weight is wrapper.get_parameter(first)
    }
    for part, drawn in loaded.state_dict().items():
        made = wrapper.state_dict()[part]
        if part in tied:
            assert bool((drawn == 7).all()), part
        elif "bias" in part or made.numel() < 2 or not made.std():
            assert torch.equal(drawn, made), part
        else:
            few = 3.0 if made.numel() < 64 else 1.3  # of few numbers the size is all that can be compared
            assert 1 / few**2 < float(drawn.abs().max() / made.abs().max()) < few**2, part
            assert not torch.equal(drawn, made), part


@names
def test_what_a_checkpoint_has_is_kept_beside_what_it_lacks(name: str, tmp_path: Path) -> None:
    wrapper = MODELS[name][0]()
    weights = wrapper.state_dict()
    lacking = next(part for part in weights if part.startswith("model.output"))
    wrapper.save_pretrained(tmp_path, state_dict={part: weight for part, weight in weights.items() if part != lacking})
    loaded = type(wrapper).from_pretrained(tmp_path).state_dict()
    tied = getattr(wrapper.config, "tie_embeddings", False)
    assert torch.equal(loaded[lacking], weights[lacking]) == tied
    for part, weight in weights.items():
        assert part == lacking or torch.equal(loaded[part], weight), part


@names
def test_logits_and_losses_are_those_of_the_model_inside(name: str) -> None:
    make, _, inputs = MODELS[name]
    model = make().eval()
    output, labels = model(**inputs), inputs.get("labels")
    if model.config.is_encoder_decoder:
        target = torch.cat([torch.ones(2, 1, dtype=torch.long), labels[:, :-1]], dim=1)
        torch.testing.assert_close(output.logits, model.model(inputs["input_ids"], target))
        wanted = functional.cross_entropy(output.logits.flatten(0, 1), labels.flatten())
    else:
        torch.testing.assert_close(output.logits, model.model(inputs["input_ids"]))
        logits = output.logits
        if labels is None:
            assert output.loss is None
            return
        wanted = (
            functional.cross_entropy(logits, labels)
            if labels.dim() == 1
            else functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        )
    torch.testing.assert_close(output.loss, wanted)
    counted = len(labels.flatten()) - (0 if labels.dim() == 1 or model.config.is_encoder_decoder else 2)
    torch.testing.assert_close(model(**inputs, num_items_in_batch=20).loss, wanted * counted / 20)


WRITERS = {
    "lstm": lambda: seq2seq("lstm", "none"),
    "lstm-additive": seq2seq,
    "gru-dot": lambda: seq2seq("gru", "dot"),
    "gru": lambda: seq2seq("gru", "none"),
    "lm": recurrent,
    "gru lm": lambda: recurrent(kind="gru"),
    "conv lm": convolutional,
}
writers = pytest.mark.parametrize("name", WRITERS)


@writers
@pytest.mark.parametrize("num_beams", [1, 3])
def test_generate_goes_on_from_the_state_as_from_the_whole_text(name: str, num_beams: int) -> None:
    model, source = sharpened(WRITERS[name]()), words(3, 6)
    if model.config.is_encoder_decoder:
        source[1, 4:] = 0
    else:
        source[1, :2] = 0
    wanted = {**GENERATE, "attention_mask": (source != 0).long(), "num_beams": num_beams, "eos_token_id": None}
    wanted |= {"pad_token_id": 0, "return_dict_in_generate": True, "output_scores": True}
    plain = model.generate(source, use_cache=False, **wanted)
    found = model.generate(source, **wanted)
    assert torch.equal(found.sequences, plain.sequences)
    for one, other in zip(found.scores, plain.scores, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    if name in ("lm", "lstm-additive"):
        assert len(set(map(tuple, found.sequences.tolist()))) == 3  # not all alike: it reads what it is given


@writers
def test_greedy_is_that_of_the_model_inside(name: str) -> None:
    model, source = sharpened(WRITERS[name]()), words(2, 6)
    written = model.generate(source, suppress_tokens=[0, 1], **GENERATE)
    if model.config.is_encoder_decoder:
        inside = [list(row[0].tokens) for row in model.model.decode(source, max_new_tokens=8)]
        begin = 1
    else:
        inside = model.model.generate(source, max_new_tokens=8)
        begin = 6
    ours = [[token for token in row if token not in (0, 2)] for row in written[:, begin:].tolist()]
    assert ours == inside


def test_sampling_is_that_of_transformers() -> None:
    model = sharpened(recurrent())
    prompt = words(2, 4)
    torch.manual_seed(3)
    one = model.generate(prompt, do_sample=True, top_k=5, temperature=0.7, max_new_tokens=6)
    torch.manual_seed(3)
    assert torch.equal(one, model.generate(prompt, do_sample=True, top_k=5, temperature=0.7, max_new_tokens=6))
    assert not torch.equal(one, model.generate(prompt, do_sample=True, temperature=5.0, max_new_tokens=6))


@writers
def test_a_state_goes_on_by_hand(name: str) -> None:
    model, text = WRITERS[name]().eval(), words(2, 6)
    if model.config.is_encoder_decoder:
        source = words(2, 5, seed=4)
        whole = model(source, decoder_input_ids=text).logits
        first = model(source, decoder_input_ids=text[:, :4], use_cache=True)
        read = model.get_encoder()(source)
        rest = model(encoder_outputs=read, decoder_input_ids=text[:, 4:], past_key_values=first.cache).logits
    else:
        whole = model(text).logits
        first = model(text[:, :4], use_cache=True)
        rest = model(text[:, 4:], cache=first.cache, logits_to_keep=1).logits
        whole = torch.cat([whole[:, :4], whole[:, -1:]], dim=1)
    torch.testing.assert_close(torch.cat([first.logits, rest], dim=1), whole, atol=1e-5, rtol=1e-4)
    assert first.cache.get_seq_length() == 6
    first.cache.reset()
    assert (first.cache.get_seq_length(), first.cache.state) == (0, None)


def test_generate_goes_on_from_the_state_of_a_caller() -> None:
    model, text = sharpened(recurrent()), words(1, 6)
    whole = model.generate(text, **GENERATE)
    state = model(text[:, :4], use_cache=True).cache
    assert torch.equal(model.generate(text, cache=state, **GENERATE), whole)


@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_alignments_are_the_weights_of_the_model_inside(attention: str) -> None:
    model, source, target = seq2seq("lstm", attention).eval(), words(2, 6), words(2, 3)
    source[1, 4:] = 0
    found = model.alignments(source, target)
    assert tuple(found.shape) == (2, 3, 6)
    assert (found[1, :, 4:] == 0).all()
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(2, 3))
    torch.testing.assert_close(found, model.alignments(source, target, (source != 0).long()))
    with pytest.raises(UnsupportedError, match=r'there are no weights to return: config.attention is "none"'):
        seq2seq("lstm", "none").alignments(source, target)


def test_what_is_padding_changes_nothing() -> None:
    model, source, target = seq2seq().eval(), words(2, 6), words(2, 3)
    alone = model(source[:1, :4], decoder_input_ids=target[:1]).logits
    source[0, 4:] = 0
    together = model(source, decoder_input_ids=target, decoder_attention_mask=torch.tensor([[1, 1, 0]] * 2)).logits
    torch.testing.assert_close(together[:1], alone)
    with pytest.raises(
        ConfigError, match=r"`decoder_attention_mask` must be 0 at the end only, but is 0 before a real"
    ):
        model(source, decoder_input_ids=target, decoder_attention_mask=torch.tensor([[0, 1, 1]] * 2))


def test_what_cannot_be_honoured_is_refused_by_its_name() -> None:
    model, lm, text = seq2seq(), recurrent(), words(1, 4)
    with pytest.raises(ConfigError, match=r"(?s)`cache` must be a StateCache, but is a DynamicCache.*new_cache\(\)"):
        lm(text, cache=DynamicCache())
    with pytest.raises(ConfigError, match="`cache` must be a StateCache"):
        model(text, decoder_input_ids=text, cache=DynamicCache())
    with pytest.raises(ConfigError, match=r"`cache_implementation` must be None \(a state is kept\), but is 'static'"):
        lm.generate(text, cache_implementation="static", max_new_tokens=1)
    with pytest.raises(
        ConfigError, match=r"`encoder_outputs` must be what `get_encoder\(\)` returned .*, but is a tuple"
    ):
        model(encoder_outputs=(torch.zeros(1, 4, 16),), decoder_input_ids=text)
    with pytest.raises(
        ConfigError, match=r"a source \(or encoder_outputs\) and decoder_input_ids \(or labels\) must be"
    ):
        model(decoder_input_ids=text)
    with pytest.raises(ConfigError, match="`inputs_embeds` must be one of input_ids, attention_mask, cache"):
        lm(text, inputs_embeds=torch.zeros(1, 4, 12))
    with pytest.raises(ConfigError, match="`token_type_ids` must be 0 everywhere"):
        bilstm()(text, token_type_ids=torch.ones_like(text))
    for name in ("crop", "batch_repeat_interleave", "batch_select_indices"):
        with pytest.raises(UnsupportedError, match=rf"StateCache.{name}\(\): a state can be replaced and reordered"):
            getattr(lm.new_cache(), name)(2)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        lm.generate(text, assistant_model=recurrent(), max_new_tokens=2)


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (recurrent, "this model has no attention"),
        (cnn, "this model has no attention"),
        (lambda: seq2seq("gru", "none"), "this model has no attention"),
        (seq2seq, r"`model.alignments\(input_ids, decoder_input_ids\)` returns attention"),
        (lambda: bilstm(pooling="attention"), r"`with regard.watch\(model, .* shows attention"),
    ],
)
def test_who_asks_for_attention_is_told_where_it_is(model: Any, where: str) -> None:
    with pytest.raises(ConfigError, match=rf"`output_attentions` must be False \({where}\), but is True"):
        model()(words(1, 4), output_attentions=True)


def test_the_vocabulary_keeps_its_size() -> None:
    model = recurrent()
    assert model.resize_token_embeddings() is model.get_input_embeddings() is model.model.embedding
    assert seq2seq().get_input_embeddings().num_embeddings == 40
    with pytest.raises(UnsupportedError, match="the vocabulary of this model is of 40 tokens, and stays so"):
        model.resize_token_embeddings(41)


def test_configs_speak_both_languages(tmp_path: Path) -> None:
    config = RegardRecurrentDecoderConfig(vocab_size=9, hidden_size=8, num_hidden_layers=3, eos_token_id=5)
    assert (config.hidden_dim, config.num_layers, config.eos_id) == (8, 3, 5)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).settings == config.settings
    assert RegardRecurrentSeq2SeqConfig(vocab_size=9, tie_word_embeddings=True).settings.tie_embeddings
    assert RegardRecurrentSeq2SeqConfig(vocab_size=9).settings.source_vocab_size == 9
    assert RegardConvolutionalEncoderConfig(vocab_size=9, id2label={0: "a", 1: "b", 2: "c"}).settings.num_classes == 3
    with pytest.raises(ConfigError) as caught:
        recurrent(pad_token_id=None, eos_token_id=[2, 3])
    assert str(caught.value) == (
        "RegardRecurrentDecoderConfig(): 2 problems:\n"
        "  - `pad_id` must be one id, but is None.\n"
        "  - `eos_id` must be one id (`generation_config.eos_token_id` may hold several), but is [2, 3]."
    )
    with pytest.raises(
        ConfigError, match="`hidden_dim` must be even, half for each direction of the encoder, but is 7"
    ):
        seq2seq(hidden_dim=7)
    with pytest.raises(ConfigError, match=r"`decoder_start_token_id` must be an id of the vocabulary \(0 to 39\)"):
        seq2seq(decoder_start_token_id=40)


@names
def test_gradients_reach_every_weight(name: str) -> None:
    make, _, inputs = MODELS[name]
    model = make().train()
    output = model(**{**inputs, "labels": inputs.get("labels", inputs["input_ids"])})
    output.loss.backward()
    for part, weight in model.named_parameters():
        assert weight.grad is not None, part
        assert bool(weight.grad.isfinite().all()), part
