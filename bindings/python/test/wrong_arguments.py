"""Every public call of the package with wrong arguments, one at a time. tests/attack/misuse.py also uses these calls.

The table of calls is read from the package. `wrong_calls` tries values of every kind as each argument of each call, and
`verdict` judges the result of each call: a value of another kind than the annotation names must be refused, and the message
must name the argument.
"""
import array
import functools
import inspect
import math
import operator
import random
import typing

import libds
from libds import ops

MODEL = {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 256, "positions": 32}
CONFIG = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}}
HUGE = 1 << 70
ALLOWED = (TypeError, ValueError, BufferError, OSError, libds.Error)
NEVER = (libds.InternalError, libds.PoisonedError, libds.CorruptError)
MADE_BY_LIBDS = ("Value", "Work", "Lease", "Error", "Param", "Elements", "StepResult", "Progress", "Verdict", "NextLr", "Status", "LogLevel")


class Junk:
    """An object that claims to be an array without being one."""

    def __init__(self, made):
        self.made = made

    def __dlpack__(self, **_):
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


class Unmade(libds.Tensor):
    def __init__(self):  # pylint: disable=super-init-not-called
        pass


def closed():
    tensor = libds.zeros([3])
    tensor.close()
    return tensor


VALUES = {
    "None": lambda: None, "5": lambda: 5, "-1": lambda: -1, "1.5": lambda: 1.5, "nan": lambda: math.nan, "inf": lambda: math.inf,
    "2**70": lambda: HUGE, "'x'": lambda: "x", "''": lambda: "", "'a\\0b'": lambda: "a\0b", "'\\udcff'": lambda: "\udcff", "b'x'": lambda: b"x",
    "object": object, "[]": lambda: [], "[1.5]": lambda: [1.5], "[2**70]": lambda: [HUGE], "[None]": lambda: [None], "[[]]": lambda: [[]],
    "{}": lambda: {}, "a function": lambda: lambda *_: None, "a class": lambda: dict, "a closed tensor": closed, "an unmade tensor": Unmade,
    "f64": lambda: array.array("d", [1.0] * 4), "u8": lambda: bytearray(4), "a strided view": lambda: memoryview(array.array("f", [1.0] * 8))[::2],
    "__dlpack__ that raises": lambda: Junk(KeyError("boom")), "__dlpack__ of None": lambda: Junk(None), "__dlpack__ of 5": lambda: Junk(5),
    "a closed comm": lambda: _ended(libds.Comm("self")), "a closed graph": lambda: _ended(graph()),
}


def _ended(one):
    one.close()
    return one


def graph():
    made = libds.Graph("linear", rows=4)
    x, target = made.input("x", "f32", [None, 3]), made.input("target", "f32", [None, 2])
    made.output("loss", ops.mse(made, ops.linear(made, x, made.param("w", [2, 3], "normal", 0.1)), target))
    return made


def host():
    made = libds.DelegateEngine(CONFIG, threads=1)
    made.add_param("w", [4])
    return made.start()


def value():
    return graph().find("x")


SUBJECTS = {"Comm": lambda: libds.Comm("self"), "Graph": graph, "Plan": lambda: libds.Plan(CONFIG, graph()), "Tensor": lambda: libds.zeros([4]),
            "Engine": lambda: libds.Engine(CONFIG, graph(), threads=1), "DelegateEngine": host, "Value": value, "StopFlag": libds.StopFlag,
            "Monitors": lambda: libds.Monitors({}), "Display": libds.Display}
FLOATS = lambda: array.array("f", [1.0] * 4)  # noqa: E731
#: Good values of the arguments without a default, by name, or by call if the name is ambiguous.
GOOD = {"tensor.values": lambda: [1.0], "config": lambda: {}, "patch": lambda: {}, "model": lambda: "no-such-folder", "data": FLOATS, "source": FLOATS, "values": FLOATS,
        "grad": FLOATS, "grads": lambda: [FLOATS()], "name": lambda: "w", "shape": lambda: [4], "dtype": lambda: "f32", "folder": lambda: "no-such-folder",
        "path": lambda: "no-such-folder", "param": lambda: "w", "params": lambda: "w", "reason": lambda: "why", "color": lambda: 0, "to": lambda: 0,
        "rank": lambda: 0, "size": lambda: 1, "all_to_all": lambda: lambda *_: [], "text": lambda: "graph", "target": lambda: None,
        "forward": lambda: lambda *_: None, "outputs": lambda: [("f32", [None, 3])], "graph": graph, "index": lambda: 0, "step": lambda: 1,
        "events": lambda: {}, "result": lambda: libds.StepResult(1, 1, 1.0, 1.0, 1.0, False, 1.0, False), "Comm.receive.source": lambda: 0,
        "DelegateEngine.write.values": FLOATS, "convert_checkpoint.source": lambda: "no-such-folder", "convert_checkpoint.target": lambda: "new",
        "Engine.__setitem__.value": lambda: 0.1, "DelegateEngine.__setitem__.value": lambda: 0.1, "Engine.__setitem__.name": lambda: "lr",
        "DelegateEngine.__setitem__.name": lambda: "lr", "DelegateEngine.__getitem__.name": lambda: "lr", "Engine.__getitem__.name": lambda: "lr",
        "Engine.attach.value": FLOATS, "DelegateEngine.attach.value": FLOATS,
        "Engine.write.values": lambda: array.array("f", [1.0] * 6)}
