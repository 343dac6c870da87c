"""The moving average of EM's bases in several processes."""

import subprocess
import sys
from pathlib import Path

PROCESS = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from oversmoothing.lab import processes
from oversmoothing.aggregators.base import Context, settle
from oversmoothing.aggregators.em import EM

class Host(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Linear(6, 6)
        self.em = EM(6, 4, step_size=0.5, temperature="sqrt_dim", l2=False, gradients=True)
    def forward(self, x):
        return self.em(self.conv(x), Context())

rank = int(sys.argv[1])
dist.init_process_group("gloo", f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
host, x = Host().double(), torch.randn(6, 30, 6, dtype=torch.float64)
alone = EM(6, 4, step_size=0.5, temperature="sqrt_dim", l2=False, gradients=True).double()
alone.bases.copy_(host.em.bases)
expected = alone.momentum * alone.bases + (1 - alone.momentum) * alone.trace(
    host.conv(x).detach())[-1].mu.mean(dim=0)
model = DistributedDataParallel(host)
for part in ([[0], [1, 2]], [[3], [4, 5]])[rank]:  # two forward passes each, of unequal size
    model(x[part])
settle(model)
assert torch.allclose(host.em.bases, expected, atol=1e-14), (host.em.bases - expected).abs().max()
del model
processes.close()
"""


def test_two_processes_move_bases_as_one_does(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS]
    running = [subprocess.Popen([*command, str(r), str(tmp_path / "meet")]) for r in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
