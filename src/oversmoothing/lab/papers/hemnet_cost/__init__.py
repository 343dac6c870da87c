"""The cost columns of HEMNet's Table 3: FLOPs, memory and parameters of ResNet-101 with a unit."""

from oversmoothing.lab.papers.hemnet_cost.table import main as main
