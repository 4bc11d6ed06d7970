"""Words about images, in English and Chinese: scenes that are described exactly, and the patches behind every word."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from benchmarks.scenes import CHINESE, COLOURS, places_of, save, scenes
from transformers import BertConfig, BlipConfig, BlipForConditionalGeneration, GPT2Config, ViTConfig
from transformers import VisionEncoderDecoderConfig as PairConfig
from transformers import VisionEncoderDecoderModel as Pair

from regard.cli import app
from regard.errors import ConfigError
from regard.hf.loading import quiet
from regard.hf.losses import IGNORED
from regard.tasks import evaluate, load, observe, predict, task_named, train
from regard.tasks.caption import caption_ids, word_maps
from regard.tasks.training import new_tokenizer
from regard.text import CaptionedImage, Examples, Place, read_captioned_images
from regard.train.metrics import bleu, pointing_game
from regard.view import write_page
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

TRAINING = {"preset": "tiny", "precision": "fp32", "warmup": 20, "learning_rate": 4e-3, "batch_rows": 32}
SCENE = {"size": 16, "shapes": 1, "colours": 3}
GREEDY = {"num_beams": 1}


@pytest.fixture(scope="module", params=["en", "zh"])
def trained(request, tmp_path_factory):
    """A model that says what is where, its table, and scenes it has not seen."""
    torch.set_num_threads(1)
    folder, watcher = tmp_path_factory.mktemp("captions"), Listener()
    data = save(scenes(400, language=request.param, seed=1, **SCENE), folder / "data")
    options = {**TRAINING, "steps": 160, "round_steps": 40, "watcher": watcher}
    outcome = train("caption", data, folder / "model", **options)
    return outcome, watcher, data, scenes(60, language=request.param, seed=2, **SCENE)


def test_it_learns_to_say_what_is_where(trained):
    outcome, watcher, data, unseen = trained
    assert watcher.rounds[-1][0]["loss"] < 0.3 * watcher.moments[0].loss
    assert f"400 images read from {data.name}" in watcher.notes[0]
    said = [one.text for one in predict(outcome.model, [scene.pixels for scene in unseen], **GREEDY)]
    right = [colour_of(one) == colour_of(scene.caption) for one, scene in zip(said, unseen, strict=True)]
    assert np.mean(right) > 0.9  # shapes and corners take longer
    details = outcome.model.info.details
    assert (details["image_size"], details["channels"]) == (16, 3)
    assert "regard predict caption IMAGE" in (outcome.folder / "README.md").read_text(encoding="utf-8")


def colour_of(caption):
    return next((one for one in COLOURS if one in caption or CHINESE[one] in caption), None)


def test_loaded_it_does_the_same_alone_or_among_others(trained):
    outcome, _, data, unseen = trained
    again = load(outcome.folder, task="caption")
    given = [data.parent / "00000.png", str(data.parent / "00001.png"), unseen[0].pixels[:, :, 0]]
    for options in ({}, GREEDY):
        found = predict(again, given, **options)
        assert found == predict(outcome.model, given, **options)
        assert [one.text for one in found] == [predict(again, [one], **options)[0].text for one in given]
    assert predict(again, []) == []


def test_its_figures_are_those_of_the_metrics_by_image(trained, tmp_path):
    """Two captions of one image: each is right, and the image is described once."""
    outcome, _, data, _ = trained
    lines = data.read_text(encoding="utf-8").splitlines()[:21]
    other = tmp_path / "captions.tsv"
    paths = [str(data.parent / line.split("\t")[0]) for line in lines[1:]]
    captions = [line.split("\t")[1] for line in lines[1:]]
    rows = [f"{path}\t{caption}\n{path}\tsomething else 别的" for path, caption in zip(paths, captions, strict=True)]
    other.write_text("\n".join(["image\tcaption", *rows]) + "\n", encoding="utf-8")
    report = evaluate(outcome.folder, other, **GREEDY)
    said = [one.text for one in predict(outcome.model, paths, **GREEDY)]
    wanted = [[caption, "something else 别的"] for caption in captions]
    assert report.figures["bleu"] == bleu(said, wanted).as_dict()
    exact = np.mean([one == caption for one, caption in zip(said, captions, strict=True)])
    assert report.figures["exact_match"] == pytest.approx(exact)
    assert exact > 0
    assert report.count == 20
    assert report.lines[0] == f"exact match {exact:.4f} (20 images, 40 captions)"
    assert report.examples[0].given == paths[0]
    assert report.examples[0].wanted == "\n".join(wanted[0])


def test_its_attention_is_a_page_of_words_and_patches(trained, tmp_path):
    outcome, _, data, _ = trained
    image = data.parent / "00003.png"
    said, recording = observe(outcome.folder, image, **GREEDY)
    assert said.text == predict(outcome.model, [image], **GREEDY)[0].text
    assert all(entry.status == "seen" for entry in recording.coverage)
    patches, words = recording.sequences[0]
    assert (patches.name, patches.tokens[7].text, len(patches.tokens)) == ("image", "1,3", 16)
    assert (words.name, words.text) == ("caption", said.text)
    assert (words.tokens[0].special, words.tokens[-1].text) == (True, "</s>")
    cross = [call for call in recording.calls if call.kind == "cross"]
    assert [call.name for call in cross] == [f"model.decoder.layers.{number}.cross" for number in range(2)]
    assert {(call.sequence_q, call.sequence_k, call.kv_len) for call in cross} == {("caption", "image", 16)}
    assert any("to write the next one" in note for note in recording.notes)
    (table,) = recording.tables
    maps = word_maps(outcome.model, image, **GREEDY)
    assert (table.rows, table.grid, table.columns[7]) == (tuple(one.word for one in maps), (4, 4), "1,3")
    np.testing.assert_array_equal(table.values, [one.weights.reshape(-1) for one in maps])
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


def test_it_looks_at_what_it_names(trained):
    outcome, _, _, unseen = trained
    maps, boxes = [], []
    for scene in unseen:
        found = word_maps(outcome.model, scene.pixels, caption=scene.caption)
        ((*pieces,),) = places_of(scene)
        maps.append(sum(found[piece].weights for piece in pieces))
        boxes.append(scene.named[0].box)
        assert found[pieces[0]].weights.sum() == pytest.approx(1, abs=1e-5)
    game = pointing_game(maps, boxes)
    assert game.share > 0.5 > 1.5 * game.chance


def test_the_map_of_a_word_is_the_row_that_wrote_it(trained):
    outcome, _, data, _ = trained
    image = data.parent / "00003.png"
    said, recording = observe(outcome.model, image, **GREEDY)
    cross = [call.values["rows"][0] for call in recording.calls if call.kind == "cross"]
    found = word_maps(outcome.model, image, **GREEDY)
    assert "".join(one.word for one in found) == said.text.replace(" ", "")
    for layer in (0, -1):
        for number, one in enumerate(word_maps(outcome.model, image, layer=layer, **GREEDY)):
            expected = cross[layer][:, number].mean(axis=0).reshape(4, 4)  # a word is a token here
            np.testing.assert_allclose(one.weights, expected, atol=1e-6)
    np.testing.assert_allclose(found[2].weights.reshape(-1), np.mean(cross, axis=(0, 1))[2], atol=1e-6)
    with pytest.raises(ConfigError, match=r"word_maps\(\): `layer` must be from -2 to 1, or None, but is 2"):
        word_maps(outcome.model, image, layer=2)


def test_of_many_patches_maps_are_whole(tmp_path):
    data = save(scenes(20, seed=1, **SCENE), tmp_path / "data")
    options = {**TRAINING, "steps": 1, "image_size": 48, "watcher": Listener()}
    outcome = train("caption", data, tmp_path / "out", **options)
    image = data.parent / "00000.png"
    maps = word_maps(outcome.model, image, caption="a red 圆形")
    assert [one.word for one in maps] == ["a", "red", "圆", "形"]
    assert all(one.weights.shape == (12, 12) for one in maps)
    assert [one.weights.sum() for one in maps] == pytest.approx([1] * 4, abs=1e-5)
    _, recording = observe(outcome.model, image, max_new_tokens=3, **GREEDY)
    assert recording.sequences[0][0].tokens[-1].text == "11,11"
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


def test_resumed_it_ends_as_it_would_have(tmp_path):
    data = save(scenes(50, seed=1, **SCENE), tmp_path / "data")
    options = {**TRAINING, "schedule": "inverse_sqrt", "batch_rows": 16, "round_steps": 4, "average": 0}
    straight = train("caption", data, tmp_path / "straight", steps=8, watcher=Listener(), **options)
    train("caption", data, tmp_path / "stopped", steps=4, watcher=Listener(), **options)
    resumed = train("caption", data, tmp_path / "stopped", steps=8, resume=True, watcher=Listener(), **options)
    left, right = straight.model.model.state_dict(), resumed.model.model.state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_words_that_are_unknown_are_read_and_not_learned(trained, tmp_path):
    outcome, _, data, _ = trained
    other = tmp_path / "captions.tsv"
    image = str(data.parent / "00000.png")
    long = " ".join(["red"] * 80)
    other.write_text(f"image\tcaption\n{image}\tunheard </s>\n{image}\t{long}\n", encoding="utf-8")
    examples = read_captioned_images(other)
    rows, left_out = task_named("caption").data(outcome.model, examples)
    assert (len(rows), left_out) == (1, 1)
    labels = rows.collate([rows.row(0, 0)])["labels"][0]
    tokenizer = outcome.model.tokenizer
    assert labels[-1] == tokenizer.eos_token_id
    assert (labels[:-1] == IGNORED).all()
    assert tokenizer.unk_token_id in caption_ids(outcome.model, "unheard")
    assert tokenizer.eos_token_id not in caption_ids(outcome.model, "</s>")[:-1]
    assert caption_ids(outcome.model, "\ud83d") == caption_ids(outcome.model, "\ufffd")


def test_all_captions_of_an_image_are_on_one_side():
    images = [CaptionedImage(np.full((2, 2), number // 3, dtype=np.uint8), f"{number}") for number in range(60)]
    examples = Examples(tuple(images), tuple(Place("made", number + 1) for number in range(60)))
    learned, held_out = task_named("caption").divide(examples, count=12, seed=0)
    assert len(held_out) == 12
    assert not {one.source.tobytes() for one in learned} & {one.source.tobytes() for one in held_out}


def pair(folder, decoder, data):
    """A tiny model of transformers that reads an image and writes."""
    tokenizer = new_tokenizer((one.caption for one in read_captioned_images(data)), kind="word", size=100, pairs=False)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    config = PairConfig.from_encoder_decoder_configs(ViTConfig(**sizes, image_size=16, patch_size=4), decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 1, 0, 2
    with quiet():
        Pair(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_checkpoint_that_reads_an_image_and_writes_goes_on(tmp_path, kind):
    data = save(scenes(40, seed=1, **SCENE), tmp_path / "data")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    decoder = {
        "bert": BertConfig(vocab_size=100, **sizes),
        "gpt2": GPT2Config(vocab_size=100, n_embd=16, n_layer=1, n_head=2, n_positions=64),
    }[kind]
    start = pair(tmp_path / "pair", decoder, data)
    options = {"steps": 12, "round_steps": 6, "precision": "fp32", "learning_rate": 1e-2, "warmup": 1}
    watcher = Listener()
    outcome = train("caption", data, tmp_path / "out", model=start, watcher=watcher, **options)
    assert watcher.rounds[-1][0]["loss"] < 0.8 * watcher.moments[0].loss
    again, image = load(outcome.folder), data.parent / "00000.png"
    assert predict(again, [image], max_new_tokens=5) == predict(outcome.model, [image], max_new_tokens=5)
    said, recording = observe(again, image, max_new_tokens=5, **GREEDY)
    patches, words = recording.sequences[0]
    assert [token.text for token in patches.tokens[:2]] == ["[CLS]", "0,0"]
    assert words.text.strip() == said.text
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000
    maps = word_maps(again, image, caption="a red circle")
    assert [one.word for one in maps] == ["a", "red", "circle"]
    assert all(one.weights.shape == (4, 4) and one.weights.sum() <= 1 for one in maps)


def test_another_kind_of_checkpoint_is_refused(tmp_path):
    data = save(scenes(20, seed=1, **SCENE), tmp_path / "data")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BlipConfig(
        text_config={**sizes, "vocab_size": 100, "encoder_hidden_size": 16},
        vision_config={**sizes, "image_size": 16, "patch_size": 4},
    )
    with quiet():
        BlipForConditionalGeneration(config).save_pretrained(tmp_path / "blip")
        new_tokenizer(["a red circle"], kind="word", size=100, pairs=False).save_pretrained(tmp_path / "blip")
    expected = "`model` must be one of the kinds regard_caption and vision-encoder-decoder, but is a blip"
    with pytest.raises(ConfigError, match=expected):
        train("caption", data, tmp_path / "out", model=str(tmp_path / "blip"), steps=1, watcher=Listener())


def test_several_files_are_refused_and_a_text_without_an_end_is(trained, tmp_path):
    outcome, _, data, _ = trained
    with pytest.raises(ConfigError, match="`data` must be one table, but is 2 files"):
        train("caption", (data, data), tmp_path / "out", steps=1, watcher=Listener())
    other = load(outcome.folder)
    other.tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="model must have a token that ends a text, but its tokenizer has none"):
        caption_ids(other, "a red circle")


def test_the_command_line(trained, tmp_path, capsys, monkeypatch):
    outcome, _, data, _ = trained
    monkeypatch.chdir(tmp_path)
    sizes = ["--preset", "tiny", "--steps", "1", "--image-size", "8"]
    assert app.main(["train", "caption", "--data", str(data), "--out", "made", *sizes]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("use it: regard predict caption IMAGE --model made")
    image, model = str(data.parent / "00000.png"), ["--model", str(outcome.folder)]
    assert app.main(["caption", image, *model, "--attention", "page.html"]) == 0
    said = predict(outcome.model, [image])[0].text
    assert capsys.readouterr().out.splitlines()[0] == said
    assert app.main(["predict", "caption", image, *model, "--beams", "1", "--out", "said.jsonl"]) == 0
    written = json.loads((tmp_path / "said.jsonl").read_text(encoding="utf-8"))
    assert written == {"input": image, "text": predict(outcome.model, [image], **GREEDY)[0].text}
    assert app.main(["train", "caption", "--data", str(data), "--out", "other", "--flip", *sizes]) == 2
    assert "there is no setting `flip`" in capsys.readouterr().err
