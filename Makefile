# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 1
FILTER = $(if $(DATA),--data $(DATA)) $(if $(METHODS),--methods $(METHODS)) $(if $(COLUMNS),--columns $(COLUMNS))
FLAGS = $(FILTER) $(if $(FRESH),--fresh) $(if $(ALL),--all)
TABLES = table1 table2 table3 table4 wsss_gamma wsss_ablation wsss_blocks wsss_tries \
  table5 table5_readings table6
RUNS = --jobs $(JOBS) -- $(if $(filter-out 1,$(JOBS)),threads=1) $(OVERRIDES)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint data plan $(TABLES) fig1 fig2 propositions submission report bench clean

help:  ## list the targets
	@grep -hE '^[a-z0-9_]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'
	@echo "  DATA=cora METHODS='centered layernorm' COLUMNS=L=16 narrow a table; JOBS=2 runs processes"
	@echo "  side by side; FRESH=1 ignores committed results; OVERRIDES='device=cuda' goes to every run"

setup: $(VENV)/.installed  ## make .venv and install the pinned packages

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@for extra in crf mmseg; do \
	  $(PY) -m pip install --quiet --disable-pip-version-check -e ".[$$extra]" >/dev/null 2>&1 \
	    || echo "optional extra '$$extra' could not be installed: what needs it will say so"; done
	@touch $@

demo: setup  ## five minutes: a small Figure 1 and a depth study, as a table and a page
	$(PY) scripts/demo.py

test: setup  ## all tests
	$(PY) -m pytest

lint: setup  ## format and lint
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check .

data: setup  ## fetch and verify the graphs: make data DATA='cora squirrel'
	$(PY) scripts/fetch_data.py $(DATA) --root $(or $(DATA_ROOT),data)

plan: setup  ## what the tables still need, with an estimate of time: make plan TABLE=table5
	$(PY) scripts/table.py $(or $(TABLE),table5) --plan $(FLAGS)

table1: setup  ## segmentation of VOC, mIoU; tables 1 to 4 need data and a GPU: make table1 ALL=1
table2: setup  ## the same by class
table3: setup  ## pseudo labels
table4: setup  ## ablation of losses and centering
wsss_gamma: setup  ## on the VOC subset: the offset γ
wsss_ablation: setup  ## Table 4's cells
wsss_blocks: setup  ## which blocks are centered
wsss_tries: setup  ## what may soften γ = −1
table5: setup  ## run what is missing of Table 5 and write it: make table5 DATA=cora METHODS=centered
table5_readings: setup  ## other readings of the paper beside Table 5's numbers
table6: setup  ## Table 6, whose tuning is not published
$(TABLES):
	$(PY) scripts/table.py $@ $(FLAGS) $(RUNS)

fig1: setup  ## the nine panels of Figure 1 and the check of the claim
	$(PY) scripts/fig1.py $(RUNS)

fig2: setup  ## Figure 2 and token similarity by block, from runs on the VOC subset
	$(PY) scripts/fig2.py

propositions: setup  ## Propositions 1 and 2, numerically
	$(PY) scripts/propositions.py --jobs $(JOBS)

report: setup  ## one page of everything measured: outputs/report.html
	$(PY) scripts/report.py

submission: setup  ## VOC's test-server zip of a trained run: make submission RUN=outputs/wsss-…
	$(PY) scripts/evaluate.py --run $(RUN) --split $(or $(SPLIT),test) \
	  --export $(or $(OUT),outputs/submission) $(OVERRIDES)

bench: setup  ## speed and memory beside the reference forms
	$(PY) benchmarks/graphs.py
	$(PY) benchmarks/centering.py
	$(PY) benchmarks/par.py $(if $(TOCO),--toco $(TOCO))
	$(PY) benchmarks/energy.py
	$(PY) benchmarks/wsss_step.py $(if $(TOCO),--toco $(TOCO))

clean:  ## remove the environment and all outputs
	rm -rf $(VENV) outputs
