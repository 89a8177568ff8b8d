"""Recomputes, from docs/reference/data.md, the data that each step of a run reads: samples, their order, and curricula."""
import functools
import math

import numpy

NO_TARGET = -100
LOW = numpy.uint64(0xFFFFFFFF)
WORD = numpy.uint64(32)
# The purposes of draws.
OFFSET, ROUND, MASK, HELDOUT_MASK = 1, 2, 3, 4


def blocks(seed, step, leaf, op, index):
    """Returns the four words of Philox4x32-10 for each block number of the stream (seed, step, leaf, op)."""
    index = numpy.asarray(index, numpy.uint64)
    c = [index & LOW, (index >> WORD) ^ numpy.uint64(op << 16), numpy.full_like(index, step), numpy.full_like(index, leaf)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        c = [(p1 >> WORD) ^ c[1] ^ numpy.uint64(key[0]), p1 & LOW, (p0 >> WORD) ^ c[3] ^ numpy.uint64(key[1]), p0 & LOW]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def draws(seed, epoch, purpose, index):
    """Returns 64-bit words of an epoch, drawn for a purpose."""
    words = blocks(seed, epoch & 0xFFFFFFFF, epoch >> 32, purpose, index)
    return words[0] << WORD | words[1]


@functools.lru_cache(maxsize=4096)
def permutation(seed, epoch, count):
    """Returns the order in which an epoch visits `count` samples: a Feistel network of four rounds, walked into
    range."""
    half = ((count - 1).bit_length() + 1) // 2
    shift, mask = numpy.uint64(half), numpy.uint64((1 << half) - 1)
    out = numpy.arange(count, dtype=numpy.uint64)
    walking = numpy.ones(count, bool)
    while walking.any():
        value = out[walking]
        left, right = value >> shift, value & mask
        for number in range(4):
            mixed = left ^ (draws(seed, epoch, ROUND, numpy.uint64(number << 40) | right) & mask)
            left, right = right, mixed
        out[walking] = left << shift | right
        walking = out >= count
    return [int(i) for i in out]


class Row:
    """The tokens that a model reads as one sequence. `begins` holds, for each token, the position at which its document
    begins for attention."""

    def __init__(self, tokens, targets, begins, real):
        self.tokens, self.targets, self.begins, self.real = tokens, targets, begins, real

    def cut(self, length):
        """Returns a row with the same tokens, of which only the first `length` have targets."""
        targets = [t if i < length else NO_TARGET for i, t in enumerate(self.targets)]
        return Row(self.tokens, targets, self.begins, [r and i < length for i, r in enumerate(self.real)])

    @property
    def key(self):
        return tuple(self.tokens), tuple(self.begins), sum(self.real)


class Document:
    def __init__(self, tokens, marks):
        self.tokens, self.marks = tokens, marks
        self.whole = all(marks)

    def __eq__(self, other):
        return self.tokens == other.tokens and self.marks == other.marks

    def pieces(self, sequence):
        """Yields (tokens, targets) of each part that has a target."""
        out = []
        for at in range(0, len(self.tokens), sequence):
            tokens = self.tokens[at:at + sequence]
            targets = [self.tokens[i + 1] if i + 1 < len(self.tokens) and self.marks[i + 1] else NO_TARGET
                       for i in range(at, at + len(tokens))]
            if any(t != NO_TARGET for t in targets):
                out.append((tokens, targets))
            if not self.whole:
                break
        return out


def best_fit(pieces, sequence):
    """Packs pieces into rows: the longest first (among equals the earlier one), each into the row with the least room
    that suffices (among equals the one that reached that room last)."""
    # rooms: (free tokens, row) in the order in which they arose.
    rows, rooms = [], []
    for piece in sorted(pieces, key=lambda p: -len(p[0])):
        length = len(piece[0])
        fitting = [room for room in rooms if room[0] >= length]
        if fitting:
            least = min(room[0] for room in fitting)
            at = max(i for i, room in enumerate(rooms) if room[0] == least)
            room, row = rooms.pop(at)
        else:
            rows.append([])
            room, row = sequence, len(rows) - 1
        rows[row].append(piece)
        if room > length:
            rooms.append((room - length, row))
    return rows


def row_of(pieces, sequence, isolated):
    tokens, targets, begins = [], [], []
    for more, wanted in pieces:
        begins += [len(tokens) if isolated else 0] * len(more)
        tokens, targets = tokens + more, targets + wanted
    used, pad = len(tokens), sequence - len(tokens)
    return Row(tokens + [0] * pad, targets + [NO_TARGET] * pad, begins + list(range(used, sequence)),
               [True] * used + [False] * pad)


def document_rows(documents, sequence, packing):
    """Returns the samples of the documents. `packing` is False, True or "isolated"."""
    pieces = [piece for document in documents for piece in document.pieces(sequence)]
    packed = best_fit(pieces, sequence) if packing else [[piece] for piece in pieces]
    return [row_of(row, sequence, packing == "isolated") for row in packed]


class Documents:
    """The endless training stream of documents, indexed by sample number."""

    def __init__(self, documents, sequence, packing, seed):
        self.rows, self.seed = document_rows(documents, sequence, packing), seed
        self.count = len(self.rows)

    def sample(self, i):
        return self.rows[permutation(self.seed, i // self.count, self.count)[i % self.count]]


class Masks:
    """Rows of a masked language model whose tokenizer adds no frame."""

    def __init__(self, probability, masked, random, token, vocab, special):
        self.probability, self.masked, self.random = probability, masked, random
        self.token, self.vocab, self.special = token, vocab, {token, *special}

    def row(self, tokens, begin, seed, epoch, purpose):
        at = numpy.arange(begin, begin + len(tokens), dtype=numpy.uint64)
        words = blocks(seed, epoch & 0xFFFFFFFF, 1 << 31 | epoch >> 32, purpose, at)
        uniform = [(w >> numpy.uint64(8)).astype(numpy.float64) * 2.0**-24 for w in words[:2]]
        shown, targets = list(tokens), [NO_TARGET] * len(tokens)
        for i, token in enumerate(tokens):
            if token in self.special or uniform[0][i] >= self.probability:
                continue
            targets[i] = token
            if uniform[1][i] < self.masked:
                shown[i] = self.token
            elif uniform[1][i] < self.masked + self.random:
                shown[i] = (int(words[2][i]) << 32 | int(words[3][i])) % self.vocab
        return Row(shown, targets, [0] * len(tokens), [True] * len(tokens))


class Stream:
    """The training stream of a text: windows from an offset that each epoch draws."""

    def __init__(self, tokens, sequence, seed, separator=None, masks=None):
        self.tokens, self.sequence, self.seed, self.separator, self.masks = tokens, sequence, seed, separator, masks
        self.count = max(len(tokens) // sequence - 1, 1 if len(tokens) > sequence else 0)
        self.rest = min(sequence, len(tokens) - self.count * sequence)

    def sample(self, i):
        epoch, at = divmod(i, self.count)
        offset = int(draws(self.seed, epoch, OFFSET, 0)) % self.rest
        begin = offset + permutation(self.seed, epoch, self.count)[at] * self.sequence
        return self.window(begin, self.seed, epoch, MASK)

    def window(self, begin, seed, epoch, purpose):
        tokens = self.tokens[begin:begin + self.sequence]
        if self.masks:
            return self.masks.row(tokens, begin, seed, epoch, purpose)
        return stream_row(tokens, self.tokens[begin + 1:begin + self.sequence + 1], self.separator)


def stream_row(tokens, behind, separator):
    targets = behind + [NO_TARGET] * (len(tokens) - len(behind))
    begins, first = [], 0
    for i, token in enumerate(tokens):
        if separator is not None and i > 0 and tokens[i - 1] == separator:
            first = i
        begins.append(first)
        if separator is not None and token == separator:
            # The next token belongs to the next document.
            targets[i] = NO_TARGET
    return Row(list(tokens), targets, begins, [True] * len(tokens))


def difficulty(curriculum, step):
    """Returns the number of tokens of a sample that have targets in step `step`, counted from 1."""
    low, high, more = curriculum["min_difficulty"], curriculum["max_difficulty"], curriculum["schedule_config"]
    if low == high:
        return low
    if curriculum["schedule_type"] == "fixed_discrete":
        before = 0
        for length, last in zip(more["difficulty"], more["max_step"]):
            if step <= last or (last > before and length == high):
                return length
            before = last
        return more["difficulty"][-1]
    share = step / more["total_curriculum_step"]
    if curriculum["schedule_type"] == "fixed_root":
        share **= 1 / more["root_degree"]
    unit = more["difficulty_step"]
    length = math.floor(share * (high - low) + low)
    length -= length % unit
    return min(max(length, -(-low // unit) * unit), high)


class Groups:
    """Groups of documents bounded by tokens; the first document of a run has number 0."""

    def __init__(self, documents, sequence, keys, seed):
        rows = [row_of([piece], len(piece[0]), False) for document in documents for piece in document.pieces(sequence)]
        order = list(range(len(rows)))
        if keys.get("sequence_picking_order") == "random":
            order = permutation(seed, 0, len(rows))
        elif keys.get("sequence_picking_order") == "seqlen":
            order = sorted(order, key=lambda i: len(rows[i].tokens))
        order = [rows[i] for i in order if len(rows[i].tokens) <= keys["max_tokens"]]
        least, most = keys.get("min_batch_size", 1), keys.get("max_batch_size") or len(order)
        self.groups, at = [], 0
        while at < len(order) - 1:
            end, tokens = at, 0
            while end < len(order) - 1 and end - at < most and tokens + len(order[end].tokens) <= keys["max_tokens"]:
                tokens += len(order[end].tokens)
                end += 1
            if end - at < max(least, 1):
                break
            self.groups.append(order[at:end])
            at = end
