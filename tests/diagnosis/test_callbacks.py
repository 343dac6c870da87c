"""Layer metrics during training, in three kinds of loop."""

import copy
import pickle
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import diagnosed
import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import oversmoothing as osm

IDS = torch.randint(1, 20, (8, 5), generator=torch.Generator().manual_seed(0))
KEY = "oversmoothing/cosine/bert.encoder.layer.1"


def bert() -> nn.Module:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    return diagnosed.bert(hf.BertForSequenceClassification, **sizes).train()


def test_numbers_of_a_plain_loop() -> None:
    model = bert()
    found = osm.layer_metrics(model, input_ids=IDS, metrics=["cosine", "norm"])
    report = osm.diagnose(model, input_ids=IDS)
    assert found[KEY] == report["cosine"][1] and len(found) == 4


def test_trainer_logs_the_layers_and_trains_as_without(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")

    def history(every: int | None) -> list[dict[str, Any]]:
        examples = [{"input_ids": ids, "labels": torch.tensor(i % 2)} for i, ids in enumerate(IDS)]
        how = {"max_steps": 3, "logging_steps": 1, "report_to": [], "save_strategy": "no"}
        options = hf.TrainingArguments(str(tmp_path), **how, use_cpu=True, disable_tqdm=True)
        trainer = hf.Trainer(bert(), options, train_dataset=examples)
        trainer.remove_callback(hf.PrinterCallback)
        if every:
            options = {"every": every, "reference": "random"}
            trainer.add_callback(osm.TrainerCallback(trainer, {"input_ids": IDS}, **options))
        trainer.train()
        return trainer.state.log_history

    history(None)  # imports packages, some of which draw random numbers
    plain, logged = history(None), history(2)
    assert [row["step"] for row in logged if KEY in row] == [0, 2]
    losses = [[row["loss"] for row in rows if "loss" in row] for rows in (plain, logged)]
    assert losses[0] == losses[1]


def test_lightning_logs_the_layers_and_trains_as_without() -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
            self.model = nn.Sequential(layer, layer)  # shared weights

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    class Log(lightning.loggers.logger.DummyLogger):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[tuple[int, dict]] = []

        def log_metrics(self, metrics: dict, step: int) -> None:
            self.rows.append((step, metrics))

    x, log = torch.randn(4, 5, 8), Log()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=1)
    options = {"metrics": "cosine", "layers": "0", "reference": "random"}
    callback = osm.LightningCallback(x, every=2, **options)  # Module has no forward
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    how = {"enable_checkpointing": False, "accelerator": "cpu", "logger": log, "max_epochs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with_and_without = Module(), Module()
        for module, callbacks in zip(with_and_without, ([callback], [])):
            torch.manual_seed(0)
            lightning.Trainer(callbacks=callbacks, **quiet, **how).fit(module, loader)
    trained, expected = (module.state_dict() for module in with_and_without)
    assert all(torch.equal(trained[name], value) for name, value in expected.items())
    assert not torch.equal(trained["model.0.linear1.weight"], Module().model[0].linear1.weight)
    measured = [step for step, row in log.rows if "oversmoothing/cosine/0#2" in row]
    assert measured == [0, 2, 4]


def test_a_step_is_measured_once_and_later_errors_only_warn() -> None:
    model = bert()
    callback = osm.TrainerCallback(None, {"input_ids": IDS}, every=2)
    assert callback.measured(model, 0) and not callback.measured(model, 0)
    assert not callback.measured(model, 1)
    model.bert.encoder.layer[0].output.dense.weight.data.fill_(torch.nan)
    with pytest.warns(UserWarning, match=r"step 2: .* not finite"):
        assert callback.measured(model, 2) == {}
    with pytest.raises(osm.InputError, match="not finite"):  # before the first step
        osm.TrainerCallback(None, {"input_ids": IDS}).measured(model, 0)
    for every in (0, 1.5, "1"):
        with pytest.raises(osm.InputError, match="^every: "):
            osm.TrainerCallback(None, {}, every=every)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_callback_can_be_copied_and_pickled(copied) -> None:
    """As for processes that a launcher spawns."""
    callback = osm.TrainerCallback(None, {"input_ids": IDS}, every=3, metrics=["cosine"])
    other = copied(callback)
    assert type(other) is type(callback) and isinstance(other, hf.TrainerCallback)
    assert torch.equal(other.inputs.pop("input_ids"), IDS)
    assert vars(other) | {"inputs": None} == vars(callback) | {"inputs": None}


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from oversmoothing.diagnosis import callbacks

    callbacks._derived.cache_clear()
    for name in ("lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(osm.InputError, match="LightningCallback: needs lightning .*pip install"):
        osm.LightningCallback(IDS)
    with pytest.raises(osm.InputError, match="TrainerCallback: needs transformers .*pip install"):
        osm.TrainerCallback(None, IDS)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("shared_out", [False, True])
def test_other_processes_measure_only_if_a_forward_pass_needs_all(
    shared_out: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under fully_shard a process that measures alone would wait for the others for ever."""
    model = fully_shard(bert()) if shared_out else bert()
    with torch.no_grad():
        model(input_ids=IDS)  # after which the parameters are whole
    ran: list[str] = []
    model.bert.encoder.register_forward_hook(lambda *_: ran.append("encoder"))
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert osm.Monitor(model)(input_ids=IDS) == {}
    assert bool(ran) == shared_out and not capsys.readouterr().out


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("shared_out", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("between", [False, True], ids=["before the step", "before backward"])
def test_a_monitor_changes_no_bit_of_the_training(between: bool, shared_out: bool) -> None:
    """With dropout, running statistics and momentum, which a careless look would change."""

    def trained(monitor: bool) -> tuple[dict[str, Tensor], list[dict], list[str]]:
        torch.manual_seed(0)
        block = partial(nn.TransformerEncoderLayer, 8, 2, 8, dropout=0.2, batch_first=True)
        model = nn.Sequential(block(), block(), nn.Flatten(), nn.BatchNorm1d(40), nn.Linear(40, 3))
        lines: list[str] = []
        options = {"layers": ["0", "1"], "reference": "random", "show": lines.append}
        if shared_out:
            for part in (*model[:2], model):
                fully_shard(part)
            del options["reference"]  # other processes have a part of the weights
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        watched = osm.Monitor(model, every=2, **options) if monitor else lambda x: {}
        rows = []
        for _ in range(5):
            x = torch.randn(4, 5, 8)
            if not between:
                rows.append(watched(x))
            loss = model(x).square().mean()
            if between:
                rows.append(watched(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model.state_dict(), rows, lines

    expected, *_ = trained(False)
    weights, rows, lines = trained(True)
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert [bool(row) for row in rows] == [True, False, True, False, True]
    assert [line.split(":")[0] for line in lines] == ["step 0", "step 2", "step 4"]


def test_report_file_callback_and_monitor_name_the_same_measures(tmp_path: Path) -> None:
    model = bert()
    report = osm.diagnose(model, input_ids=IDS)
    report.to_csv(tmp_path / "layers.csv")
    columns = (tmp_path / "layers.csv").read_text().splitlines()[0].split(",")
    found = osm.Monitor(model, show=None)(input_ids=IDS)
    assert found == osm.TrainerCallback(None, {"input_ids": IDS}).measured(model, 0)
    assert {name.split("/")[1] for name in found} == {*report.values} <= {*columns}
    assert all(report[key.split("/")[1]] for key in found)
