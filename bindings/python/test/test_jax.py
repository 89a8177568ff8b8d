"""libds.jax without JAX: importing it needs no other package, and its optimizer says what is missing. tests/interop/jax_host.py
tests it with JAX."""
import sys
import unittest

import libds
import libds.jax


class WithoutJax(unittest.TestCase):
    def test_the_optimizer_names_the_missing_package(self):
        sys.modules["jax"] = None  # makes `import jax` fail, also where it is installed
        with self.assertRaisesRegex(ImportError, "^libds.jax needs the Python package jax, which cannot be imported: [^\n]*$"):
            libds.jax.Optimizer({}, {"train_micro_batch_size_per_gpu": 1})


if __name__ == "__main__":
    unittest.main()
