# The two commands of the README, and the checks behind .ci/run.
#   make look TEXT="…"                                        observe the small model on your text
#   make look TORCH_INDEX=https://download.pytorch.org/whl/cpu    the same with PyTorch's CPU build (for people on Linux)
TEXT ?= The bank is by the river bank
PYTHON ?= python3
TORCH_INDEX ?=
# The text as it was given: without this, make reads a dollar sign in it as a variable of its own, or a command.
override TEXT := $(value TEXT)
export TEXT PYTHON TORCH_INDEX

.PHONY: look test lint types docs clean

# TEXT travels through the environment: quotes and dollar signs in it reach no shell.
look:
	@scripts/bootstrap look
	@.venv/bin/python -m regard look -- "$$TEXT"

test:
	@scripts/bootstrap test
	@scripts/test

lint types docs:
	@scripts/bootstrap ci
	@scripts/$@

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache
