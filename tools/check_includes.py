#!/usr/bin/env python3
"""Checks that every file of src includes what it uses.

usage: check_includes.py [--fix] [SRC]   (--fix: writes the missing includes; clang-format sorts them)
A name of the standard library, of fmt or of this tree needs its header in the file that uses it; what NAME.h includes,
NAME.cpp need not include again. Names of this tree are those that exactly one header declares: types, constants and
functions whose names have an underscore. Names that a file declares itself, or that are members, do not count, nor does
a name whose header lies in a folder that the layers forbid. The check reads text, not C++, and accepts whatever it
cannot decide.
"""
import pathlib
import re
import sys

from check_layers import ALLOWED, folder_of

STANDARD = {
    "algorithm": "adjacent_find all_of any_of binary_search clamp copy copy_n count count_if equal equal_range fill fill_n "
                 "find find_if find_if_not for_each generate is_sorted lexicographical_compare lower_bound max "
                 "max_element merge min min_element minmax minmax_element mismatch next_permutation none_of nth_element "
                 "partial_sort partition remove remove_if replace replace_if reverse rotate search shuffle sort "
                 "stable_partition stable_sort transform unique upper_bound",
    "any": "any any_cast",
    "array": "array to_array",
    "atomic": "atomic atomic_bool atomic_flag atomic_int atomic_ref atomic_thread_fence atomic_uint64_t memory_order "
              "memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr",
    "bitset": "bitset",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "ceil cos erf exp exp2 expm1 floor fma fmod frexp hypot isfinite isinf isnan ldexp lgamma log log10 log1p log2 "
             "lround modf nearbyint nextafter pow rint round signbit sin sqrt tanh trunc",
    "concepts": "convertible_to derived_from floating_point integral invocable same_as",
    "condition_variable": "condition_variable condition_variable_any cv_status",
    "csignal": "sig_atomic_t",
    "cstddef": "byte max_align_t nullptr_t ptrdiff_t",
    "cstdio": "FILE fclose fflush fopen fprintf fputs fread fwrite printf setvbuf snprintf fputc",
    "cstdlib": "_Exit abort aligned_alloc atexit calloc exit free getenv malloc realloc strtod strtol strtoll strtoull",
    "cstring": "memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp strncpy strrchr strstr",
    "ctime": "gmtime localtime mktime strftime time_t tm",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr make_exception_ptr rethrow_exception terminate "
                 "uncaught_exceptions",
    "filesystem": "filesystem",
    "functional": "bit_or cref equal_to function greater hash invoke less minus multiplies not_fn plus ref "
                  "reference_wrapper",
    "future": "async future promise packaged_task",
    "iterator": "advance back_inserter begin distance end inserter istreambuf_iterator make_move_iterator next prev rbegin "
                "reverse_iterator size ssize",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "addressof allocator default_delete enable_shared_from_this make_shared make_unique "
              "make_unique_for_overwrite shared_ptr static_pointer_cast unique_ptr weak_ptr",
    "mutex": "call_once defer_lock lock_guard mutex once_flag recursive_mutex scoped_lock timed_mutex try_to_lock unique_lock",
    "new": "align_val_t bad_alloc launder nothrow",
    "numbers": "numbers",
    "numeric": "accumulate gcd inclusive_scan inner_product iota lcm partial_sum reduce",
    "optional": "make_optional nullopt nullopt_t optional",
    "queue": "priority_queue queue",
    "random": "mt19937 mt19937_64 normal_distribution uniform_int_distribution",
    "ranges": "ranges views",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream stringstream",
    "stack": "stack",
    "stdexcept": "domain_error invalid_argument length_error logic_error out_of_range overflow_error range_error runtime_error",
    "string": "basic_string char_traits getline stod stoi stol stoll stoul stoull string to_string",
    "string_view": "string_view u16string_view",
    "system_error": "errc error_category error_code generic_category system_category system_error",
    "thread": "jthread this_thread thread",
    "tuple": "forward_as_tuple get_if make_tuple tie tuple tuple_size",
    "type_traits": "add_const_t bool_constant common_type_t conditional_t decay_t enable_if_t false_type integral_constant "
                   "invoke_result_t is_arithmetic_v is_base_of_v is_convertible_v is_enum_v is_floating_point_v is_integral_v "
                   "is_invocable_v is_pointer_v is_same_v is_signed_v is_trivially_copyable_v is_unsigned_v is_void_v "
                   "make_signed_t make_unsigned_t remove_const_t remove_cv_t remove_cvref_t remove_pointer_t "
                   "remove_reference_t true_type type_identity_t underlying_type_t void_t",
    "typeindex": "type_index",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "utility": "as_const cmp_equal cmp_less declval exchange forward in_place index_sequence integer_sequence make_pair "
               "make_index_sequence move pair piecewise_construct swap to_underlying unreachable",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
HEADER_OF = {}
for header, names in STANDARD.items():
    for name in names.split():
        HEADER_OF.setdefault(name, set()).add(header)
# Names that are used without std::.
PLAIN = [
    (re.compile(r"\bu?int(?:8|16|32|64|ptr)_t\b|\bU?INT(?:8|16|32|64)_M(?:AX|IN)\b|\bSIZE_MAX\b"), {"cstdint", "stdint.h"}),
    (re.compile(r"\berrno\b|\bE(?:INTR|AGAIN|NOENT|INVAL|NOSPC|EXIST|PERM|ACCES|SRCH|IO|PIPE|BADF|NOTDIR|LOOP)\b"),
     {"cerrno", "errno.h"}),
    (re.compile(r"\bfmt::(?!join\b)\w+"), {"fmt/core.h", "fmt/format.h", "fmt/ranges.h", "fmt/chrono.h", "fmt/std.h"}),
    (re.compile(r"\bfmt::join\b"), {"fmt/ranges.h", "fmt/format.h"}),
]
# <cmath> has these for floating types and <cstdlib> for integers; both <algorithm> and <utility> have move and swap.
OTHERS = {"abs": {"cmath", "cstdlib"}, "move": {"utility", "algorithm"}, "swap": {"utility", "algorithm"},
          "remove": {"algorithm", "cstdio"}, "get": {"array", "tuple", "utility", "variant"},
          "pair": {"utility", "map", "unordered_map"}, "ref": {"functional"},
          **{name: {"iterator", "vector", "string", "array", "span", "map"} for name in "begin end size".split()},
          "hash": {"functional", "string", "string_view"}, "equal_to": {"functional"}, "round": {"cmath"}}
HEADER_OF.update(OTHERS)

# Headers that also provide other headers, because their interface consists of the types of those.
SPEAKS_FOR = {
    "core/graph/graph.h": ["core/base/attrs.h", "core/base/dtype.h", "core/base/ids.h", "core/base/shape.h"],
    "core/graph/ops.h": ["core/graph/graph.h"],
    "core/graph/ops/rules.h": ["core/graph/ops.h"],
    "core/program/program.h": ["core/base/tier.h", "core/graph/graph.h", "core/program/instruction.h"],
    "core/config/config.h": ["core/base/dtype.h", "core/base/json.h", "core/base/tier.h"],
    "core/config/key.h": ["core/config/config.h", "core/config/values.h"],
    "core/config/options.h": ["core/base/json.h", "core/base/json_read.h"],
    "core/base/json_read.h": ["core/base/json.h"],
    "kernels/kernel.h": ["core/base/attrs.h", "core/base/dtype.h", "core/device/scalars.h", "core/device/thread_team.h",
                         "core/device/view.h"],
    "kernels/cpu/cpu.h": ["core/base/round.h", "kernels/by_type.h", "kernels/kernel.h"],
    "kernels/ref/ref.h": ["kernels/by_type.h", "kernels/kernel.h"],
    "comm/communicator.h": ["core/base/dtype.h"],
    "comm/collectives/collective.h": ["comm/collectives/blocks.h", "comm/communicator.h", "comm/exchange.h", "comm/intent.h"],
    "comm/exchange.h": ["comm/intent.h"],
    "zero/zero_plan.h": ["core/config/config.h", "core/program/granules.h", "core/program/memory.h", "core/program/program.h", "core/program/state.h"],
    "zero/step_buffers.h": ["core/program/builder.h", "zero/zero_plan.h"],
    "compile/plan.h": ["compile/memory_plan.h", "core/graph/graph.h", "core/program/program.h", "zero/zero_plan.h"],
    "compile/pipeline.h": ["compile/plan.h", "core/config/config.h"],
    "engine/runtime.h": ["comm/communicator.h", "compile/plan.h", "engine/options.h"],
    "engine/state_store.h": ["checkpoint/state_access.h", "engine/runtime.h"],
    "engine/body.h": ["compile/plan.h", "engine/checkpoints.h", "engine/runtime.h", "engine/state_store.h",
                      "engine/step_control.h", "engine/trained_set.h"],
    "engine/engine.h": ["engine/body.h"],
    "generation/generation_engine.h": ["engine/body.h"],
    "engine/delegate.h": ["engine/body.h"],
    "nn/models/hf.h": ["core/graph/graph.h"],
    "nn/models/hf_families.h": ["nn/models/hf.h", "nn/models/hf_config.h"],
    "cli/commands.h": ["<functional>", "<memory>", "<string>", "<vector>"],
    "diagnostics/audit_step.h": ["core/program/program.h", "kernels/kernel.h"],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"]+)[>"]', re.M)
COMMENT = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*(?:.|\n)*?\*/|(?<![\w])\'(?:\\.|[^\'\\\n])+\'')
STD_NAME = re.compile(r"\bstd::(?:ranges::)?(\w+)")
TYPE = re.compile(r"^(?:template <[^\n]*>\n)?(?:struct|class|enum class|enum|union)\s+(?:\w+_API\s+)?(?:alignas\(\w+\)\s+)?(\w+)\b(?![^\n{;]*;)", re.M)
ALIAS = re.compile(r"^using (\w+) =", re.M)
CONSTANT = re.compile(r"^(?:inline )?(?:constexpr|const|extern const)\b[^\n=({;]*?\b(k[A-Z]\w*)\b", re.M)
FUNCTION = re.compile(r"^(?:\[\[\w+\]\] )?(?:inline |constexpr |extern )*[A-Za-z_][\w:<>,*& ]*?[ *&]((?!__)\w+_\w+)\(", re.M)
DECLARED = re.compile(r"\b(?:struct|class|enum class|enum|using|namespace|typename|concept)\s+(\w+)")


