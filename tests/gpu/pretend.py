"""Builds and registers the device ``pretend``, which refuses what CUDA refuses; see pretend.cpp."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

SOURCE = Path(__file__).with_name("pretend.cpp")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oversmoothing"


def compiler() -> str | None:
    """The C++ compiler, if there is one."""
    return shutil.which("g++")


@cache
def library() -> ctypes.CDLL:
    """Builds the device at the first call on this machine, and registers it in this process."""
    sources = SOURCE.read_bytes() + Path(__file__).read_bytes()
    key = hashlib.sha256(sources + torch.__version__.encode()).hexdigest()[:16]
    path = CACHE / f"pretend-{key}.so"
    if not path.exists():
        _build(path)
    torch.utils.rename_privateuse1_backend("pretend")
    loaded = ctypes.CDLL(str(path))
    loaded.pretend_seed.argtypes = [ctypes.c_uint64]
    loaded.pretend_register()
    # Module.to would give an optimizer's network new parameters; on CUDA they stay the same
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch._register_device_module("pretend", _module(loaded))
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    return loaded


def _build(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{os.getpid()}-{path.name}")
    flags = ["-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-DAT_PER_OPERATOR_HEADERS"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    home = Path(torch.__file__).parent
    headers = [f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}"]
    link = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu"]
    command = [compiler(), *flags, abi, *headers, str(SOURCE), *link, "-o", str(fresh)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{SOURCE.name} cannot be compiled:\n{done.stderr[-3000:]}")
    fresh.replace(path)


def _module(own: ctypes.CDLL) -> ModuleType:
    """What ``torch.cuda`` is to CUDA, as far as torch asks for it."""
    module, owner = ModuleType("torch.pretend"), os.getpid()
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: os.getpid() != owner
    module.manual_seed = module.manual_seed_all = lambda seed: own.pretend_seed(seed)
    module.get_rng_state = lambda device=0: torch.Generator("pretend").get_state()
    module.set_rng_state = lambda state, device=0: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module.synchronize = lambda device=None: None
    return module
