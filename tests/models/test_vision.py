"""Images: what a patch is, that a classifier finds things by their place, and that captions look where they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.models import CaptionModel, ImageEncoder, VisionClassifier, VisionConfig

SMALL: dict[str, Any] = {
    "vocab_size": 7,
    "embed_dim": 32,
    "num_heads": 2,
    "num_layers": 1,
    "ff_dim": 64,
    "dropout_p": 0.0,
    "image_size": 8,
    "patch_size": 4,
}


def test_a_patch_is_a_linear_map_of_its_own_pixels_row_by_row() -> None:
    model = ImageEncoder(VisionConfig(**SMALL, num_channels=3)).double()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    patches = model.patches(images).flatten(2).transpose(1, 2)
    matrix = model.patches.weight.flatten(1)
    for number, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        pixels = images[:, :, row : row + 4, column : column + 4].flatten(1)
        torch.testing.assert_close(patches[:, number], pixels @ matrix.T + model.patches.bias)
    states = model.encoder(patches + model.places)
    torch.testing.assert_close(model(images), states)


def spots() -> tuple[Tensor, Tensor]:
    """Noisy images with one bright spot, and the quarter it is in."""
    images, quarter = torch.randn(32, 1, 8, 8) * 0.3, torch.randint(4, (32,))
    inside = torch.randint(1, 3, (2, 32))
    images[torch.arange(32), 0, quarter // 2 * 4 + inside[0], quarter % 2 * 4 + inside[1]] = 4.0
    return images, quarter


def learn(model: nn.Module, batch: Callable[[], tuple[tuple[Tensor, ...], Tensor]], steps: int) -> float:
    """The share of right answers on a batch of its own, after some steps."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        inputs, labels = batch()
        loss = cross_entropy(model(*inputs).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    inputs, labels = batch()
    return float((model.eval()(*inputs).argmax(dim=-1) == labels).float().mean())


@pytest.mark.usefixtures("unchecked")
def test_a_classifier_learns_where_a_spot_is() -> None:
    def batch() -> tuple[tuple[Tensor, ...], Tensor]:
        images, quarter = spots()
        return (images,), quarter

    assert learn(VisionClassifier(VisionConfig(**SMALL, num_classes=4)), batch, 100) > 0.9


@pytest.mark.usefixtures("unchecked")
def test_a_caption_model_learns_to_say_where_a_spot_is() -> None:
    def batch() -> tuple[tuple[Tensor, ...], Tensor]:
        images, quarter = spots()
        words = torch.stack([3 + quarter // 2, 5 + quarter % 2], dim=1)  # "upper" or "lower", then "left" or "right"
        return (images, torch.cat([torch.ones(32, 1, dtype=torch.long), words[:, :1]], dim=1)), words

    assert learn(CaptionModel(VisionConfig(**SMALL)), batch, 150) > 0.9