def code_of(path):
    return COMMENT.sub(lambda m: '""' if m.group(0)[0] in "\"R'" else " ", path.read_text(encoding="utf-8"))


def own_header(name, files):
    stem = re.sub(r"\.cpp$", ".h", name)
    return stem if stem != name and stem in files else None


def names_of(files):
    """Returns name -> its only header. Names that several headers, or a header and a source file, declare are left
    out."""
    where = {}
    for name, code in files.items():
        if name.endswith(".h"):
            for pattern in (TYPE, ALIAS, CONSTANT, FUNCTION):
                for found in pattern.findall(code):
                    where.setdefault(found, set()).add(name)
    return {name: headers.pop() for name, headers in where.items() if len(headers) == 1}


def declares(code, name):
    """Tells whether a file has a name of its own: a type, a forward declaration, a function, a variable or a member."""
    return (re.search(rf"^[^\n]*\bconstexpr\b[^;]*?[ ,]{name} = ", code, re.M)
            or re.search(rf"\b(?:struct|class|enum class|enum|using|typename|namespace)\s+{name}\b", code)
            or re.search(rf"^(?! *return )(?:static |inline |constexpr |template )*[\w:<>,*& ]+[ *&]{name}(?:\(| =|;|\[|\{{)", code, re.M)
            or re.search(rf"[\w>*&] {name}(?:;| = |\{{|\) \{{|, |\))", code) and not name[0].isupper())


