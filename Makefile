# Every target sets up what it needs. ARGS holds the options of its command, after -- overrides:
#   make table5 ARGS="--data cora --jobs 2 -- device=cpu"
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP = $(PY) -m pip install --disable-pip-version-check -c requirements.lock
INSTALL = $(PIP) --quiet
OSM = $(PY) -m oversmoothing
BENCH = $(PY) benchmarks/bench.py
CASES = pyg centering em slopes cures applied wsss_step
TABLES := $(filter-out cures,$(shell sed -n 's/^  \([a-z0-9_]*\):$$/\1/p' results/expected/*.yaml))
FIGURES = fig1 fig2 propositions layers hem_fig3 hem_fig4 elbo cost curves deep_gcns measures training \
  cures claims hero speed
TARGETS = help tables setup lock demo test lint docs data numbers report bench gpu tune clean \
  distclean
# Only what the command line sets counts: the environment may hold a MINUTES of another program.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN := $(strip $(filter-out ARGS DATA_ROOT MINUTES PYTHON VENV,$(GIVEN)))
$(if $(UNKNOWN),$(error $(UNKNOWN): no variable of this Makefile, so nothing was run; \
  options go into ARGS, as in `make table5 ARGS="--data cora"`))

.DEFAULT_GOAL := help
.DEFAULT:
	$(error $@: no such target, so nothing was run; see `make help` and `make tables`)
.PHONY: $(TARGETS) $(TABLES) $(FIGURES)

help:  ## list the targets
	@grep -hE '^[a-z0-9_]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo
	@echo "  A table or figure by its name, such as \`make table5\`, runs what is missing. Figures:"
	@echo "  $(FIGURES)" | fold -s -w 96 | sed '2,$$s/^/  /'
	@echo
	@echo "  ARGS=\"--data cora\"     options of the command, which \`oversmoothing table --help\` lists"
	@echo "  MINUTES=12             time on a GPU"
	@echo "  DATA_ROOT=data         folder of all data; also read from the environment"
	@echo "  PYTHON=python3.12      makes the environment VENV=.venv"

tables:  ## list the tables
	@awk '/^  [a-z0-9_]+:$$/ {name = $$1} /^    title: / && name != "cures:" \
	  {sub(":", "", name); sub("^    title: *\"", ""); sub("\"$$", ""); sub(", not comparable[^)]*", ""); \
	  printf "  %-24s %s\n", name, $$0}' \
	  results/expected/*.yaml

setup: $(VENV)/.installed  ## make .venv and install the pinned packages

$(VENV)/.installed: pyproject.toml requirements.lock
	@rm -f $@
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch, torch-geometric, transformers and what they need into $(VENV):"
	@echo "about 7 GB with torch's CUDA libraries; 6 minutes on a fast network; large files are named:"
	@{ $(PIP) -e '.[repro,dev]' 2>/dev/null && touch $@; } | awk ' \
	  /^ *Downloading .* [MG]B/ {print " ", $$2, $$3, $$4; fflush()} \
	  /^ *Using cached .* [MG]B/ {print " ", $$3, $$4, $$5, "from the cache"; fflush()} \
	  /^Installing collected/ {print "  unpacking, which takes minutes …"; fflush()} \
	  /^Successfully installed/ {print "  installed"; fflush()}'
	@test -f $@ || { $(INSTALL) -e '.[train,dev]' && \
	  for extra in text digits metis search; do \
	    $(INSTALL) -e ".[$$extra]" >/dev/null 2>&1 \
	      || echo "optional extra '$$extra' could not be installed; parts that need it name it"; \
	  done; }
	@touch $@

lock:  ## write requirements.lock anew, from a fresh environment with all extras
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/python -m pip install --quiet -e '.[all,peers,docs,dev]'
	head -2 requirements.lock > .lock/head
	.lock/bin/python -m pip freeze --exclude-editable | cat .lock/head - > requirements.lock
	rm -rf .lock

docs: setup  ## build the documentation into site/
	@$(PY) -c 'import sphinx, myst_parser, furo, sphinx_copybutton' 2>/dev/null || $(INSTALL) -e '.[docs]'
	$(PY) docs/sources.py .site/pages
	$(PY) -m sphinx -q -W --keep-going -n -c docs -d .site/doctrees .site/pages site
	$(OSM) report --runs site/runs.html
	@echo "open site/index.html"

demo: setup  ## a small Figure 1, a depth study and segmentation, on one page, in minutes
	$(OSM) figure demo $(ARGS)

test: setup  ## run all tests
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses=4 --dist worksteal $(ARGS)

lint: setup  ## format the code, check it and its types
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check .
	$(PY) -m mypy

data: setup  ## download and verify graphs
	$(OSM) data $(ARGS)

$(TABLES): setup
	$(OSM) table $@ $(ARGS)

fig1: setup  ## Figure 1: rank by γ and depth, nine panels, and the check of the claim
fig2: setup  ## Figure 2: CAMs, masks and token similarity by block of two trained runs
claims: setup  ## what the papers claim, measured, with verdicts
cures: setup  ## the study of methods: which one at which depth
$(FIGURES): setup
	$(OSM) figure $@ $(ARGS)

tune: setup  ## search the settings of Table 6 by validation accuracy
	$(OSM) tune table6 $(ARGS)

numbers: setup  ## write the measured numbers, tables and claims of results/ into the pages
	$(PY) -m oversmoothing.lab.report.numbers

report: setup  ## all results: outputs/report.html, and every run: outputs/runs.html
	$(OSM) report $(ARGS)

bench: setup  ## speed and memory, compared with plain forms and torch-geometric
	$(BENCH) graphs --depths 2 8 32 $(ARGS)
	for case in $(CASES); do $(BENCH) $$case $(ARGS) || exit 1; done
	$(BENCH) centering $(ARGS) --tokens 16384 --batch 1 --heads 1

gpu: setup  ## what needs a GPU, most valuable first, for some minutes
	$(PY) benchmarks/gpu.py --minutes $(or $(MINUTES),12) $(ARGS)

clean:  ## remove the environment and the built documentation
	rm -rf $(VENV) site .site

distclean: clean  ## remove also all outputs, trained weights included
	rm -rf outputs
