"""``regard train``: a person's own data becomes a model."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def train(
    task: str,
    /,
    *,
    data: Annotated[list[str], Parameter(consume_multiple=True, negative="")],
    out: Annotated[str, Parameter(name=["--out", "-o"])],
    valid: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None,
    preset: str = "small",
    architecture: str | None = None,
    minutes: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    patience: int | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    seed: int | None = None,
    tokenizer: str = "auto",
    batch_tokens: int | None = None,
    batch_rows: int | None = None,
    accumulation: int | None = None,
    learning_rate: float | None = None,
    warmup: int | None = None,
    schedule: str | None = None,
    label_smoothing: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    average: int | None = None,
    round_steps: int | None = None,
    checkpoints: int | None = None,
    precision: str | None = None,
    columns: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    image_size: int | None = None,
    flip: Annotated[bool, Parameter(negative="")] = False,
    style: str | None = None,
) -> int:
    """Train a model on your data; it ends in the folder OUT, with a report, its curves and a card.

    Parameters
    ----------
    task
        What it is to do: translate, classify, answer, summarize, generate, classify-image or caption.
    data
        The file, or several: TSV, CSV, JSONL, plain text, gzipped or not; two for a translation in two files. For
        images: a folder with a folder for each label, a table of their paths, or two IDX files.
    out
        The folder the model goes to.
    valid
        Examples to validate on; by default a twentieth of the data is held out.
    model
        A checkpoint to go on from: a folder or a Hugging Face hub id of the right kind. Without it a new model.
    preset
        The size of a new model: tiny, small or base.
    architecture
        What a new model is: transformer, or one that the Transformer replaced, of as many weights. For translate: lstm,
        lstm-additive, lstm-dot, gru, gru-additive or gru-dot; for classify: bilstm or cnn; for generate: lstm or cnn.
    minutes
        End after so many minutes.
    epochs
        End after so many passes over the data.
    steps
        End after so many updates.
    patience
        End after so many validations without a better figure.
    resume
        Go on from the newest checkpoint in OUT, as if there had been no stop.
    seed
        Decides the first weights, the order of examples and dropout.
    tokenizer
        Of a new model: bpe, unigram, word or character; auto takes what suits the task.
    batch_tokens
        The most tokens of a batch, padding included.
    batch_rows
        The most examples of a batch.
    accumulation
        Batches whose gradients are added before the weights change.
    learning_rate
        The highest.
    warmup
        Updates over which it rises.
    schedule
        What it does after that: inverse_sqrt, cosine, linear or constant.
    label_smoothing
        Share of a target's probability given to all alike.
    weight_decay
        AdamW's, for matrices.
    clip
        The largest norm of a gradient; 0 for no limit.
    average
        How many states of the weights from the last quarter are averaged; 0 for none.
    round_steps
        Updates between two validations, each followed by a checkpoint.
    checkpoints
        How many are kept, beside the best one.
    precision
        auto, bf16 or fp32.
    columns
        Which columns are what, such as source=2,target=1 or text=review,label=stars or source=translation.en.
    encoding
        Of the file, such as gbk; UTF-8 by default.
    delimiter
        Between columns, such as _!_.
    header
        Whether the first line names the columns; found out by default.
    image_size
        Height and width of the images a new model reads, in pixels; by default their own, up to that of the preset.
    flip
        For classify-image: left and right of an image may change places while it is learned from.
    style
        For summarize: extractive chooses sentences of the text, abstractive writes new ones.
    """
    from regard.cli._training import run_train

    settings = {
        "architecture": architecture,
        "minutes": minutes,
        "epochs": epochs,
        "steps": steps,
        "patience": patience,
        "seed": seed,
        "batch_tokens": batch_tokens,
        "batch_rows": batch_rows,
        "accumulation": accumulation,
        "learning_rate": learning_rate,
        "warmup": warmup,
        "schedule": schedule,
        "label_smoothing": label_smoothing,
        "weight_decay": weight_decay,
        "clip": clip,
        "average": average,
        "round_steps": round_steps,
        "checkpoints": checkpoints,
        "precision": precision,
        "image_size": image_size,
        "flip": flip or None,
        "style": style,
    }
    reading = {"columns": columns, "encoding": encoding, "delimiter": delimiter, "header": header}
    return run_train(
        task,
        data,
        out,
        valid=valid,
        model=model,
        preset=preset,
        resume=resume,
        tokenizer=tokenizer,
        reading=reading,
        settings={name: value for name, value in settings.items() if value is not None},
    )
