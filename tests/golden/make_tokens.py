"""Writes tokens/: a tokenizer that Hugging Face's tokenizers trains on the text below, the ids that it and tiktoken
give for the text, and the classes of all code points.

python make_tokens.py    (Python 3.12, whose unicodedata is 15.0; tokenizers 0.23.3, tiktoken 0.14.0, regex 2026.11.19)
"""
import json
import pathlib
import unicodedata

import regex
import tiktoken
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXT = """A byte is not a letter, and a letter isn't always a byte. We've seen that; they'd say they're sure, I'm not.
It'll be the reader's turn: what does the tokenizer do with don't, DON'T, Don't, 'tis, 's, ' s and ''s?

  Two spaces begin this line,   three are within it, and four end it.    
\tA tab begins this one;\t\ttwo tabs, and\t a tab with a space \tand a space with a tab.
Lines end in different ways:\r\nwith two characters,\rwith the first,\n\n\nor with several.  \n  \n x
Numbers: 0, 7, 42, 1,000,000, 3.14159, -2.5e-3, 0x1F, 12ab34, x2y, 1st, 2nd, ½ and ¾, ² and ³, Ⅷ, ①②, 四十二, ٣٤٥, १२३.
Ein Brötchen, zwei Brötchen: größer heißt süßer, sagt Jürgen; Ärger über Übermut. Straße, STRASSE.
Le garçon a mangé une crêpe à la crème; où est-il allé ? « Là-bas », dit-elle, l'œil vif. Ça va.
El niño pequeño bebió agua fría: ¿quién lo vio? ¡Nadie! Mañana será otro día.
Кошка сидит на окне, а собака спит под столом. Ещё раз: кошка сидит, собака спит.
Η γάτα κάθεται στο παράθυρο και ο σκύλος κοιμάται. Πάλι: η γάτα κάθεται.
猫は窓に座っています。犬は机の下で寝ています。もう一度、猫は窓に座っています。カタカナ、ｶﾀｶﾅ。
猫坐在窗边，狗睡在桌下。再说一遍：猫坐在窗边。
고양이는 창가에 앉아 있고 개는 책상 아래에서 잔다. 다시: 고양이는 창가에 앉아 있다.
القط يجلس عند النافذة والكلب ينام تحت الطاولة. מתחת לשולחן ישן כלב, והחתול יושב ליד החלון.
बिल्ली खिड़की पर बैठी है और कुत्ता मेज़ के नीचे सोता है। แมวนั่งอยู่ที่หน้าต่าง หมานอนใต้โต๊ะ
Mèo ngồi bên cửa sổ, chó ngủ dưới gầm bàn. Kedi pencerede oturuyor; köpek masanın altında uyuyor. İI ıi.
Letters with marks of their own: e\u0301 and é, o\u0308o\u0308 and öö, n\u0303 and ñ; a\u0323\u0302 has two.
Signs: 😀😀 👍🏽 👩‍👩‍👧 🇩🇪🇯🇵 ❤️ ∑∞≠√ → ⇒ €£¥ … – — “quoted” ‘so’ ‹or so› *bold* _under_ snake_case CamelCase.
Code: for (int i = 0; i < n; ++i) { sum += x[i] * y[i]; }  // sum; return sum == 0 ? -1 : sum;
if (a && b || !c) { d->e::f(g); } else { h /= 2; }\t/* h */ \\n is no \\\\n, "q" is no 'q'. <|endoftext|> is text here.
Spaces of many kinds: no\u00a0break, \u00a0\u00a0two, thin\u2009space, em\u2003space, line\u2028separator, \u3000wide, \u1680, \u202f, next\u0085line.
No spaces: zero\u200bwidth, joiner\u200d, mark\ufeff, soft\u00adhyphen, word\u2060joiner, mongolian\u180e, \x00\x01\x02\x1b[0m \x1c\x1d\x1e\x1f\x7f\x80\x9f.
Far away: 𝒜𝓑𝔠 𝟘𝟙𝟚 𐍈𐌰 𓀀𓂀 𠀀𠀁 \U000e0001\U0010ffff \ue000 \ufffd \uffff.
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa aaaa aaa aa a baab bababab abababa -------- ======== ........ ?!?!?!
hahaha hahahaha ha hah lalala banana bananas ananas; the thing that thinks, the thought that thaws, this, then, there
                        \t\t\t\t            !            \n\n\n\n\n          \n\n  end  \n\n   """


def train():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=257 + 600, min_frequency=2, initial_alphabet=byte_level.alphabet(),
                                  special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def tiktoken_ids(tokenizer):
    """tiktoken's ids. The rank of a token is its id, because ids are in the order of the merges."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or (0xA1 <= b and b != 0xAD)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    ranks = {bytes(byte_of[c] for c in name): id for name, id in tokenizer.get_vocab().items() if id > 0}
    return tiktoken.Encoding("g", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={}).encode_ordinary(TEXT)


def classes():
    """Runs of code points: a letter for the class, and the length of the run. U: not assigned in Unicode 15.0."""
    assert unicodedata.unidata_version == "15.0.0", unicodedata.unidata_version
    runs = []
    for code_point in range(0x110000):
        category = unicodedata.category(chr(code_point))
        one = category[0] if category[0] in "LN" else "U" if category == "Cn" else "O"
        if regex.match(r"\p{White_Space}", chr(code_point)):
            one = "S"
        if runs and runs[-1][0] == one:
            runs[-1][1] += 1
        else:
            runs.append([one, 1])
    return runs


def main():
    print("tokenizers", tokenizers.__version__, "tiktoken", tiktoken.__version__, "regex", regex.__version__)
    folder = pathlib.Path(__file__).parent / "tokens"
    folder.mkdir(exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    loaded = json.loads((folder / "tokenizer.json").read_text())
    loaded["added_tokens"] = []  # which the tokenizer would search for in the text
    ids = Tokenizer.from_str(json.dumps(loaded)).encode(TEXT).ids
    assert ids == tiktoken_ids(tokenizer)
    (folder / "text.txt").write_bytes(TEXT.encode())
    (folder / "ids.txt").write_text(" ".join(map(str, ids)) + "\n")
    (folder / "classes.txt").write_text(" ".join(f"{one}{n}" for one, n in classes()) + "\n")
    print(len(TEXT.encode()), "bytes,", tokenizer.get_vocab_size(), "tokens,", len(ids), "ids")


if __name__ == "__main__":
    main()
