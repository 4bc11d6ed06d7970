"""What the gates of recurrent models are given when nothing is learned yet."""

from __future__ import annotations

import pytest
import torch

from regard.models import (
    RecurrentClassifier,
    RecurrentClassifierConfig,
    RecurrentEncoderDecoder,
    RecurrentEncoderDecoderConfig,
    RecurrentLM,
    RecurrentLMConfig,
)

WIDE = {"embed_dim": 256, "hidden_dim": 32}
MODELS = {
    "reads and writes": lambda tied: RecurrentEncoderDecoder(
        RecurrentEncoderDecoderConfig(500, 500, tie_embeddings=tied, **WIDE)
    ),
    "goes on": lambda tied: RecurrentLM(RecurrentLMConfig(500, tie_embeddings=tied, **WIDE)),
    "classifies": lambda tied: RecurrentClassifier(RecurrentClassifierConfig(500, 2, **WIDE)),
}


@pytest.mark.parametrize("tied", [False, True], ids=["free", "tied"])
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_inputs_begin_with_variance_one(build, tied):
    """Inputs of a few hundredths, as a table is drawn that gives the logits too, hardly move a gate.

    A tied LSTM with attention learned to translate three times as slowly with them.
    """
    torch.manual_seed(0)
    model = build(tied).eval()
    given = []
    encoder = getattr(model, "encoder", None) or model.layers
    encoder.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    ids = torch.arange(3, 303).view(2, 150)
    if isinstance(model, RecurrentEncoderDecoder):
        model.decoder.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
        model(ids, ids)
        assert len(given) == 2
    else:
        model(ids)
    for inputs in given:
        assert inputs.std().item() == pytest.approx(1, abs=0.05)
