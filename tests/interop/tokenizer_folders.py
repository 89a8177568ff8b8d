#!/usr/bin/env python3
"""Compares random tokenizer folders with Transformers (./run interop tokenizers [NUMBER [SEED]]).

Each folder is a small tokenizer of one of the families of tools/make_tokenizers.py with random other files. These name tokens
(tokenizer_config.json, special_tokens_map.json or added_tokens.json), flags, truncation and padding, a chat template, and
perhaps a class (tokenizer_config.json or config.json). `libds tokenize` and AutoTokenizer encode random texts,
conversations, and prompts with completions; the ids must be equal. The expected targets follow from the offsets of
characters that `tokenizers` returns, by the rule of docs/reference/data.md. If the mask of apply_chat_template follows this
rule, it must be equal, too.

Transformers 5 rebuilds some classes from parts of the file (docs/reference/tokenizers.md). libds matches only the rebuilt
classes in EXACT. For the others, which are counted, libds follows tokenizer.json and the flags, like
PreTrainedTokenizerFast for a file that contains the flags.
"""
import collections
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import numpy as np
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES
from transformers.utils import logging
from transformers.utils.chat_template_utils import render_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBDS = ROOT / "build" / "bin" / "libds"
sys.path.insert(0, str(ROOT / "tools"))
from make_tokenizers import BERT_STRINGS, FAMILIES, STRINGS  # noqa: E402

# The class that Transformers builds for each family. For the families in EXACT, the result is the file's tokenizer with the
# flags.
CLASSES = {"gpt2": "GPT2Tokenizer", "bert": "BertTokenizer", "bert_cased": "BertTokenizer", "qwen2": "Qwen2Tokenizer",
           "gpt_neox": "GPTNeoXTokenizer", "llama2": "LlamaTokenizer", "metaspace": "LlamaTokenizer"}
EXACT = {"gpt2", "bert", "bert_cased"}
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "image_token", "tool_token"]
NEW = ["<|im_start|>", "<|im_end|>", "[PAD]", "<think>", "</think>", "<new>", " <x>", "ab", "\u00e9t\u00e9", "lantern", "    ", "\n\n",
       "<|tool|>", "T1", "<pad>", "##x", "\u2581\u2581", "\u6771\u4eac", "<mask>", "<|endoftext|>", "HARBOUR", "\U0001f642",
       "\u0301"]
TEMPLATES = [
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}",
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
    "{% endgeneration %}{% else %}[{{ m.content }}]{% endif %}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}"
    "{{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content | trim }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %} {{ pad_token }}{% endfor %}"]