UNUSED = {("Monitors", "resume")}  # only read if a section of the configuration is enabled
OF_GRAPH = ("value", "loss", "values", "inputs")


def _parameters(function):
    parameters = list(inspect.signature(function).parameters.values())
    return [one for one in parameters if one.name not in ("self", "cls") and one.kind is not one.VAR_KEYWORD]


def calls():
    """Yields (name, class or "", parameters) of every public call."""
    for name in libds.__all__:
        one = getattr(libds, name)
        if inspect.isfunction(one):
            yield name, "", _parameters(one)
        elif inspect.isclass(one) and name not in MADE_BY_LIBDS and not issubclass(one, BaseException):
            yield name, "", _parameters(one.__init__)
            for member in dir(one):
                method = inspect.unwrap(getattr(one, member))
                public = not member.startswith("_") or member in ("__getitem__", "__setitem__", "__delitem__")
                if public and callable(method) and not isinstance(inspect.getattr_static(one, member), property):
                    try:
                        yield f"{name}.{member}", name, _parameters(method)
                    except ValueError:  # close() in C, which takes no argument
                        continue
    for name in ops.__all__:
        yield f"ops.{name}", "", _parameters(getattr(ops, name))


def _good(call, parameter, subject):
    if call.startswith("ops.") and parameter.name != "graph" and parameter.kind is not parameter.KEYWORD_ONLY:
        return subject if parameter.annotation is parameter.empty else [subject]
    if call.startswith("Graph.") and parameter.name in OF_GRAPH:
        found = subject.find("x")
        return found if parameter.name in ("value", "loss") else [found]
    if call.startswith("ops.") and parameter.name != "graph":
        return typing.get_args(parameter.annotation)[0] if "Literal" in str(parameter.annotation) else 1
    return GOOD.get(f"{call}.{parameter.name}", GOOD.get(parameter.name))()


def fits(value, parameter):
    """Tells whether a value may be of the kind that an annotation names, so that the call may accept it."""
    words = str(parameter.annotation)
    if parameter.default is None or "None" in words:
        if value is None:
            return True
    if parameter.annotation is parameter.empty:
        return False  # an operand of libds.ops
    if "Any" in words.replace("tuple[Any", "").replace("str, Any", "").replace(", Any]", "").replace("Sequence[Any", ""):
        return not isinstance(value, libds.Tensor)
    if isinstance(value, (bool, int)):
        return value != HUGE and ("int" in words or "float" in words or "ParamLike" in words) or "float" in words
    if isinstance(value, float):
        return "float" in words
    if value == "" and parameter.name in ("like", "resume"):
        return False
    if isinstance(value, str):
        return value not in ("a\0b", "\udcff") and any(word in words for word in ("str", "Path", "Config", "ParamLike", "Literal"))
    if isinstance(value, list):
        return ("Sequence" in words or "Iterable" in words) and (value == [] or value == [None])
    if isinstance(value, dict):
        return any(word in words for word in ("Mapping", "Config", "Iterable", "Sequence"))
    return callable(value) and any(word in words for word in ("Callable", "Init"))


def wrong_calls(dice=random, most=None):
    """Yields (text, thunk) of each argument and each value, or of `most` values of each argument. The thunk makes the call
    and returns what is wrong with its result, or ""."""
    for name, kind, parameters in calls():
        for parameter in parameters:
            for text in VALUES if most is None else dice.sample(list(VALUES), most):
                yield f"{name}({parameter.name}={text})", functools.partial(_verdict, name, kind, parameters, parameter, VALUES[text])


def _verdict(name, kind, parameters, parameter, make):
    given, error = _made(name, kind, parameters, parameter, make)
    return "" if error is None and (name, parameter.name) in UNUSED else verdict(parameter, given, error)


def _made(name, kind, parameters, wrong, make):
    """Makes the call; returns the value of the argument and the result."""
    subject = SUBJECTS[kind]() if kind else value() if name.startswith("ops.") else None
    given, named = [], {}
    wrong_value = make()
    for parameter in parameters:
        if parameter is wrong:
            argument = wrong_value
        elif parameter.kind is parameter.VAR_POSITIONAL or parameter.default is not parameter.empty:
            continue
        elif name.startswith("ops.") and parameter.name == "graph":
            argument = subject.graph
        else:
            argument = _good(name, parameter, subject)
        if parameter.kind is parameter.VAR_POSITIONAL:
            given.append(argument)
        else:
            named[parameter.name] = argument
    function = getattr(subject, name.split(".")[1]) if kind else operator.attrgetter(name)(libds)
    try:
        if given:
            function(*named.values(), *given)
        else:
            result = function(**named)
            if hasattr(result, "__enter__") and name.endswith(("gathered", "evaluating")):
                with result:
                    pass
    except Exception as error:  # pylint: disable=broad-exception-caught
        return wrong_value, error
    finally:
        libds.set_log(None)
    return wrong_value, None


def verdict(parameter, given, error):
    """Returns what is wrong with the result of a call, or ""."""
    fit = fits(given, parameter)
    if error is None:
        return "" if fit else "was taken"
    text = str(error)
    if not isinstance(error, ALLOWED) or isinstance(error, NEVER):
        return f"{type(error).__name__}: {text}"
    if "\n" in text or not text:
        return f"is not one line: {text!r}"
    if fit or parameter.name in text or "closed" in text or "was not initialized" in text or (isinstance(given, str) and repr(given)[1:-1] in text):
        return ""
    return f"does not name {parameter.name}: {type(error).__name__}: {text}"
