"""Writes qlora.safetensors: NF4 with double quantization by bitsandbytes on the CPU.

python make_qlora.py    (torch 2.15, bitsandbytes 0.50.2, safetensors)
"""
import pathlib

import bitsandbytes as bnb
import torch
from bitsandbytes import functional as F
from make_quantization import inputs
from safetensors.torch import save_file


def main():
    print("bitsandbytes", bnb.__version__, "torch", torch.__version__)
    out = {}
    for n in (65536, 40001):  # whole groups of 64 x 256 elements, and an odd number with a partial group
        codes, state = F.quantize_4bit(
            inputs(n), blocksize=64, quant_type="nf4", compress_statistics=True
        )
        out[f"codes.{n}"] = codes.flatten()
        out[f"mean.{n}"] = state.offset.reshape(1)
        out[f"scale_codes.{n}"] = state.absmax
        out[f"scale_scales.{n}"] = state.state2.absmax
        values = F.dequantize_4bit(codes, state).flatten()
        out[f"values.{n}"] = values[::8].clone()  # eight values per quantization block
    for name, tensor in out.items():
        print(name, tuple(tensor.shape), tensor.dtype)
    save_file({k: v.contiguous() for k, v in out.items()}, pathlib.Path(__file__).parent / "qlora.safetensors")


if __name__ == "__main__":
    main()