class Folder:
    """A random folder: its files, and lines to encode with it."""

    def __init__(self, number, seed, files):
        self.random = random.Random(f"{seed} {number}")
        self.family = self.random.choice(sorted(files))
        self.json = json.loads(files[self.family])
        self.config, self.beside, self.kinds = {}, {}, set()
        self.contents = [token["content"] for token in self.json.get("added_tokens") or []]
        self.draw_class()
        self.draw_tokens()
        self.draw_flags()
        self.draw_templates()
        self.lines = [self.line() for _ in range(self.random.randint(12, 24))]

    def chance(self, share, kind=None):
        taken = self.random.random() < share
        if taken and kind:
            self.kinds.add(kind)
        return taken

    def draw_class(self):
        """Draws a class, named by either file that may name it, and asks Transformers which class it uses."""
        named = None
        if self.family in CLASSES and self.chance(0.35, "a class of its own"):
            named = CLASSES[self.family] + self.random.choice(["", "Fast"])
        elif self.chance(0.7):
            named = self.random.choice(["PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer", "NoSuchTokenizer"])
        if named and self.chance(0.8):
            self.config["tokenizer_class"] = named
        elif named or self.chance(0.5):
            self.beside["config.json"] = {"tokenizer_class": named} if named else {}
            self.kinds.add("the class of config.json")
        if self.chance(0.4, "model_type"):
            self.beside.setdefault("config.json", {})["model_type"] = self.random.choice(self.model_types())
        if "tokenizer_class" not in self.config:
            self.kinds.add("no tokenizer_class")
        with tempfile.TemporaryDirectory() as name:
            self.write(pathlib.Path(name))
            try:
                self.class_name = type(AutoTokenizer.from_pretrained(name)).__name__
            # Transformers lacks this class.
            except Exception as error:
                self.class_name = type(error).__name__
        self.own_class = self.class_name in CLASSES.values()

    def model_types(self):
        """Returns the classes that can build this family's file."""
        fitting = {"TokenizersBackend", CLASSES.get(self.family)}
        return ["nosuch", "llama"] + [key for key, name in TOKENIZER_MAPPING_NAMES.items() if name in fitting]

    def flags(self, content):
        special = self.chance(0.6)
        return {"content": content, "lstrip": self.chance(0.2), "rstrip": self.chance(0.2), "single_word": self.chance(0.15),
                "normalized": self.chance(0.5) if self.chance(0.3) else not special, "special": special}

    def token(self):
        content = self.random.choice(self.contents + NEW) if self.contents else self.random.choice(NEW)
        self.contents.append(content)
        return content

    def value(self, plain=False):
        """Spells a token as in tokenizer_config.json or (plain) special_tokens_map.json."""
        content = self.token()
        if not self.chance(0.25, "a named token with flags"):
            return content
        flags = self.flags(content)
        del flags["special"]
        return flags if plain else {"__type": "AddedToken", **flags, "special": self.chance(0.8)}

    def draw_tokens(self):
        size = len(self.json["model"]["vocab"]) + 8
        if self.chance(0.45, "added_tokens_decoder"):
            decoder = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in self.json.get("added_tokens") or []
                       if self.own_class or self.chance(0.85)}
            for entry in decoder.values():
                if not self.own_class and self.chance(0.1, "a token of the file with other flags"):
                    entry.update(self.flags(entry["content"]))
            known = {entry["content"] for entry in decoder.values()}
            for number in range(self.random.randint(0, 4)):
                content = self.random.choice(NEW)
                if content not in known:
                    known.add(content)
                    self.contents.append(content)
                    decoder[str(size + number + self.random.randint(0, 3) * 10)] = self.flags(content)
            self.config["added_tokens_decoder"] = decoder
        for name in NAMES:
            if self.chance(0.3, name):
                self.config[name] = self.value()
        for key in ("additional_special_tokens", "extra_special_tokens"):
            if self.chance(0.2, key):
                self.config[key] = [self.token() for _ in range(self.random.randint(0, 3))]
        if "extra_special_tokens" not in self.config and self.chance(0.1, "extra_special_tokens by name"):
            self.config["extra_special_tokens"] = {"video_token": self.token()}
        if self.chance(0.3, "special_tokens_map.json"):
            self.beside["special_tokens_map.json"] = {name: self.value(True) for name in self.random.sample(NAMES[:7], 2)}
            if self.chance(0.4):
                self.beside["special_tokens_map.json"]["additional_special_tokens"] = [self.token()]
        if self.chance(0.25, "added_tokens.json"):
            contents = {self.random.choice(NEW) for _ in range(2)}
            self.contents += sorted(contents)
            self.beside["added_tokens.json"] = {content: size + i for i, content in enumerate(sorted(contents))}

    def draw_flags(self):
        if self.chance(0.3, "add_prefix_space"):
            self.config["add_prefix_space"] = self.chance(0.5)
        if self.family.startswith("bert") and (self.own_class or self.chance(0.5, "BERT's flags without its class")):
            # Without this key, Transformers' class lower-cases, whatever the file says.
            self.config["do_lower_case"] = self.chance(0.5)
            if self.chance(0.3, "strip_accents"):
                self.config["strip_accents"] = self.chance(0.5)
            if self.chance(0.3, "tokenize_chinese_chars"):
                self.config["tokenize_chinese_chars"] = self.chance(0.5)
        for key in ("add_bos_token", "add_eos_token"):
            if self.chance(0.15, key):
                self.config[key] = self.chance(0.5)
        if self.chance(0.2, "split_special_tokens"):
            self.config["split_special_tokens"] = self.chance(0.7)
        if self.chance(0.15, "truncation"):
            self.json["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        if self.chance(0.15, "padding"):
            self.json["padding"] = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                                    "pad_type_id": 0, "pad_token": self.random.choice(["[PAD]", "<pad>", "<|endoftext|>"])}

    def draw_templates(self):
        """Draws the places of templates: tokenizer_config.json, chat_template.jinja, and a folder of named ones."""
        default, tool_use, other = (self.random.choice(TEMPLATES) for _ in range(3))
        self.config["chat_template"] = default
        if self.chance(0.2, "a list of templates"):
            self.config["chat_template"] = [{"name": "default", "template": default}, {"name": "tool_use", "template": tool_use}]
        if self.chance(0.3, "chat_template.jinja"):
            self.beside["chat_template.jinja"] = other
        more = {name: self.random.choice(TEMPLATES) for name in ("tool_use", "rag", "default") if self.chance(0.15, f"{name}.jinja")}
        if more and "default" not in more:
            # Without a default, Transformers refuses conversations without tools.
            self.beside["chat_template.jinja"] = other
        self.beside.update({f"additional_chat_templates/{name}.jinja": text for name, text in more.items()})

    def text(self, most=6):
        pieces = []
        for _ in range(self.random.randint(0, most)):
            part = self.random.random()
            if part < 0.35:
                pieces.append(self.random.choice(self.contents + NEW))
            elif part < 0.5:
                pieces.append(self.random.choice([" ", "  ", "\n", "\t", "   ", "\u00a0", "\r\n", "      "]))
            elif part < 0.6:
                pieces.append(self.random.choice(["a", "b", "x", "\u0301", "e\u0301", "\u00e9", "\u6771", "\U0001f642", "\u1161", "\ufb01"]))
            else:
                one = self.random.choice(STRINGS + BERT_STRINGS)
                begin = self.random.randint(0, len(one))
                pieces.append(one[begin:begin + self.random.randint(1, 20)])
        # libds does not read NUL in JSON.
        return "".join(pieces).replace("\0", "")

    def line(self):
        part = self.random.random()
        if part < 0.35:
            return {"text": self.text(8)}
        if part < 0.6:
            whole = self.text(8)
            cut = self.random.randint(0, len(whole))
            return {"prompt": whole[:cut], "completion": whole[cut:]}
        roles = ["user", "assistant"] * self.random.randint(1, 3)
        out = {"messages": [{"role": role, "content": self.text(4)} for role in roles]}
        if self.chance(0.3, "tools"):
            out["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        return out

    def exact(self):
        return not self.own_class or self.family in EXACT

    def with_flags(self):
        """Returns a copy of the folder in which the file also contains the flag of the class, for a class that only loads the
        file."""
        add, out = self.config.get("add_prefix_space"), copy.deepcopy(self)
        if add is None:
            return out
        steps = out.json["pre_tokenizer"] or {}
        for step in steps.get("pretokenizers", [steps]):
            if step.get("type") == "ByteLevel":
                step["add_prefix_space"] = add
            elif step.get("type") == "Metaspace" and add == (step["prepend_scheme"] == "never"):
                step["prepend_scheme"] = "first" if add else "never"
        if not add and (out.json["normalizer"] or {}).get("type") == "Sequence":
            out.json["normalizer"]["normalizers"] = [n for n in out.json["normalizer"]["normalizers"] if n["type"] != "Prepend"]
        return out

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        files = {"tokenizer.json": self.json, "tokenizer_config.json": self.config, **self.beside}
        for name, value in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            text = value if name.endswith(".jinja") else json.dumps(value, ensure_ascii=False)
            (folder / name).write_text(text, encoding="utf-8")


class Expected:
    """The results of Transformers for the lines of a folder."""

    def __init__(self, drawn, folder):
        if not drawn.exact():
            folder, kind = folder / "by_its_file", PreTrainedTokenizerFast
            drawn.with_flags().write(folder)
        else:
            kind = AutoTokenizer
        self.tokenizer = kind.from_pretrained(folder)
        # These are the offsets before a post-processor trims spaces from them. A copy by JSON would forget which tokens were
        # special before the files beside tokenizer.json gave them other flags.
        self.raw = kind.from_pretrained(folder).backend_tokenizer
        self.raw.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
        self.raw.encode_special_tokens = drawn.config.get("split_special_tokens", False)
        self.raw.no_truncation()
        self.raw.no_padding()
        plain, special = (self.tokenizer("a", add_special_tokens=add)["input_ids"] for add in (False, True))
        at = next(i for i in range(len(special)) if special[i:i + len(plain)] == plain)
        self.before, self.after = special[:at], special[at + len(plain):]
        if not self.after and self.tokenizer.eos_token:
            self.after = [self.tokenizer.eos_token_id]
        self.found = collections.Counter()

    def marked(self, text, ranges):
        encoding = self.raw.encode(text)
        marks = [int(any(first < end and begin < last and first < last and begin < end for first, last in ranges))
                 for begin, end in encoding.offsets]
        return encoding.ids, marks, encoding.offsets

    def line(self, line):
        """Returns (ids, marks)."""
        if "messages" in line:
            return self.conversation(line["messages"], line.get("tools"))
        text = line.get("text", line.get("prompt", "") + line.get("completion", ""))
        cut = len(line.get("prompt", ""))
        ids, marks, _ = self.marked(text, [(cut, len(text))])
        assert ids == self.tokenizer(text, add_special_tokens=False)["input_ids"]
        first = 1 if "text" in line else 0
        if "text" in line:
            marks = [1] * len(ids)
        return self.before + ids + self.after, [first] * len(self.before) + marks + [1] * len(self.after)

    def conversation(self, messages, tools):
        try:
            whole = self.tokenizer.apply_chat_template(messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True)
        # An empty answer begins the text.
        except OverflowError:
            whole = None
        (text,), (ranges,) = render_jinja_template(conversations=[messages], tools=tools,
                                                   chat_template=self.tokenizer.get_chat_template(tools=tools),
                                                   return_assistant_tokens_mask=True, add_generation_prompt=False,
                                                   **self.tokenizer.special_tokens_map)
        ids, marks, offsets = self.marked(text, ranges)
        assert whole is None or ids == whole["input_ids"], "ids of the template's text"
        holding = {place: [i for i, (begin, end) in enumerate(offsets) if begin <= place < end]
                   for first, last in ranges for place in (first, last - 1)}
        trimmed = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        plain = whole is not None and all(first < last and holding[first] and len(holding[last - 1]) == 1 and holding[last - 1] != [0]
                    for first, last in ranges) and [tuple(t) for t in trimmed] == offsets
        if plain:
            self.found["masks as Transformers'"] += 1
            assert marks == whole["assistant_masks"], f"masks differ: {text!r} {ranges} {marks} {whole['assistant_masks']}"
        else:
            self.found["masks by the rule alone"] += 1
        return ids, marks


def documents(path):
    """Returns (ids, marks) of each document of a token file (src/data/token_file.cpp)."""
    content = path.read_bytes()
    width, count = int(np.frombuffer(content, "<u4", 1, 12)[0]), int(np.frombuffer(content, "<i8", 1, 24)[0])
    number, marked = int(np.frombuffer(content, "<i8", 1, 96)[0]), int(np.frombuffer(content, "<u4", 1, 104)[0])
    raw = np.frombuffer(content, f"<u{width}", count, 128)
    ends = np.frombuffer(content, "<u8", number, 128 + (count * width + 7) // 8 * 8) >> 1
    begin, out = 0, []
    for end in ends.astype(int):
        part = raw[begin:end]
        out.append(((part >> marked).tolist(), (part & 1).tolist() if marked else [1] * len(part)))
        begin = end
    return out


def check(number, seed, files, root):
    """Checks one folder. Returns a counter of results, and lines about differences."""
    folder = root / str(number)
    drawn, found = Folder(number, seed, files), collections.Counter()
    drawn.write(folder)
    described = f"folder {number} ({drawn.family}, {drawn.class_name})"
    try:
        expected = Expected(drawn, folder)
        want = [(line, *expected.line(line)) for line in drawn.lines]
    except AssertionError as error:
        return found, [f"{described}: {error}"], drawn.kinds
    # Transformers raises many kinds of errors, and a panic of `tokenizers` is not an Exception.
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        found[f"refused by Transformers: {type(error).__name__}"] += 1
        return found, [], set()
    want = [(line, ids, marks) for line, ids, marks in want if 1 in marks[1:]]
    found.update(expected.found)
    found["folders" if drawn.exact() else "folders of classes that are built anew, by their file"] += 1
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line, _, _ in want), encoding="utf-8")
    if not want:
        return found, [], drawn.kinds
    run = subprocess.run([LIBDS, "tokenize", "--data", folder / "lines.jsonl", "--format", "jsonl", "--tokenizer", folder, "--out",
                          folder / "t.tokens"], capture_output=True, text=True, timeout=120, check=False)
    if run.returncode != 0:
        return found, [f"{described}: {run.stderr.strip()}"], drawn.kinds
    wrong = []
    for (line, ids, marks), (got_ids, got_marks) in zip(want, documents(folder / "t.tokens"), strict=True):
        # The first token is never a target.
        same = got_ids == ids and got_marks[1:] == marks[1:]
        found["lines"] += 1
        if not same:
            what = "ids" if got_ids != ids else "targets"
            wrong.append(f"{described}: {what} of {json.dumps(line, ensure_ascii=False)}\n  Transformers: {ids} {marks}\n  libds:        "
                         f"{got_ids} {got_marks}")
    return found, wrong, drawn.kinds


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    files = {name: make().to_str() for name, make in FAMILIES.items()}
    found, kinds, wrong = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        root = pathlib.Path(name)
        for part, differs, kind in pool.map(lambda n: check(n, seed, files, root), range(count)):
            found.update(part)
            kinds.update(kind)
            wrong += differs
    shown = collections.Counter()
    # At most two lines of each folder are printed.
    for line in wrong:
        folder = line.split(":", 1)[0]
        shown[folder] += 1
        if shown[folder] <= 2:
            print(f"FAIL {line}")
    for folder, times in shown.items():
        print(f"{times:6} differ of {folder}")
    for what, times in found.most_common():
        print(f"{times:6} {what}")
    print(f"{len(kinds)} kinds of files and flags; the rarest: " + ", ".join(f"{kind} {times}" for kind, times in kinds.most_common()[:-5:-1]))
    print(f"tokenizers: {found['lines'] - len(wrong)} of {found['lines']} lines as Transformers")
    return 0 if not wrong and found["lines"] > count else 1


if __name__ == "__main__":
    sys.exit(main())