def nests(code, name):
    """Tells whether a class of the file has a type or a constant of this name."""
    return (re.search(rf"^ +(?:struct|class|enum class|using) {name}\b[^;\n]*[{{=]", code, re.M)
            or re.search(rf"^ +static constexpr [^;\n]*\b{name} = ", code, re.M))


def may_include(name, header):
    return folder_of(header) in ALLOWED.get(folder_of(name), {folder_of(header)}) | {folder_of(name)}


def wanted(name, files, own_names):
    """Yields each name that a file uses, and the headers that provide it, one of which must be included."""
    code = files[name]
    for used in sorted(set(STD_NAME.findall(code))):
        if used in HEADER_OF:
            yield f"std::{used}", {f"<{h}>" for h in HEADER_OF[used]}
    for pattern, headers in PLAIN:
        if found := pattern.search(code):
            yield found.group(0), {f"<{h}>" for h in headers}
    own = files.get(own_header(name, files), "")
    plain = re.findall(r"(?<![\w.:])(?<!->)\w+|(?<=\bds::)\w+", code)
    for used in sorted(set(plain) & own_names.keys()):
        header = own_names[used]
        if header == name or declares(code, used) or nests(own, used) or not may_include(name, header):
            continue
        if used[0].islower() and used[0] != "k" and not re.search(rf"(?<![\w.>:])(?:ds::)?{used}[<(]", code):
            continue
        yield used, {f'"{header}"'}


