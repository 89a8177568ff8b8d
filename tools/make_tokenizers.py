#!/usr/bin/env python3
"""Makes tests/data/tokenizers: small tokenizers like those of each family, and the ids that they give to tricky
strings.

usage: make_tokenizers.py [FOLDER]      needs: pip install tokenizers==0.23.3 sentencepiece==0.2.3

Each subfolder has a model folder's tokenizer files and, if its expected ids are not those of another subfolder,
expected.json: {"cases": [{"text", "special", "ids", "decoded", "with_special"}]}, where ids are those with
(special: true) or without the tokens that the file adds around a text, and decoded and with_special their text
without and with special tokens. The training text is made here.
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = """
A lantern swings above the harbour while the tide counts its pebbles, one by one.
She wouldn't believe that we'd finished 1024 knots before 7:45, but they're all here and I'm glad.
The quick table of 3 rows and 14 columns holds 159 numbers; 26.5 of them, it's said, don't matter.
def turn(left, right):\n    # rotate\n    return [right[i] + left[-i] for i in range(len(left))]
if (x >= 0x1F && y != "tea") {\n\t\tkettle->boil(x, y * 2);  // hot!\n}
Zwölf Boxkämpfer jagen die Möwe über den großen Fluss, während Äpfel süß am Ufer liegen.
Le café où l'été s'arrête : « déjà vu », naïveté, cœur, forêt, garçon.
Лодка плывёт по тихой реке, и ветер несёт запах сена к дальнему берегу.
小さな船が静かな港を出て、朝の光の中で波を数えています。東京と京都。
河边的灯笼在风里摇晃,孩子们数着石头,数到一百就回家。
Η βάρκα περνά το στενό, και το φως μένει πίσω της.
السفينة الصغيرة تعبر الميناء عند الفجر.
हवा धीरे बहती है और नदी गाती है।
🙂 sails 🚢 and 🌊🌊 waves 👩‍👩‍👧 wave back 👍🏽!
    indented lines     keep    their   blanks\n\n\nand paragraphs\r\nend   \t
E-mail: ink@harbour.example, see https://harbour.example/a/b?c=d&e=f#g (copy: 2024-05-17).
"""

STRINGS = [
    "", " ", "  ", "   ", "a", " a", "a ", "  a  ", "\n", "\n\n", "\r\n", " \n ", "\t\tx", "a\nb", "a \n\n  b", "    four",
    "end   ", "\u00a0nbsp\u00a0\u00a0x", "\u3000wide\u3000", "\u2003em\u2009thin", "\u200bzero\u200dwidth\ufeff",
    "\u2028line\u2029par", "\u0085nel", "\u180emvs a",
    "Hello", "hello world", "Hello, world!", "HELLO WORLD", "we'd they're I'm it's don't you'll I've", "WE'D IT'S I'LL",
    "'s 't 're", "it’s ‘quoted’ “text”", "K\u017f'\u017f'S", "don''t '''", "co-operate re-enter", "snake_case CamelCase",
    "0", "7", "12", "123", "1234", "1234567890", "3.14159", "1,000,000", "0x1F", "a1b2c3", "２０２４ ½ ² ⅷ ①", "٣٤٥",
    "x=y+1;", "a->b::c", "((((", "!!!???...", "@#$%^&*()", "<>[]{}", "\\n \\t", "// comment", "/* x */", "#include <a>",
    "https://a.b/c?d=e&f=g#h", "a@b.example",
    "café", "cafe\u0301", "e\u0301\u0323", "ﬁne ﬂow ﬆ", "Å Å Å", "ｆｕｌｌ", "\u1e9b\u0323", "\u0344", "ö o\u0308",
    "Möwe über Straße", "İstanbul ıI", "ΣΊΣΥΦΟΣ σίσυφος", "Лодка плывёт", "السفينة الصغيرة", "हवा धीरे", "กำลังไป",
    "한국어 \u1112\u1161\u11ab", "東京と京都。", "河边的灯笼,数到一百", "中文English混合123", "𠀀𠮷 𝒜𝓫 𝟙𝟚",
    "🙂", "👍🏽", "👩‍👩‍👧", "🇩🇪🇫🇷", "🏴\U000e0067\U000e0062\U000e007f", "☂️ ☂", "🌊🌊🌊 🚢",
    "\x00", "\x01\x02\x1f", "\x7f", "a\x00b", "\x1b[0m", "\x1c\x1d\x1e", "\ufffd", "\ue000", "\U0010ffff", "\u0300", "\u0300a",
    "▁", "▁▁a", "a▁b", " ▁ ▁", "Ġ", "ĊĠa", "<0x41>", "<0xZZ>", "<unk>", "<pad>",
    "<s>", "</s>", "<s>a</s>", " <s> a </s> ", "a<s>", "<<s>>", "<s", "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b",
    "<|endoftext|><|endoftext|>", "<|endoftext", "<|im_start|>user\nhello<|im_end|>\n", "<mask>", "a <mask> b", "a\n <mask>",
    "<extra>", "word<extra>word", "a <extra> b", "<extra><mask>", "ONE1", "xONE1 ONE1 ONE1x (ONE1)", "é <É>", "<e\u0301>",
    "the " * 40, "ab" * 60, " " * 70, "a" * 100, "\n" * 40, "🙂" * 20, "1" * 50, "東" * 60, "harbour " * 30 + "lantern",
]


# Strings only for WordPiece.
BERT_STRINGS = [
    "[CLS] a [SEP]", "[MASK]", "a[MASK]b", "the [MASK] of the harbour.", "[mask] [UNK]", "harbours lanterns pebbly stonework",
    "don't do not he's we've they're i'm ' quoted '", "a . b , c ! d ? n't", "x" * 60, "x" * 61, "x" * 101, "é" * 100, "東京a京都", "한국어",
    "ÀÉÎÕÜ ñ ç ß ﬀ", "\u0130\u0049\u0307", "a\u00adb\u200bc", "q\u0301\u0302", "1,024.5-7", "++--==", "$5 ~ ^ ` |",
    "ab\tcd\x0bef\x0cgh", "\u3400\u4dbf\uf900\U0002a6df\U0002b81f", "؟، ۔ «»", "##ing ##", "zzz qqq", "Ǆ ǅ ΑΣ", "\u0903\u0489a",
]


def text_lines():
    """Returns the training text: the lines of SENTENCES, with escapes replaced, and 1500 lines of their words."""
    dice = random.Random(4)
    lines = [line.encode().decode("unicode_escape").encode("latin1").decode() if "\\" in line else line
             for line in SENTENCES.strip("\n").split("\n")]
    words = [line.split(" ") for line in lines]
    for _ in range(1500):
        mixed = [dice.choice(dice.choice(words)) for _ in range(dice.randint(3, 12))]
        lines.append(" ".join(mixed) + dice.choice([".", "!", "\n", ""]))
    return lines


GPT4_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_WORDS = GPT4_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def train(tokenizer, merges, special, alphabet):
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + len(special) + merges, special_tokens=special,
                                  initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text_lines(), trainer)
    return tokenizer


def one(special, before):
    return processors.TemplateProcessing(single=f"{before} $A", pair=f"{before} $A $B", special_tokens=special)


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, 700, ["<|endoftext|>"], pre_tokenizers.ByteLevel.alphabet())


def gpt_neox():
    """Makes a tokenizer with added tokens of every kind, NFC and a prefix space."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train(t, 500, ["<|endoftext|>", "<|padding|>"], pre_tokenizers.ByteLevel.alphabet())
    t.add_tokens([AddedToken("  ", normalized=True), AddedToken("   ", normalized=True),
                  AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<extra>", rstrip=True, normalized=False),
                  AddedToken("ONE1", single_word=True), AddedToken("<e\u0301>", normalized=True)])
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(GPT4_WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, 600, [], pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens(["<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    begin = ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), one([begin], begin[0])])
    return t


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, 600, [], pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return t


def split_steps():
    """Makes a tokenizer with the rarer steps: Punctuation, Digits, Split with each behavior, NFKC, Replace with an expression."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s{3,}"), "  "),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split("-", "merged_with_previous"), pre_tokenizers.Split("e", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[^\n]+"), "removed", invert=True), pre_tokenizers.Split(Regex("[aou]"), "contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    return train(t, 300, ["<s>", "</s>"], pre_tokenizers.ByteLevel.alphabet())


def llama2(metaspace=False):
    """Makes a tokenizer of characters and bytes, with Prepend and Replace normalizers as Llama-2, or with a Metaspace step
    as Mistral and others."""
    special = ["<unk>", "<s>", "</s>"]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if metaspace:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    common = [c for c in sorted(set("".join(text_lines()))) if ord(c) < 0x250 and c not in " \n\r\t"]
    train(words, 500, [], [*common, "▁"])
    learnt = json.loads(words.to_str())["model"]
    # Characters that only bytes can spell, and runs of spaces.
    keep = {piece for piece in learnt["vocab"] if all(ord(c) < 0x250 or c == "▁" for c in piece)}
    merges = [tuple(m) for m in learnt["merges"] if all(p in keep for p in (m[0], m[1], m[0] + m[1]))]
    merges += [("▁" * n, "▁" * m) for n, m in [(1, 1), (2, 1), (2, 2), (4, 4), (8, 8)]]
    pieces = [*special, *(f"<0x{b:02X}>" for b in range(256)), *sorted({c for p in keep for c in p} | {"▁"})]
    for a, b in merges:
        if a + b not in pieces:
            pieces.append(a + b)
    t.model = models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>", byte_fallback=True,
                         fuse_unk=True)
    t.add_special_tokens(special)
    t.add_tokens([AddedToken("<extra>", normalized=True), AddedToken("ONE1", normalized=False)])
    t.post_processor = one([("<s>", 1)], "<s>")
    return t


def unknown():
    """Makes a tokenizer without byte tokens: each run of characters outside the vocabulary is one <unk>."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, end_of_word_suffix="</w>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.decoder = decoders.BPEDecoder("</w>")
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], limit_alphabet=60, end_of_word_suffix="</w>",
                                  show_progress=False)
    t.train_from_iterator(text_lines(), trainer)
    return t


def word_piece(normalizer, steps=None):
    """Makes a tokenizer of BERT, uncased or cased, or with other steps before its model."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=60 if steps else 100))
    t.normalizer = normalizer
    t.pre_tokenizer = steps or pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=steps is None)
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        limit_alphabet=200, show_progress=False)
    t.train_from_iterator(text_lines(), trainer)
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends)
    return t


def bert():
    return word_piece(normalizers.BertNormalizer())


def bert_cased():
    return word_piece(normalizers.BertNormalizer(lowercase=False))


def word_piece_steps():
    return word_piece(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
                      pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]))


FAMILIES = {"bert": bert, "bert_cased": bert_cased, "word_piece_steps": word_piece_steps, "gpt2": gpt2, "gpt_neox": gpt_neox, "llama3": llama3, "qwen2": qwen2, "split_steps": split_steps,
            "llama2": llama2, "metaspace": lambda: llama2(True), "unknown": unknown}


def write_json(path, value):
    # libds does not accept NUL in JSON, so in the texts of expected.json U+F0000 stands for it.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("\\u0000", "\U000F0000")
    path.write_text(text + "\n", encoding="utf-8")


def cases(encode, decode, more=()):
    out = []
    for text in (*STRINGS, *more):
        for special in (True, False):
            ids = encode(text, special)
            if special or ids != out[-1]["ids"]:
                out.append({"text": text, "special": special, "ids": ids, "decoded": decode(ids, True),
                            "with_special": decode(ids, False)})
    return {"cases": out}


def make_hugging_face(folder, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "tokenizer.json", json.loads(tokenizer.to_str()))
    again = Tokenizer.from_file(str(folder / "tokenizer.json"))
    write_json(folder / "expected.json", cases(
        lambda text, special: again.encode(text, add_special_tokens=special).ids,
        lambda ids, skip: again.decode(ids, skip_special_tokens=skip),
        BERT_STRINGS if isinstance(again.model, models.WordPiece) else ()))


def make_pair(folder, tokenizer):
    """Writes vocab.json and merges.txt of the same tokenizer; the expected ids are those of its tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(tokenizer.to_str())["model"]
    write_json(folder / "vocab.json", model["vocab"])
    lines = ["#version: 0.2", *(" ".join(m) for m in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"}})


def make_vocabulary(folder, of, **config):
    """Writes vocab.txt of the tokenizer in folder `of`; the expected ids are those of that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = sorted(Tokenizer.from_file(str(of / "tokenizer.json")).get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(piece + "\n" for piece, _ in pieces), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", config)


def make_sentencepiece(folder, kind, **more):
    # The other families are made without it.
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "tokenizer.model", "wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text_lines()), model_writer=model, model_type=kind, minloglevel=2, num_threads=1, **more)
    p = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    write_json(folder / "expected.json", cases(
        lambda text, special: ([p.bos_id()] if special else []) + p.encode(text), lambda ids, skip: p.decode(ids)))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/data/tokenizers")
    for name, make in FAMILIES.items():
        make_hugging_face(root / name, make())
    make_pair(root / "gpt2_pair", gpt2())
    make_vocabulary(root / "bert_vocabulary", root / "bert")
    make_vocabulary(root / "bert_vocabulary_cased", root / "bert_cased", do_lower_case=False)
    make_sentencepiece(root / "spm_bpe", "bpe", vocab_size=800, byte_fallback=True, split_digits=True,
                       normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98)
    make_sentencepiece(root / "spm_unigram", "unigram", vocab_size=360)


if __name__ == "__main__":
    main()
