"""Writes quantization.safetensors: the codebooks of bitsandbytes, and the codes that it computes on the CPU.

python make_quantization.py    (torch 2.15, bitsandbytes 0.50.2, safetensors)
"""
import pathlib

import bitsandbytes as bnb
import numpy as np
import torch
from bitsandbytes import functional as F
from safetensors.torch import save_file

N = 65536


def inputs(n=N):
    """Approximately normal: sums of four hashes, which quantized_test.cpp computes, too."""
    hashed = (np.arange(1, 4 * n + 1, dtype=np.uint64) * np.uint64(2654435761)) % np.uint64(2**32)
    sums = (hashed >> np.uint64(16)).reshape(n, 4).sum(axis=1).astype(np.float64)
    return torch.from_numpy(((sums - 131070.0) / 37837.0).astype(np.float32))


def main():
    print("bitsandbytes", bnb.__version__, "torch", torch.__version__)
    x = inputs()
    out = {
        "book.nf4": F.get_4bit_type("nf4", device="cpu"),
        "book.fp4": F.get_4bit_type("fp4", device="cpu"),
        "book.dynamic_signed": F.create_dynamic_map(signed=True),
        "book.dynamic_unsigned": F.create_dynamic_map(signed=False),
    }
    for name, n in (("", N), (".odd", 63)):
        for kind in ("nf4", "fp4"):
            codes, state = F.quantize_4bit(x[:n].clone(), blocksize=64, quant_type=kind)
            out[f"codes.{kind}{name}"] = codes.flatten()
            out[f"absmax.{kind}{name}"] = state.absmax
            out[f"values.{kind}{name}"] = F.dequantize_4bit(codes, state).flatten()[:64].clone()
    for kind, values in (("dynamic_signed", x), ("dynamic_unsigned", x.abs())):
        codes, state = F.quantize_blockwise(values, code=out[f"book.{kind}"], blocksize=256)
        out[f"codes.{kind}"] = codes
        out[f"absmax.{kind}"] = state.absmax
        out[f"values.{kind}"] = F.dequantize_blockwise(codes, state)[:256].clone()
    for name, tensor in out.items():
        print(name, tuple(tensor.shape), tensor.dtype)
    save_file({k: v.contiguous() for k, v in out.items()}, pathlib.Path(__file__).parent / "quantization.safetensors")


if __name__ == "__main__":
    main()
