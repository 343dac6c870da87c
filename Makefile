# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP = $(PY) -m pip install --disable-pip-version-check -c requirements.lock
INSTALL = $(PIP) --quiet
OSM = $(PY) -m oversmoothing
JOBS = 1
TABLES := $(filter-out cures,$(shell sed -n 's/^  \([a-z0-9_]*\):$$/\1/p' results/expected/*.yaml))
FIGURES = hero speed fig1 fig2 propositions layers hem_fig3 hem_fig4 elbo cost curves deep_gcns training

# `make table5 DATA=cora FRESH=1` becomes `oversmoothing table table5 --data cora --fresh`. The variables
# of a target are those that its command has an option for; the environment is not read, since it may
# hold COLUMNS, the terminal's width, or NAME, the host's.
SWITCHES = ALL EARLIER FRESH LATEX PDF PLAN PUBLISH RECORDED REPLACE
VALUES = COLUMNS DATA GRAPHS LAYERS METHODS NETWORKS ONLY RUN SEEDS
CELLS = DATA METHODS COLUMNS SEEDS ALL FRESH EARLIER
WRITTEN = PDF PUBLISH JOBS OVERRIDES
OF_data = DATA
OF_plan = NAME $(CELLS) OVERRIDES
OF_tune = NAME DATA METHODS COLUMNS FRESH PLAN PUBLISH JOBS OVERRIDES
OF_table = NAME $(CELLS) REPLACE PLAN LATEX $(WRITTEN)
OF_figure = NAME RUN SEEDS $(WRITTEN)
OF_fig1 = $(WRITTEN)
OF_fig2 = PDF PUBLISH
OF_claims = ONLY RECORDED PUBLISH
OF_cures = GRAPHS NETWORKS LAYERS METHODS EARLIER PLAN $(WRITTEN)
OF_bench = PUBLISH
OF_gpu = MINUTES PLAN
OF_torture = N
FREE = DATA_ROOT PYTHON VENV
of = $(if $(filter $(1),$(TABLES)),$(filter-out NAME,$(OF_table)),$(OF_$(1)))

quoted = '$(subst ','\'',$(1))'
TARGETS = help tables setup lock demo test lint docs data numbers report bench gpu torture clean \
  distclean plan tune table figure $(TABLES) fig1 fig2 claims cures
GOALS := $(or $(MAKECMDGOALS),help)
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
NO_TARGET := $(firstword $(filter-out $(TARGETS) $(VENV)/.installed,$(GOALS)))
NEAREST = $(shell $(PYTHON) -c 'import difflib as d, sys; print(*d.get_close_matches(sys.argv[1], sys.argv, 2)[1:])' \
  $(call quoted,$(NO_TARGET)) $(TARGETS))
$(if $(NO_TARGET),$(error $(NO_TARGET): no such target, so nothing was run; \
  $(if $(NEAREST),did you mean `make $(NEAREST)`?,see `make help`)))
TAKES := $(sort $(foreach goal,$(GOALS),$(call of,$(goal))))
UNKNOWN := $(strip $(filter-out $(TAKES) $(FREE),$(GIVEN)))
$(if $(UNKNOWN),$(error $(UNKNOWN): no option of `make $(GOALS)`, so nothing was run; \
  $(if $(TAKES),it takes $(TAKES),it takes only $(FREE))))
UNCLEAR := $(strip $(foreach name,$(filter $(SWITCHES),$(GIVEN)),$(if $(filter-out 1,$($(name))),$(name))))
$(if $(UNCLEAR),$(error $(UNCLEAR): expected 1, or leave it out; nothing was run))
$(if $(shell echo $(call quoted,$(N)) | tr -d 0-9),$(error N: expected a whole number, got $(N); nothing was run))

# The shell reads the words of a value, so one with a space has quotes: COLUMNS="'mean IoU' CAM".
# RUN, a path, has none.
given = $(if $(filter RUN,$(1)),$(call quoted,$(RUN)),$($(1)))
lower = $(shell echo $(1) | tr A-Z a-z)
FLAGS = $(foreach name,$(filter $(SWITCHES) $(VALUES),$(GIVEN)),$(if $($(name)),\
  --$(call lower,$(name)) $(if $(filter $(VALUES),$(name)),$(call given,$(name)))))
CHOSEN = $(if $(filter NAME,$(GIVEN)),$(NAME))
SEVERAL = $(filter-out 1,$(JOBS))
WORDS = $(strip $(if $(SEVERAL),threads=1) $(OVERRIDES))
MORE = $(FLAGS) $(if $(SEVERAL),--jobs $(JOBS)) $(if $(WORDS),-- $(WORDS))
BENCH = $(PY) benchmarks/bench.py
CASES = pyg centering em slopes cures par wsss_step
TO = $(if $(PUBLISH),--publish)

.DEFAULT_GOAL := help
.PHONY: $(TARGETS)

comma := ,
space := $(subst ,, )
help:  ## list the targets and the variables that each takes
	@grep -hE '^[a-z0-9_]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' -v of='$(foreach name,$(TARGETS),\
	  $(if $(OF_$(name)),$(name):$(subst $(space),$(comma),$(strip $(OF_$(name))))))' \
	  'BEGIN {n = split(of, all, " "); \
	    for (i = 1; i <= n; i++) {split(all[i], own, ":"); gsub(",", " ", own[2]); takes[own[1]] = own[2]}} \
	  {printf "  make %-10s %s\n", $$1, $$2} takes[$$1] {print "     " takes[$$1]}'
	@echo
	@echo "  A table is also a target: make table5 is make table NAME=table5. Variables:"
	@echo
	@echo "  NAME=table5                a table, or for make figure one of"
	@echo "                             $(wordlist 1,8,$(FIGURES))"
	@echo "                             $(wordlist 9,99,$(FIGURES))"
	@echo "  DATA='cora squirrel'       only these data sets"
	@echo "  METHODS='centered none'    only these methods, which are the rows of a table"
	@echo "  COLUMNS='L=16 L=32'        only these columns"
	@echo "  SEEDS='0 1'                only these seeds"
	@echo "  GRAPHS='Cora Actor' NETWORKS=GCN LAYERS='2 8'   only these cells of the study"
	@echo "  ONLY='hem*'                only these claims"
	@echo "  PLAN=1                     list what is missing, with its time, and run nothing"
	@echo "  ALL=1                      run also what needs data or a GPU that you may lack"
	@echo "  FRESH=1                    do not count committed results"
	@echo "  EARLIER=1                  repeat runs of earlier versions"
	@echo "  RECORDED=1                 only claims that recorded results answer"
	@echo "  RUN=outputs/…              the trained run that a figure shows"
	@echo "  JOBS=2                     run two processes side by side"
	@echo "  OVERRIDES='device=cuda'    add overrides to every run"
	@echo "  PUBLISH=1                  write into results/ and the pages instead of outputs/"
	@echo "  REPLACE=1                  replace recorded seeds of these cells by those in outputs/"
	@echo "  LATEX=1, PDF=1             also write a table as LaTeX, figures as PDF"
	@echo "  MINUTES=12, N=1000         time on a GPU; number of kills of each task"
	@echo "  DATA_ROOT=data             folder of all data; also read from the environment"
	@echo "  PYTHON=python3.12          makes the environment VENV=.venv"

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
	$(OSM) figure demo

test: setup  ## run all tests
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses=4

lint: setup  ## format the code, check it and its types
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check .
	$(PY) -m mypy

data: setup  ## download and verify graphs: DATA='cora squirrel'; without DATA all
	$(OSM) data $(DATA) --root $(call quoted,$(or $(DATA_ROOT),data))

plan: setup  ## list the runs that a table lacks, and estimate their time; default: table5
	$(OSM) table $(or $(CHOSEN),table5) --plan $(MORE)

tune: setup  ## search the settings of a table by validation accuracy; default: table6
	$(OSM) tune $(or $(CHOSEN),table6) $(MORE)

table: setup  ## run what a table lacks, and print it
	$(OSM) table $(CHOSEN) $(MORE)

$(TABLES): setup
	$(OSM) table $@ $(MORE)

figure: setup  ## draw a figure, or compute another result
	$(OSM) figure $(CHOSEN) $(MORE)

fig1: setup  ## Figure 1: rank by γ and depth, nine panels, and the check of the claim
fig2: setup  ## Figure 2: CAMs, masks and token similarity by block of two trained runs
claims: setup  ## what the papers claim, measured, with verdicts
cures: setup  ## the study of methods: which one at which depth
fig1 fig2 claims cures:
	$(OSM) figure $@ $(MORE)

numbers: setup  ## write the measured numbers, tables and claims of results/ into the pages
	$(PY) -m oversmoothing.lab.report.numbers

report: setup  ## all results: outputs/report.html, and every run: outputs/runs.html
	$(OSM) report

bench: setup  ## speed and memory, compared with plain forms and torch-geometric
	$(BENCH) graphs $(TO) --depths 2 8 32
	for case in $(CASES); do $(BENCH) $$case $(TO) || exit 1; done
	$(BENCH) centering $(TO) --tokens 16384 --batch 1 --heads 1

gpu: setup  ## what needs a GPU, most valuable first, for some minutes
	$(PY) benchmarks/gpu.py --minutes $(or $(MINUTES),12) $(if $(PLAN),--plan)

torture: setup  ## test kills at random moments, a full disk, damaged files
	@$(PY) -c 'import pytest' 2>/dev/null || $(INSTALL) -e '.[dev]'
	OVERSMOOTHING_INTERRUPTIONS=$(or $(N),20) $(PY) -m pytest -q tests/test_interrupted.py

clean:  ## remove the environment and the built documentation
	rm -rf $(VENV) site .site

distclean: clean  ## remove also all outputs, trained weights included
	find outputs -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
