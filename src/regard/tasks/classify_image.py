"""Classes of images: digits, photos, what a microscope shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from regard import records
from regard.hf import RegardForImageClassification, RegardVisionConfig
from regard.tasks.classify import Class, class_of, class_report, distinct_labels, label_numbers, named_classes
from regard.tasks.image_data import PIXELS, Changes, ImageData
from regard.tasks.looking import grid_of, watched_image
from regard.tasks.pixels import ImageForm, form_of, image_settings, measured, named, picture_of, same_picture
from regard.tasks.report import Report
from regard.tasks.task import Preset, Task, check_no_options, files_of
from regard.tasks.trained import Trained
from regard.text import Examples, LabelledImage, ReadOptions, read_labelled_images, split
from regard.train.data import TrainData
from regard.train.objective import OneClass

_BATCH = 64
_TRAINING = {"batch_rows": 64, "batch_tokens": 32_768, "schedule": "cosine", "weight_decay": 0.05, "average": 0}


class ClassifyImage(Task[LabelledImage, Class]):
    """A class for an image."""

    name: ClassVar[str] = "classify-image"
    summary: ClassVar[str] = "images into classes"
    auto: ClassVar[str] = "AutoModelForImageClassification"
    takes: ClassVar[str] = "IMAGE"
    tokenizer: ClassVar[str | None] = None
    choices: ClassVar[Mapping[str, Any]] = {"flip": False, "image_size": None}
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {
                "image_size": 32, "patch_size": 4, "embed_dim": 48, "num_heads": 3, "num_layers": 2, "ff_dim": 96,
                "dropout_p": 0.0,
            },
            training={**_TRAINING, "learning_rate": 3e-3, "warmup": 50, "epochs": 10},
        ),
        "small": Preset(
            {
                "image_size": 32, "patch_size": 4, "embed_dim": 96, "num_heads": 4, "num_layers": 4, "ff_dim": 192,
                "dropout_p": 0.1,
            },
            training={**_TRAINING, "learning_rate": 2e-3, "warmup": 100, "epochs": 60},
        ),
        "base": Preset(
            {
                "image_size": 64, "patch_size": 4, "embed_dim": 192, "num_heads": 6, "num_layers": 6, "ff_dim": 768,
                "dropout_p": 0.1,
            },
            training={**_TRAINING, "learning_rate": 1e-3, "warmup": 500, "epochs": 50},
        ),
    }  # fmt: skip
    fine_tuning: ClassVar[Mapping[str, Any]] = {
        **Task.fine_tuning,
        "batch_rows": 32,
        "batch_tokens": 32_768,
        "epochs": 3,
    }

    def read(self, data: Any, options: ReadOptions) -> Examples[LabelledImage]:
        """A folder with a folder for each label, a table of paths and labels, or two IDX files.

        Raises:
            ConfigError: more than two files.
        """
        expected = "a folder, a table, or two IDX files: images and labels"
        return read_labelled_images(files_of(data, counts=(1, 2), expected=expected), options=options)

    def divide(
        self, examples: Examples[LabelledImage], *, count: int, seed: int
    ) -> tuple[Examples[LabelledImage], Examples[LabelledImage]]:
        """An image that is there twice is on one side."""
        return split(examples, count=count, seed=seed, group=same_picture)

    def texts(self, examples: Sequence[LabelledImage]) -> Iterable[str]:
        """None."""
        return ()

    def details(self, examples: Sequence[LabelledImage]) -> dict[str, Any]:
        """The labels, in the order in which the data has them, and what the images have in common."""
        return {"labels": distinct_labels([example.label for example in examples]), **measured(examples)}

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """An encoder of patches, and a linear map of the mean of their states."""
        settings = {**image_settings(preset.settings_for(tokenizer), details), **named_classes(details["labels"])}
        return RegardForImageClassification(RegardVisionConfig(**settings))

    def details_of(self, model: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
        """Size, channels, mean and spread of the images it reads."""
        return form_of(model.config, checkpoint, details)

    def data(self, trained: Trained, examples: Examples[LabelledImage], *, seed: int = 0) -> tuple[TrainData, int]:
        """Pixels, and the number of the label.

        Raises:
            ConfigError: a label is none of the model's.
            FormatError: images cannot be read; names them.
        """
        numbers = label_numbers(trained, [example.label for example in examples])
        form, places = ImageForm.of(trained.info.details), [str(place) for place in examples.places]
        patches = (grid_of(trained.model.config) or 1) ** 2
        data = ImageData(
            form.read(examples, names=places),
            [{"labels": number} for number in numbers],
            [(patches,)] * len(numbers),
            form=form,
            collate=lambda rows: {"labels": torch.tensor([row["labels"] for row in rows])},
            places=places,
            changes=Changes.usual(form.image_size, flip=trained.info.details["flip"]),
            seed=seed,
        )
        return data, 0

    def objective(self, trained: Trained, *, label_smoothing: float) -> OneClass:
        """Cross-entropy of the right class; rounds are compared by accuracy."""
        return OneClass(label_smoothing)

    @torch.no_grad()
    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Class]:
        """The class of each image.

        Args:
            trained: The model.
            inputs: Paths of images, or uint8 pixels [height, width] or [height, width, channels].
            **options: None.
        """
        check_no_options(options, of=self.name)
        form, found = ImageForm.of(trained.info.details), list[Class]()
        pictures = [picture_of(given) for given in inputs]
        for start in range(0, len(pictures), _BATCH):
            logits = trained.model(form.tensor(form.read(pictures[start : start + _BATCH]))).logits.float()
            found += [class_of(row, trained.info.labels) for row in logits.softmax(dim=-1).tolist()]
        return found

    def evaluate(self, trained: Trained, examples: Examples[LabelledImage], **options: Any) -> Report:
        """Accuracy, F1 and the table of confusions."""
        given = [named(picture, str(place)) for picture, place in zip(examples, examples.places, strict=True)]
        wanted = [example.label for example in examples]
        return class_report(trained, self.predict(trained, examples, **options), given, wanted, examples.places)

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Class, records.Recording]:
        """The class of one image, and where each of its patches looked."""
        (said,) = self.predict(trained, [given], **options)
        form = ImageForm.of(trained.info.details)
        pixels = form.tensor(form.read([picture_of(given)]))
        recording = watched_image(trained, lambda: trained.model(**{PIXELS: pixels}), trained.model.config)
        return said, recording
