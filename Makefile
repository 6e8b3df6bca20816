# Everything is set up by the first `make demo` or `make test` on a machine with Python 3.10+, make and g++ (Linux) only.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
.PHONY: demo test lint typecheck clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[test,demo,lint]"
	touch $(READY)

demo: $(READY)
	$(BIN)/python -m inductor_mps_attention demo

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy reads the package as users get it, with codegen/ in its installed place.
typecheck: $(READY)
	rm -rf build/typecheck
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/typecheck .
	cd build/typecheck && ../../$(BIN)/mypy --config-file ../../pyproject.toml

clean:
	rm -rf $(VENV) build dist *.egg-info
