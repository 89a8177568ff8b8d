"""Every public name, here and in the low-level module, has a docstring; those of the package also have annotations and a
readable repr."""
import inspect
import pydoc
import re
import unittest

import libds.jax
from support import host_engine, libds, linear_engine, linear_graph


def public(owner):
    return [(name, one) for name, one in vars(owner).items() if not name.startswith("_")]


class Docs(unittest.TestCase):
    def test_everything_public_has_a_docstring(self):
        bare = [name for name in libds.__all__ if not (getattr(libds, name).__doc__ or "").strip()]
        classes = [one for one in vars(libds).values() if inspect.isclass(one) and one.__module__.startswith("libds.")]
        classes.append(libds.jax.Optimizer)
        self.assertGreater(len(classes), 25)
        for cls in classes:
            for name, one in public(cls):
                one = one.__func__ if isinstance(one, classmethod) else one
                if (inspect.isfunction(one) or isinstance(one, property)) and not (one.__doc__ or "").strip():
                    bare.append(f"{cls.__name__}.{name}")
        self.assertEqual(bare, [])
        functions = [(name, one) for name, one in public(libds.lowlevel) if inspect.isfunction(one)]
        self.assertGreater(len(functions), 80)
        self.assertEqual([name for name, one in functions if not (one.__doc__ or "").strip()], [])
        self.assertEqual([name for name, one in functions if re.search(r"\{\w+\.\w", one.__doc__)], [], "tags of ds.h")

    def test_everything_public_is_annotated(self):
        bare = []
        for name, owner in [(name, getattr(libds, name)) for name in libds.__all__] + [("jax.Optimizer", libds.jax.Optimizer)]:
            members = [(f"{name}.{member}", one) for member, one in public(owner)] if inspect.isclass(owner) else [(name, owner)]
            for label, one in members:
                if inspect.isfunction(one) and one.__module__.startswith("libds.") and one.__module__ != "libds.ops":
                    signature = inspect.signature(one)
                    wanted = [p for p in signature.parameters.values() if p.name != "self"]
                    if signature.return_annotation is signature.empty or any(p.annotation is p.empty for p in wanted):
                        bare.append(label)
        self.assertEqual(bare, [])

    def test_help_and_repr_are_readable(self):
        text = pydoc.plain(pydoc.render_doc(libds.Engine))
        for words in ("train_batch", "docs/reference/config.md", 'engine["lr"]', "ZeRO"):
            self.assertIn(words, text)
        graph, engine, host = linear_graph(), linear_engine(), host_engine()
        with host.gathered() as lease:
            shown = [repr(one) for one in (graph, engine, host, lease, libds.zeros(2), libds.Comm("self"), engine.param("w"),
                                           libds.Plan({"train_batch_size": 4}, graph), graph.find("y"), libds.StopFlag())]
        self.assertEqual(shown, [
            "Graph('graph linear n<=4', 8 lines)", "Engine(step 0, 2 parameters)", "DelegateEngine(step 0, 1 parameters)", "Lease(p)",
            "Tensor([0.0, 0.0], dtype='f32')", "Comm(rank=0, size=1)", "Param(number=0, name='w', shape=(2, 3))",
            "Plan(rank=0, size=1)", "Value(4, shape=(None, 2), dtype='f32')", "StopFlag(not set)"])


if __name__ == "__main__":
    unittest.main()