def included(name, files, texts):
    found, waiting = set(), [f"<{path}>" if mark == "<" else f'"{path}"' for mark, path in INCLUDE.findall(texts[name])]
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += [h if h[0] == "<" else f'"{h}"' for h in SPEAKS_FOR.get(header.strip('"'), ())]
    return found


def missing(source):
    """Returns file -> {header to add: the name that needs it}."""
    texts, files = {}, {}
    for path in sorted(source.rglob("*")):
        if path.suffix in (".h", ".cpp"):
            texts[path.relative_to(source).as_posix()] = path.read_text(encoding="utf-8")
            files[path.relative_to(source).as_posix()] = code_of(path)
    own_names = names_of(files)
    found = {}
    for name in files:
        have = included(name, files, texts)
        if header := own_header(name, files):
            if f'"{header}"' in have:
                have |= included(header, files, texts)
        for used, headers in wanted(name, files, own_names):
            if not headers & have:
                best = sorted(headers, key=lambda h: (not h.startswith("<c") and "errno" in h, "fmt/core" not in h, h))[0]
                best = {"<stdint.h>": "<cstdint>"}.get(best, best)
                if best != f'"{name}"':
                    found.setdefault(name, {}).setdefault(best, used)
    return found


def add(path, headers):
    """Inserts includes next to the existing ones; clang-format sorts them."""
    text = path.read_text(encoding="utf-8")
    for header in sorted(headers):
        line = f"#include {header}\n"
        places = [m for m in re.finditer(r'^#include [<"][^>"]+[>"][^\n]*\n', text, re.M)]
        same = [m for m in places if m.group(0)[9] == header[0]]
        own = path.with_suffix(".h").name
        same = [m for m in same if not (header[0] == '"' and m.group(0).rstrip().endswith(f'/{own}"'))]
        plain = [m for m in same if not re.search(r"hwy/|targets\.h|-inl\.h", m.group(0))]
        if header[0] == "<":
            plain = [m for m in plain if not re.search(r"fmt/|/|\.h>", m.group(0))] or plain
        if plain:
            at = plain[0].start()
            text = text[:at] + line + text[at:]
        elif places:
            first = places[0]
            mine = first.group(0).rstrip().endswith(f'/{own}"')
            at = first.end() if mine else (first.start() if header[0] == "<" else places[-1].end())
            text = text[:at] + ("\n" if mine or header[0] == '"' else "") + line + ("\n" if not mine else "") + text[at:]
        elif "#pragma once\n" in text:
            text = text.replace("#pragma once\n", "#pragma once\n" + line, 1)
        else:
            lead = re.match(r"(?://[^\n]*\n)*", text).end()
            text = text[:lead] + line + "\n" + text[lead:]
    path.write_text(text, encoding="utf-8")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--fix"]
    source = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent / "src")
    found = missing(source)
    if "--fix" in sys.argv:
        for name, headers in found.items():
            add(source / name, headers)
        print("\n".join(found))
        return 0
    lines = [f"{name}: uses {used}, does not include {header}"
             for name, headers in found.items() for header, used in headers.items()]
    print("\n".join(lines) if lines else "includes: ok")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
