# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 1
FILTER = $(if $(DATA),--data $(DATA)) $(if $(METHODS),--methods $(METHODS)) $(if $(COLUMNS),--columns $(COLUMNS))
FLAGS = $(FILTER) $(if $(FRESH),--fresh) $(if $(ALL),--all)
TABLES = table1 table2 table3 table4 wsss_gamma wsss_ablation wsss_blocks wsss_tries \
  table5 table5_readings table6 \
  hemnet_table1 hemnet_table2 hemnet_table3 hemnet_table3_cost hemnet_table4 hemnet_table5 \
  hemnet_table6 hemnet_readings seg_voc seg_subset seg_subset_eta seg_subset_eval \
  contranorm_table1 contranorm_table2 contranorm_readings contranorm_ablation \
  external_imagenet external_segmentation cls_pretrained \
  cls_depth cls_depth_tokens text_depth text_depth_tokens text_rates
FIGURES = fig2 curves elbo cost hem_fig3 hem_fig4 matrix
RUNS = --jobs $(JOBS) -- $(if $(filter-out 1,$(JOBS)),threads=1) $(OVERRIDES)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint data plan $(TABLES) fig1 $(FIGURES) propositions submission report bench clean

help:  ## list the targets
	@grep -hE '^[a-z0-9_]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-22s %s\n", $$1, $$2}'
	@echo "  DATA=cora METHODS='centered layernorm' COLUMNS=L=16 narrow a table; JOBS=2 runs processes"
	@echo "  side by side; FRESH=1 ignores committed results; OVERRIDES='device=cuda' goes to every run"

setup: $(VENV)/.installed  ## make .venv and install the pinned packages

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@for extra in crf mmseg text digits; do \
	  $(PY) -m pip install --quiet --disable-pip-version-check -e ".[$$extra]" >/dev/null 2>&1 \
	    || echo "optional extra '$$extra' could not be installed: what needs it will say so"; done
	@touch $@

demo: setup  ## five minutes: a small Figure 1 and a depth study, as a table and a page
	$(PY) scripts/demo.py

test: setup  ## all tests
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses=4

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
hemnet_table1: setup  ## HEMNet, η × T; its tables need data and GPUs: make hemnet_table1 ALL=1
hemnet_table2: setup  ## η × T in evaluation
hemnet_table3: setup  ## VOC val
hemnet_table3_cost: setup  ## published FLOPs, memory, parameters; measured: make cost
hemnet_table4: setup  ## VOC test
hemnet_table5: setup  ## PASCAL Context
hemnet_table6: setup  ## COCO-Stuff
hemnet_readings: setup  ## EM with gradients, EMANet's column in other readings
seg_voc: setup  ## FCN, EMANet, HEM, external attention on VOC
seg_subset: setup  ## the same on the VOC subset, on a CPU
seg_subset_eta: setup  ## η × T on the subset
seg_subset_eval: setup  ## T in evaluation on the subset
contranorm_table1: setup  ## ContraNorm, GLUE
contranorm_table2: setup  ## ContraNorm, ImageNet by depth
contranorm_readings: setup  ## ContraNorm where its text and code differ
contranorm_ablation: setup  ## stop-gradient × norm on generated things
external_imagenet: setup  ## EAMLP
external_segmentation: setup  ## EANet
cls_pretrained: setup  ## tokens of the pretrained DeiT-Ti with aggregators put in
cls_depth: setup  ## small ViTs of 6, 12, 24 blocks on digits, accuracy
cls_depth_tokens: setup  ## how alike their tokens are
text_depth: setup  ## small BERTs of 2 to 24 layers on SST-2, accuracy
text_depth_tokens: setup  ## how alike their tokens are
text_rates: setup  ## 12 and 24 of its layers at two learning rates
$(TABLES):
	$(PY) scripts/table.py $@ $(FLAGS) $(RUNS)

fig1: setup  ## the nine panels of Figure 1 and the check of the claim
	$(PY) scripts/fig1.py $(RUNS)

fig2: setup  ## Figure 2 and token similarity by block, from runs on the VOC subset
curves: setup  ## oversmoothing by block, from what cls_* and text_* measured
elbo: setup  ## does EM raise the ELBO at every step? counts by kernel and η
cost: setup  ## FLOPs, memory and parameters of HEMNet's Table 3
hem_fig3: setup  ## HEMNet's Figure 3: ELBO and gradients by iteration and η
hem_fig4: setup  ## HEMNet's Figure 4, of a trained run: make hem_fig4 RUN=outputs/segmentation-…
matrix: setup  ## every aggregator in every kind of backbone, into this README
$(FIGURES):
	$(PY) scripts/$@.py $(if $(RUN),--run $(RUN))

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
	$(PY) benchmarks/em.py
	$(PY) benchmarks/optimizer.py
	$(if $(EMANET)$(EANET)$(CONTRANORM),$(PY) benchmarks/units.py $(if $(EMANET),--emanet $(EMANET)) \
	  $(if $(EANET),--eanet $(EANET)) $(if $(CONTRANORM),--contranorm $(CONTRANORM)))
	$(PY) benchmarks/par.py $(if $(TOCO),--toco $(TOCO))
	$(PY) benchmarks/energy.py
	$(PY) benchmarks/wsss_step.py $(if $(TOCO),--toco $(TOCO))

clean:  ## remove the environment and all outputs
	rm -rf $(VENV) outputs
