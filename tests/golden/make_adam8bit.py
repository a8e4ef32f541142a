"""Writes adam8bit.safetensors: ten updates of a matrix by bitsandbytes' 8-bit AdamW, in its plain PyTorch version
(the only one of the package for the CPU).

python make_adam8bit.py    (torch 2.15, bitsandbytes 0.50.2, triton, safetensors)
"""
import os
import pathlib

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # plain PyTorch, not compiled
import bitsandbytes as bnb
import torch
from bitsandbytes import functional as F
from bitsandbytes.backends.triton.kernels_optim import optimizer_update_8bit_blockwise_pytorch
from make_quantization import inputs
from safetensors.torch import save_file

ROWS, COLS, STEPS, RATE, BETAS, EPS, DECAY = 40, 130, 10, 1e-2, (0.9, 0.95), 1e-8, 0.1
N = ROWS * COLS


def gradients(step):
    """Each quantization block has a different magnitude, so that the second moments span decades."""
    sizes = torch.tensor([10.0 ** -(i % 4) for i in range(N // 256 + 1)]).repeat_interleave(256)[:N]
    return inputs((step + 2) * N)[-N:] * sizes * 0.1


def main():
    print("bitsandbytes", bnb.__version__, "torch", torch.__version__)
    signed, unsigned = F.create_dynamic_map(signed=True), F.create_dynamic_map(signed=False)
    blocks = (N + 255) // 256
    p = inputs(N).clone()
    m, v = torch.zeros(N, dtype=torch.uint8), torch.zeros(N, dtype=torch.uint8)
    m_max, v_max = torch.zeros(blocks), torch.zeros(blocks)
    out = {}
    for step in range(STEPS):
        optimizer_update_8bit_blockwise_pytorch(
            p, gradients(step), m, v, *BETAS, 0.0, 0.0, EPS, step + 1, RATE, signed, unsigned, m_max, v_max, DECAY, 1.0,
            False, optimizer_name="adam")
    for name, tensor in (("p", p), ("m", m), ("v", v), ("m.scales", m_max), ("v.scales", v_max)):
        out[name] = tensor.clone()
        print(name, tuple(tensor.shape), tensor.dtype)
    save_file(out, pathlib.Path(__file__).parent / "adam8bit.safetensors")


main()
