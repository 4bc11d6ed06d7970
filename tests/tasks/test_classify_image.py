"""Images into classes: any size and channels, moved the same way when an epoch comes again, looked at by patch."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageClassification, ResNetConfig, ViTConfig

from regard.cli import app
from regard.errors import ConfigError, FormatError
from regard.hf.loading import quiet
from regard.tasks import evaluate, load, observe, predict, task_named, train
from regard.tasks.image_data import Changes, ImageData
from regard.tasks.pixels import ImageForm
from regard.text import read_labelled_images
from regard.text.images import Picture
from regard.train.metrics import classification
from regard.view import write_page
from tests.tasks import made
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

TRAINING = {"preset": "tiny", "precision": "fp32", "warmup": 5, "learning_rate": 5e-3, "batch_rows": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that tells yellow from blue, and the folder it learned from."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("images")
    watcher = Listener()
    data = made.images(folder / "data")
    outcome = train("classify-image", data, folder / "model", steps=60, round_steps=15, watcher=watcher, **TRAINING)
    return outcome, watcher, data


def weights(outcome):
    return outcome.model.model.state_dict()


def form_of(trained):
    return ImageForm.of(trained.info.details)


def test_it_learns_and_its_folder_says_all(trained):
    outcome, watcher, _ = trained
    assert watcher.rounds[-1][0]["loss"] < 0.5 * watcher.moments[0].loss
    assert outcome.report.figures["accuracy"] == 1
    assert "120 images read from" in watcher.notes[0]
    info = json.loads((outcome.folder / "task.json").read_text(encoding="utf-8"))
    assert (info["labels"], info["vocabulary_sha256"], info["max_tokens"]) == (["yellow", "蓝"], None, 0)
    details = info["details"]
    assert (details["image_size"], details["side"], details["channels"], details["flip"]) == (16, 12, 3, False)
    pixels = np.stack([image.pixels() for image in read_labelled_images(trained[2])]) / 255
    assert details["mean"] == pytest.approx(pixels.mean(axis=(0, 1, 2)), abs=0.01)
    assert details["std"] == pytest.approx(pixels.std(axis=(0, 1, 2)), abs=0.01)
    assert not (outcome.folder / "tokenizer.json").exists()
    card = (outcome.folder / "README.md").read_text(encoding="utf-8")
    assert "classes: yellow, 蓝" in card
    assert "regard predict classify-image IMAGE" in card
    assert "vocabulary" not in card
    assert "longest text" not in card


def test_loaded_it_does_the_same_alone_or_among_others(trained):
    outcome, _, data = trained
    again = load(outcome.folder, task="classify-image")
    assert again.tokenizer is None
    given = [data / "yellow" / "000.png", str(data / "蓝" / "001.png"), np.zeros((9, 7), dtype=np.uint8)]
    found = predict(again, given)
    assert found == predict(outcome.model, given)
    assert [one.label for one in found[:2]] == ["yellow", "蓝"]
    assert found[0].probability == max(found[0].probabilities.values())
    assert sum(found[0].probabilities.values()) == pytest.approx(1)
    for one, alone in zip(found, given, strict=True):
        assert predict(again, [alone])[0].probabilities == pytest.approx(one.probabilities, abs=1e-5)
    assert predict(again, []) == []


def test_a_training_in_bf16_ends_with_the_model_that_is_saved(tmp_path):
    """Neither autocast nor a device is left on the model: its report is that of whoever loads it."""
    data = made.images(tmp_path / "data", 60)
    options = {**TRAINING, "precision": "bf16", "steps": 6, "watcher": Listener()}
    outcome = train("classify-image", data, tmp_path / "model", **options)
    given = [data / "yellow" / "000.png"]
    assert predict(outcome.model, given) == predict(load(outcome.folder), given)
    assert outcome.model.model(torch.zeros(1, 3, 16, 16)).logits.dtype == torch.float32


def test_its_figures_are_those_of_the_metric(trained):
    outcome, _, data = trained
    report = evaluate(outcome.folder, data)
    images = read_labelled_images(data)
    said = [one.label for one in predict(outcome.model, images)]
    found = classification(said, [image.label for image in images], labels=["yellow", "蓝"])
    assert report.figures == found.as_dict()
    assert (report.count, report.task) == (120, "classify-image")
    worst = report.worst()[0]
    assert worst.given == worst.place.removesuffix(", line 1")
    assert worst.score == min(example.score for example in report.examples)


def test_its_attention_is_a_page_of_patches(trained, tmp_path):
    outcome, _, data = trained
    said, recording = observe(outcome.folder, data / "蓝" / "001.png")
    assert said == predict(outcome.model, [data / "蓝" / "001.png"])[0]
    assert all(entry.status == "seen" for entry in recording.coverage)
    (sequences,) = recording.sequences
    (patches,) = sequences
    assert patches.name == "image"
    assert [token.text for token in patches.tokens[3:6]] == ["0,3", "1,0", "1,1"]
    assert [call.values["rows"].shape for call in recording.calls] == [(1, 3, 16, 16)] * 2
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("flip", [False, True])
def test_resumed_in_the_middle_of_an_epoch_it_ends_as_it_would_have(tmp_path, flip):
    data = made.images(tmp_path / "data", 60)
    options = {**TRAINING, "round_steps": 5, "schedule": "inverse_sqrt", "flip": flip}
    straight = train("classify-image", data, tmp_path / "straight", steps=10, watcher=Listener(), **options)
    train("classify-image", data, tmp_path / "stopped", steps=5, watcher=Listener(), **options)
    watcher = Listener()
    resumed = train("classify-image", data, tmp_path / "stopped", steps=10, resume=True, watcher=watcher, **options)
    assert any(note.startswith("resumed after step 5 ") for note in watcher.notes)
    assert all(torch.equal(weights(resumed)[name], weight) for name, weight in weights(straight).items())
    with pytest.raises(ConfigError, match=f"resume.*flip was {flip}, and is {not flip} now"):
        train("classify-image", data, tmp_path / "stopped", steps=12, resume=True, **{**options, "flip": not flip})


def changed(pixels, *, epochs, changes, seed=0):
    form = ImageForm(pixels.shape[-1], 1, (0.0,), (1.0,))
    labels = [{"labels": 0}] * len(pixels)
    data = ImageData(
        pixels, labels, [(1,)] * len(pixels), form=form, collate=lambda rows: {}, changes=changes, seed=seed
    )
    return np.stack([[data.row(index, epoch)["pixel_values"] for index in range(len(pixels))] for epoch in epochs])


def test_images_move_after_the_first_epoch_and_the_same_way_when_it_comes_again():
    pixels = np.zeros((40, 1, 5, 5), dtype=np.uint8)
    pixels[:, 0, 2, 2] = 9
    first, second, third, again = changed(pixels, epochs=[0, 1, 2, 1], changes=Changes(shift=1))
    assert (first == pixels).all()
    assert (second == again).all()
    assert (second != third).any()
    places = {tuple(np.argwhere(image[0] == 9)[0].tolist()) for image in (*second, *third)}
    assert places == {(row, column) for row in (1, 2, 3) for column in (1, 2, 3)}
    assert (changed(pixels, epochs=[1], changes=Changes(shift=1), seed=1)[0] != second).any()


def test_edges_are_repeated_and_a_flip_exchanges_left_and_right():
    pixels = np.arange(6, dtype=np.uint8)[None, None, None].repeat(3, axis=2).repeat(60, axis=0)
    rows = {tuple(image[0, 0].tolist()) for image in changed(pixels, epochs=[1], changes=Changes(shift=1))[0]}
    assert rows == {(0, 0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 5)}
    flipped = {tuple(image[0, 0].tolist()) for image in changed(pixels, epochs=[1], changes=Changes(flip=True))[0]}
    assert flipped == {(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0)}
    assert [Changes.usual(size).shift for size in (8, 28, 32, 56, 224)] == [1, 1, 1, 2, 2]


def test_the_middle_of_an_image_is_read_in_the_size_and_channels_of_the_model():
    wide = np.zeros((2, 6), dtype=np.uint8)
    wide[:, 2:4] = 200
    form = ImageForm(2, 3, (0.0,) * 3, (1.0,) * 3)
    assert (form.read([Picture(wide)]) == 200).all()
    colour = np.zeros((4, 4, 3), dtype=np.uint8)
    colour[..., 1] = 100
    grey = ImageForm(8, 1, (0.25,), (0.5,))
    read = grey.read([Picture(colour), Picture(np.full((1, 1), 59, dtype=np.uint8))])
    assert (read == 59).all()  # 0.587 of green
    assert form.read([]).shape == (0, 3, 2, 2)
    assert torch.allclose(grey.tensor(read), torch.tensor((59 / 255 - 0.25) / 0.5))
    ramp = np.arange(16, dtype=np.uint8).reshape(4, 4)
    assert ImageForm(2, 1, (0.0,), (1.0,)).read([Picture(ramp)])[0, 0].mean() == pytest.approx(7.5, abs=0.5)


def test_idx_files_and_grey_images(tmp_path):
    draw = np.random.default_rng(0)
    classes = draw.integers(0, 2, 60).astype(np.uint8)
    pixels = (draw.integers(0, 50, (60, 28, 28)) + 150 * classes[:, None, None]).astype(np.uint8)
    files = []
    for name, array in (("images", pixels), ("labels", classes)):
        files.append(tmp_path / name)
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        files[-1].write_bytes(head + array.tobytes())
    outcome = train("classify-image", tuple(files), tmp_path / "out", steps=10, watcher=Listener(), **TRAINING)
    config = outcome.model.model.config
    assert (config.image_size, config.num_channels, config.num_labels) == (28, 1, 2)
    assert predict(outcome.model, [np.full((28, 28), 200, dtype=np.uint8)])[0].label == "1"
    assert evaluate(outcome.model, tuple(files)).worst()[0].given.startswith(f"{files[0]}, line 1, image ")
    with pytest.raises(ConfigError, match=r"`data` must be a folder, a table, or two IDX files: .*, but is 3 files"):
        evaluate(outcome.model, (*files, files[0]))


def test_an_image_that_is_there_twice_is_on_one_side():
    pixels = [np.full((4, 4), number // 2, dtype=np.uint8) for number in range(40)]
    from regard.text import Examples, LabelledImage, Place

    examples = Examples(
        tuple(LabelledImage(one, "a") for one in pixels), tuple(Place("made", 1, str(n)) for n in range(40))
    )
    learned, held_out = task_named("classify-image").divide(examples, count=8, seed=0)
    assert len(held_out) == 8
    assert not {one.source.tobytes() for one in learned} & {one.source.tobytes() for one in held_out}


def test_what_is_asked_decides_the_size(tmp_path):
    data = made.images(tmp_path / "data", 30)
    options = {**TRAINING, "steps": 1, "watcher": Listener()}
    outcome = train("classify-image", data, tmp_path / "large", image_size=24, flip=True, **options)
    assert outcome.model.model.config.image_size == form_of(outcome.model).image_size == 24
    assert outcome.model.info.details["flip"] is True
    with pytest.raises(ConfigError, match=r"`image_size` must be a multiple of patch_size \(4\), but is 25"):
        train("classify-image", data, tmp_path / "odd", image_size=25, **options)
    with pytest.raises(ConfigError, match=r"there is no setting `turn`; there are steps, .*, seed, flip, image_size"):
        train("classify-image", data, tmp_path / "odd", turn=True, **options)
    with pytest.raises(ConfigError, match="there is no setting `flip`"):
        train("classify", made.reviews(tmp_path / "data.tsv"), tmp_path / "odd", flip=True, **options)


def checkpoint(folder, config, **said):
    with quiet():
        torch.manual_seed(0)
        AutoModelForImageClassification.from_config(config).save_pretrained(folder)
    if said:
        (folder / "preprocessor_config.json").write_text(json.dumps(said))
    return str(folder)


def vit(**options):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return ViTConfig(**{**sizes, "image_size": 16, "patch_size": 4, **options})


def test_a_checkpoint_reads_images_as_it_always_has(tmp_path):
    data = made.images(tmp_path / "data", 40)
    said = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2], "size": {"height": 16, "width": 16}}
    start = checkpoint(tmp_path / "vit", vit(), **said)
    options = {"steps": 3, "precision": "fp32", "watcher": Listener()}
    outcome = train("classify-image", data, tmp_path / "out", model=start, **options)
    assert form_of(outcome.model) == ImageForm(16, 3, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    assert outcome.model.model.config.id2label == {0: "yellow", 1: "蓝"}
    again = load(outcome.folder)
    given = [data / "yellow" / "000.png"]
    assert predict(again, given) == predict(outcome.model, given)
    _, recording = observe(again, given[0])
    tokens = recording.sequences[0][0].tokens
    assert [(token.text, token.special) for token in tokens[:2]] == [("[CLS]", True), ("0,0", False)]
    assert len(tokens) == 17
    with pytest.raises(ConfigError, match="`image_size` must be 16, that of the model, or left out, but is 32"):
        train("classify-image", data, tmp_path / "other", model=start, image_size=32, **options)


def test_our_own_checkpoint_keeps_the_mean_it_was_trained_with(trained, tmp_path):
    outcome, _, _ = trained
    darker = tmp_path / "dark"
    for number in range(20):
        path = darker / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12, 12, 3), number, dtype=np.uint8)).save(path)
    options = {"steps": 1, "watcher": Listener(), "model": str(outcome.folder)}
    found = train("classify-image", darker, tmp_path / "out", **options)
    assert form_of(found.model) == form_of(outcome.model)
    assert found.model.info.labels == ("a", "b")


def test_a_model_without_attention_classifies_and_says_that_there_is_nothing_to_look_at(tmp_path):
    data = made.images(tmp_path / "data", 30)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    options = {"steps": 1, "precision": "fp32", "watcher": Listener(), "batch_rows": 30}
    start = checkpoint(tmp_path / "resnet", config, size={"shortest_edge": 32}, do_normalize=False)
    outcome = train("classify-image", data, tmp_path / "out", model=start, **options)
    assert form_of(outcome.model) == ImageForm(32, 3, (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(ConfigError, match="must have attention to be looked at, but has none"):
        observe(outcome.model, data / "yellow" / "000.png")
    for number, (said, problem) in enumerate(
        [({}, "does not say"), ({"size": {"height": 3, "width": 4}}, r"says \[3")]
    ):
        start = checkpoint(tmp_path / f"unsaid{number}", config, **said)
        with pytest.raises(ConfigError, match=f"must read square images of a size it says, but {problem}"):
            train("classify-image", data, tmp_path / "none", model=start, **options)
    (tmp_path / "resnet" / "preprocessor_config.json").write_text("{")
    with pytest.raises(FormatError, match=r"preprocessor_config\.json must be JSON, but is not"):
        train("classify-image", data, tmp_path / "none", model=str(tmp_path / "resnet"), **options)


def test_of_many_patches_the_page_has_the_largest_weights(tmp_path):
    data = made.images(tmp_path / "data", 20)
    options = {**TRAINING, "steps": 1, "image_size": 48, "watcher": Listener()}
    outcome = train("classify-image", data, tmp_path / "out", **options)
    _, recording = observe(outcome.model, data / "yellow" / "000.png")
    assert recording.sequences[0][0].tokens[-1].text == "11,11"
    assert "rows" not in recording.calls[0].values
    assert recording.calls[0].values["top_k.indices"].shape == (1, 3, 144, 16)
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


def test_patches_that_are_not_read_at_once_have_numbers(trained, tmp_path):
    outcome, _, data = trained
    folder = tmp_path / "model"
    shutil.copytree(outcome.folder, folder)
    other = load(folder)
    other.model.config.patch_size = 8  # so that the grid is not that of what is seen
    _, recording = observe(other, data / "yellow" / "000.png")
    assert recording.sequences == ()
    assert recording.notes == (
        "the patches have numbers: this model does not read all of them, row by row, after its own tokens",
    )
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


def test_what_cannot_be_read_is_named(trained, tmp_path):
    outcome, _, _ = trained
    broken = made.images(tmp_path / "broken", 30)
    for number in (3, 5, 7, 9, 11, 13, 15):
        (broken / "蓝" / f"{number:03}.png").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"(?s)of \d+ images cannot be read:.*\.png must be an image.*and \d more"):
        train("classify-image", broken, tmp_path / "out", image_size=16, **{**TRAINING, "steps": 1})
    with pytest.raises(FileNotFoundError, match=r"none\.png"):
        predict(outcome.model, [tmp_path / "none.png"])
    with pytest.raises(FormatError, match=r"`image 0` must be of at least one pixel and 1 or 3 channels, but"):
        predict(outcome.model, [np.zeros((2, 2, 4), dtype=np.uint8)])
    with pytest.raises(FormatError, match=r"but is of shape \(0, 4, 1\)"):
        predict(outcome.model, [np.zeros((0, 4), dtype=np.uint8)])
    for given, said in ((3, "a int"), (np.zeros((2, 2)), r"an array of float64 \(2, 2\)")):
        with pytest.raises(
            ConfigError, match=rf"`inputs` must be the path of an image, or uint8 pixels .*, but is {said}"
        ):
            predict(outcome.model, [given])


def test_one_class_is_refused_and_so_are_labels_the_model_lacks(trained, tmp_path):
    outcome, _, data = trained
    one = tmp_path / "one"
    shutil.copytree(data / "yellow", one / "yellow")
    with pytest.raises(ConfigError, match=r"at least two classes, but all .* examples are 'yellow'"):
        train("classify-image", one, tmp_path / "out", watcher=Listener(), **{**TRAINING, "steps": 1})
    other = tmp_path / "other"
    shutil.copytree(data / "yellow", other / "middle")
    with pytest.raises(ConfigError, match="the data must have the labels yellow, 蓝, but has middle too"):
        train("classify-image", data, tmp_path / "out", valid=other, watcher=Listener(), **{**TRAINING, "steps": 1})
    assert evaluate(outcome.model, other).figures["accuracy"] == 0


def test_the_command_line(trained, tmp_path, capsys, monkeypatch):
    outcome, _, data = trained
    monkeypatch.chdir(tmp_path)
    sizes = ["--preset", "tiny", "--steps", "2", "--flip", "--image-size", "20"]
    assert app.main(["train", "classify-image", "--data", str(data), "--out", "made", *sizes]) == 0
    assert capsys.readouterr().out.endswith(
        "use it: regard predict classify-image IMAGE --model made --attention attention.html\n"
    )
    assert json.loads((tmp_path / "made" / "task.json").read_text(encoding="utf-8"))["details"]["flip"] is True
    image, model = str(data / "蓝" / "001.png"), ["--model", str(outcome.folder)]
    assert app.main(["classify-image", image, *model, "--attention", "page.html"]) == 0
    assert capsys.readouterr().out.startswith("蓝\t")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    (tmp_path / "list.txt").write_text(f"{image}\n{image}\n", encoding="utf-8")
    assert app.main(["predict", "classify-image", "--file", "list.txt", *model, "--out", "said.jsonl"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["input"], line["label"]) for line in lines] == [(image, "蓝")] * 2
    assert app.main(["classify-image", "none.png", *model]) == 2
    assert "none.png: no such file or directory" in capsys.readouterr().err
    (tmp_path / "bad.png").write_bytes(b"x")
    assert app.main(["classify-image", "bad.png", *model]) == 2
    assert "bad.png must be an image, but cannot be decoded" in capsys.readouterr().err
