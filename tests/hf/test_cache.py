import json
import threading

import pytest

from regard.errors import ConfigError
from regard.hf import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(folder):
    (folder / "weights").write_bytes(b"1234")
    (folder / "config").write_text("{}")


def test_a_folder_is_built_once():
    built = []
    for _ in range(2):
        place = cache.made_once("model", lambda folder: (built.append(1), build(folder)))
    assert len(built) == 1
    assert (place / "weights").read_bytes() == b"1234"


@pytest.mark.parametrize("damage", ["weights", "regard.json", "config"])
def test_a_damaged_folder_is_built_anew(damage):
    place = cache.made_once("model", build)
    (place / damage).write_bytes(b"12")
    assert (cache.made_once("model", build) / "weights").read_bytes() == b"1234"
    assert cache.is_whole(place)


def test_a_lost_file_is_noticed():
    place = cache.made_once("model", build)
    (place / "weights").unlink()
    assert not cache.is_whole(place)
    assert (cache.made_once("model", build) / "weights").exists()


def test_a_failed_build_leaves_nothing(own_cache):
    def fail(folder):
        (folder / "half").write_text("half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        cache.made_once("model", fail)
    assert list(own_cache.iterdir()) == []


def test_two_at_once_agree(own_cache):
    both_building = threading.Barrier(2, timeout=10)

    def slow(folder):
        both_building.wait()
        build(folder)

    places = []
    threads = [threading.Thread(target=lambda: places.append(cache.made_once("model", slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert places == [own_cache / "model"] * 2
    assert [path.name for path in own_cache.iterdir()] == ["model"]
    assert cache.is_whole(places[0])


def test_an_empty_seal_is_not_whole(tmp_path):
    (tmp_path / "regard.json").write_text(json.dumps({}))
    assert not cache.is_whole(tmp_path)
    assert not cache.is_whole(tmp_path / "none")


def test_the_platform_has_a_place(monkeypatch, tmp_path):
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.sys, "platform", "linux")
    assert cache.cache_folder() == tmp_path / "regard"


def test_a_cache_that_cannot_be_written_to_says_where_else(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigError, match=r"file/cache, which cannot be written to: not a dir.*\n.*set REGARD_CACHE"):
        cache.made_once("model", build)


def test_a_disk_that_runs_full_says_so_and_leaves_nothing(own_cache):
    def full(folder):
        (folder / "half").write_text("")
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match="cannot be written to: no space left on device"):
        cache.made_once("model", full)
    assert list(own_cache.iterdir()) == []


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setattr(cache.Path, "home", nobody)
    with pytest.raises(ConfigError, match=r"there is none\.\n  hint: set REGARD_CACHE"):
        cache.cache_folder()
