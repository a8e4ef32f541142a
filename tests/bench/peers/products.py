"""The matrix products of tests/bench/products.cpp in PyTorch: a JSON line per product."""
import argparse
import json
import statistics
import time

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--cuda", action="store_true")
device = "cuda" if parser.parse_args().cuda else "cpu"
LAYERS = {
    "small qkv": (512, 128, 384),
    "small proj": (512, 128, 128),
    "small fc": (512, 128, 512),
    "small out": (512, 512, 128),
    "small head": (512, 128, 256),
    "gpt2-124M qkv": (1024, 768, 2304),
    "gpt2-124M proj": (1024, 768, 768),
    "gpt2-124M fc": (1024, 768, 3072),
    "gpt2-124M out": (1024, 3072, 768),
    "gpt2-124M head": (1024, 768, 50257),
}


def seconds(product):
    """The median of at least 5 runs, in at least 0.1 seconds, after one that warms up."""
    times = []
    while len(times) < 6 or sum(times[1:]) < 0.1:
        start = time.perf_counter()
        result = product()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        del result
    return statistics.median(times[1:])


for name, (rows, features, out) in LAYERS.items():
    x, dy = torch.rand(rows, features, device=device), torch.rand(rows, out, device=device)
    weight = torch.rand(out, features, device=device)
    to = {"forward": torch.empty_like(dy), "dx": torch.empty_like(x), "dW": torch.empty_like(weight)}
    for kind, a, b in (("forward", x, weight.T), ("dx", dy, weight), ("dW", dy.T, x)):
        rate = 2e-9 * rows * features * out / seconds(lambda: torch.mm(a, b, out=to[kind]))
        print(json.dumps(dict(model=f"{name} {kind}", device=device, program="pytorch-eager", gflops=rate),
                         separators=(",", ":")), flush=True)
