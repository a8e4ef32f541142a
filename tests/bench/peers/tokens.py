"""How fast tiktoken and Hugging Face's tokenizers encode and decode a text on one thread, with the byte pairs of
FOLDER/tokenizer.json: one JSON line per program, in MB/s, the best of three. The text must be UTF-8.

python tokens.py FILE FOLDER"""
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tiktoken
import tokenizers

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
text = open(sys.argv[1], encoding="utf-8", newline="").read()
file = sys.argv[2] + "/tokenizer.json"
hugging_face = tokenizers.Tokenizer.from_file(file)
# The characters that name bytes: the printable ones themselves, in order, and then from U+0100 on.
printable = [b for b in range(256) if 33 <= b <= 126 or (161 <= b and b != 173)]
names = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(sorted(set(range(256)) - set(printable)))}
vocabulary = json.load(open(file, encoding="utf-8"))["model"]["vocab"]
ranks = {bytes(names[c] for c in name): id for name, id in vocabulary.items()}
tik = tiktoken.Encoding("gradus", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def speed(run):
    best = min(run_seconds(run) for _ in range(3))
    return len(text.encode()) * 1e-6 / best


def run_seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


for name, encode, decode in (
    ("tiktoken", lambda: tik.encode_ordinary(text), tik.decode_bytes),
    ("tokenizers", lambda: hugging_face.encode(text).ids, hugging_face.decode),
):
    ids = encode()
    line = dict(program=name, tokens=len(ids), encode_mb_per_s=speed(encode), decode_mb_per_s=speed(lambda: decode(ids)))
    print(json.dumps(line), flush=True)
