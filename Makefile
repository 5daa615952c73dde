# One word per chore. Everything happens in .venv, which is made when it is missing.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: venv demo demo-judged test long wheel drill sabotage check bench

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,embedded]'
	@touch $@

# The whole job on real parts; KEEP=1 leaves it running.
demo: $(STAMP)
	$(BIN)/webhooks demo $(if $(KEEP),--keep)

# The demo run to its end and judged, with Ctrl-C at last, which must leave nothing behind.
demo-judged: $(STAMP)
	$(BIN)/python -m pytest tests/demo.py

# Four processes: the tests wait for servers about as much as they compute. What was compiled once is kept.
test: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP)
	$(BIN)/python -m pytest -p tests.sparing -p tests.measuring --numprocesses 4 --dist worksteal $(TESTS)

# What takes a minute and more: the same, at full scale.
long: $(STAMP)
	$(BIN)/python -m pytest -m long --numprocesses 2 --dist worksteal

# The wheel, built and installed where nothing else is, on the oldest and the newest Python: minutes, most of them pip's.
wheel: $(STAMP)
	$(BIN)/python -m pytest tests/installed.py

# Everything that can break is broken while a few thousand events go through; the exit status judges what came of it.
MINUTES ?= 5
drill: $(STAMP)
	$(BIN)/python -m tests.faults.drill --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(POOLER),--pooler)

# The drill can fail: one promise after the other is broken on purpose, and each time it must find out.
sabotage: $(STAMP)
	$(BIN)/python -m tests.faults.proof $(if $(ONLY),--only $(ONLY))

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Speed, as ratios taken in one run; needs nginx. ONLY="fairness held" runs some arms, QUICK=1 one round instead of three.
# What was compiled once is kept, as an installed wheel's modules are.
bench: export PYTHONDONTWRITEBYTECODE =
bench: $(STAMP)
	$(BIN)/python -W ignore -m benchmarks $(ONLY) $(if $(QUICK),--quick)
