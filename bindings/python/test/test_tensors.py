"""Tensors: memory is shared by address in every direction and kept as long as anything refers to it; bad arrays are
refused."""
import array
import ctypes
import gc
import unittest
import weakref

from support import host_engine, libds, linear_batch, linear_engine, np


class OnlyDlpack:
    """An object that shares its memory only by DLPack, as a torch tensor does."""

    def __init__(self, source):
        self._source = source

    def __dlpack__(self, stream=None):
        return self._source.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class Tensors(unittest.TestCase):
    def test_arrays_are_shared_by_address(self):
        for dtype, name in [("f4", "f32"), ("f2", "f16"), ("f8", "f64"), ("i4", "i32"), ("i8", "i64"), ("u1", "u8")]:
            source = np.arange(6).astype(dtype).reshape(2, 3)
            for tensor in (libds.Tensor(source), libds.Tensor(OnlyDlpack(source)), libds.Tensor(source.__dlpack__())):
                self.assertEqual((tensor.dtype, tensor.shape, tensor.data_ptr), (name, (2, 3), source.ctypes.data))
                for back in (np.asarray(tensor), np.from_dlpack(tensor), tensor.numpy()):
                    self.assertEqual((back.ctypes.data, back.dtype), (source.ctypes.data, source.dtype))
                self.assertEqual(tensor.tolist(), source.tolist())
                tensor.numpy()[0, 0] = 9
                self.assertEqual(source[0, 0], 9)

    def test_buffers_of_python_s_own_types(self):
        floats = array.array("f", [1, 2, 3])
        tensor = libds.Tensor(floats)
        self.assertEqual(tensor.data_ptr, floats.buffer_info()[0])
        with self.assertRaises(BufferError):
            floats.append(4)
        tensor.close()
        floats.append(4)
        self.assertEqual(libds.Tensor(bytearray(b"ab")).tolist(), [97, 98])
        longs = (ctypes.c_long * 3)(1, 2, 3)
        self.assertEqual((libds.Tensor(longs).dtype, libds.Tensor(longs).tolist()), ("i64", [1, 2, 3]))

    def test_bf16_arrays_have_the_bits_as_uint16(self):
        bits = np.array([0x3F80, 0xC000], np.uint16)
        tensor = libds.Tensor(bits, dtype="bf16")
        self.assertEqual((tensor.dtype, tensor.tolist(), tensor.data_ptr), ("bf16", [1, -2], bits.ctypes.data))
        self.assertEqual(tensor.numpy().dtype, np.uint16)
        self.assertEqual(libds.tensor([1.0, 3.140625, float("inf")], dtype="bf16").tolist(), [1, 3.140625, float("inf")])
        self.assertTrue(np.isnan(libds.tensor([float("nan")], dtype="bf16").tolist()[0]))
        with self.assertRaises(TypeError):
            # uint16 without a dtype does not mean bf16.
            libds.Tensor(bits)

    def test_read_only_memory_stays_read_only(self):
        tensor = libds.Tensor(b"\x01\x02")
        self.assertTrue(tensor.readonly and memoryview(tensor).readonly)
        self.assertFalse(np.asarray(tensor).flags.writeable)
        with self.assertRaises(BufferError):
            # DLPack before 1.0 cannot express it.
            tensor.__dlpack__()
        with self.assertRaises(libds.InvalidArgument):
            tensor.copy_(np.zeros(2, np.uint8))

    def test_new_tensors_have_the_values_and_types_given(self):
        self.assertEqual(libds.tensor([[1, 2], [3, 4]]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual((libds.tensor([1.5]).dtype, libds.tensor([1]).dtype, libds.tensor(2.5).shape), ("f32", "i32", ()))
        self.assertEqual((libds.zeros(3).tolist(), libds.zeros((0, 2)).shape), ([0, 0, 0], (0, 2)))
        self.assertEqual(libds.zeros([2], np.float64).copy_(np.float64([1, 2])).tolist(), [1, 2])
        self.assertEqual(libds.tensor([0.5], dtype="f16").tolist(), [0.5])
        with self.assertRaises(libds.InvalidArgument):
            libds.tensor([[1], [2, 3]])
        with self.assertRaises(libds.InvalidArgument):
            libds.zeros(3, "f33")
        with self.assertRaises(libds.InvalidArgument):
            libds.zeros(2).copy_(libds.zeros(3))

    def test_memory_lives_as_long_as_anything_shows_it(self):
        view = np.asarray(libds.tensor([1.0] * 1000))
        part = memoryview(libds.tensor([2.0] * 1000))[10:20]
        shared = np.from_dlpack(libds.tensor([3.0] * 1000))
        closed = libds.tensor([4.0] * 1000)
        last = np.asarray(closed)
        closed.close()
        gc.collect()
        rubbish = [libds.tensor([9.0] * 1000) for _ in range(100)]
        self.assertEqual((view.sum(), sum(part), shared.sum(), last.sum()), (1000, 20, 3000, 4000))
        del rubbish

    def test_sources_live_as_long_as_their_tensors(self):
        source = np.zeros(1000, np.float32)
        gone = weakref.ref(source)
        tensors = [libds.Tensor(source), libds.Tensor(OnlyDlpack(source)), libds.Tensor(libds.Tensor(source))]
        del source
        self.assertIsNotNone(gone())
        kept = np.asarray(tensors[2])
        for tensor in tensors:
            tensor.close()
        self.assertIsNotNone(gone())
        del kept
        gc.collect()
        self.assertIsNone(gone())

    def test_a_closed_tensor_raises(self):
        tensor = libds.zeros(3)
        with tensor:
            pass
        tensor.close()
        for use in (lambda: tensor.shape, lambda: memoryview(tensor), tensor.numpy, lambda: np.asarray(tensor), tensor.tolist, tensor.__dlpack__,
                    lambda: tensor.dtype, lambda: libds.zeros(3).copy_(tensor), lambda: tensor.data_ptr):
            with self.assertRaises((libds.StateError, BufferError)):
                use()
        self.assertEqual(repr(tensor), "Tensor(closed)")
        with host_engine(3) as engine, self.assertRaisesRegex(libds.StateError, "this Tensor is closed"):
            engine.grad_ready("p", tensor)

    def test_strides_are_kept(self):
        source = np.arange(24, dtype=np.float32).reshape(4, 6)
        for view in (source[:, ::2], source.T, source[::-1], source[1:3, ::-3]):
            for tensor in (libds.Tensor(view), libds.Tensor(OnlyDlpack(view))):
                self.assertEqual((tensor.data_ptr, tensor.shape), (view.ctypes.data, view.shape))
                self.assertEqual([4 * stride for stride in tensor.strides], list(view.strides))
                for back in (np.asarray(tensor), np.from_dlpack(tensor)):
                    self.assertEqual((back.ctypes.data, back.tolist()), (view.ctypes.data, view.tolist()))
                self.assertEqual(tensor.tolist(), view.tolist())
                self.assertEqual(libds.zeros(view.shape).copy_(tensor).tolist(), view.tolist())
                with self.assertRaises(TypeError):
                    memoryview(tensor).cast("B")
        with linear_engine() as straight, linear_engine() as strided:
            x, target = linear_batch()
            wide = np.repeat(x, 2, axis=1)[:, ::2]
            self.assertEqual(strided.train_batch(wide, target.T.copy().T), straight.train_batch(x, target))
            self.assertEqual(strided.read("w").tolist(), straight.read("w").tolist())

    def test_capsules_of_both_versions_are_exchanged(self):
        source = np.arange(4, dtype=np.float32)
        tensor = libds.Tensor(source)
        for version, name in [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"), ((2, 1), "dltensor_versioned")]:
            capsule = tensor.__dlpack__(max_version=version)
            self.assertIn(f'"{name}"', repr(capsule))
            again = libds.Tensor(capsule)
            self.assertIn(f'"used_{name}"', repr(capsule))
            self.assertEqual(again.data_ptr, source.ctypes.data)
        source.setflags(write=False)
        fixed = libds.Tensor(libds.Tensor(source).__dlpack__(max_version=(1, 0)))
        self.assertTrue(fixed.readonly)
        with self.assertRaises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))

    def test_bad_arrays_are_refused_and_stay_usable(self):
        for bad in (np.zeros(3, bool), np.zeros(3, np.complex64), np.zeros(3, ">f4"), np.zeros(3, np.int16), np.array(["a"])):
            with self.assertRaisesRegex(TypeError, "float32"):
                libds.Tensor(bad)
        for bad in (3, [1, 2], None, "text"):
            with self.assertRaises(TypeError):
                libds.Tensor(bad)
        with self.assertRaises(ValueError):
            libds.Tensor(np.zeros((1,) * 9, np.float32))
        broken = np.zeros((2, 6), np.uint8)[:, 1:5].view(np.float32)  # strides of 6 bytes
        with self.assertRaises((ValueError, libds.Unsupported)):
            libds.Tensor(broken)


class Wrong(unittest.TestCase):
    def test_arguments_that_are_not_arrays_are_refused_by_name(self):
        class Junk:
            def __init__(self, made):
                self.made = made

            def __dlpack__(self, **_):
                return self.made()

        tensor = libds.zeros([2])
        taken = tensor.__dlpack__()
        libds.Tensor(taken)
        for source, kind, words in ((Junk(lambda: None), TypeError, "__dlpack__ returns must be a capsule, got NoneType"),
                                    (Junk(lambda: 1 / 0), BufferError, "ZeroDivisionError"), (taken, ValueError, "has not been consumed"),
                                    ([1.0], TypeError, "got list"), (np.zeros(2, complex), TypeError, "'Zd'")):
            for call in (lambda s=source: libds.Tensor(s), lambda s=source: tensor.copy_(s)):
                with self.assertRaisesRegex(kind, f"^source: .*{words}"):
                    call()

    def test_a_class_that_does_not_call_the_inherited_init_is_refused(self):
        class Mine(libds.Tensor):
            def __init__(self):
                pass

        class Group(libds.Comm):
            def __init__(self):
                pass

        for call in (lambda: Mine().shape, lambda: memoryview(Mine()), lambda: Mine().numpy(), lambda: Group().size, lambda: Group().barrier()):
            with self.assertRaisesRegex(libds.StateError, "was not initialized: the __init__ of its class must call libds"):
                call()

    def test_numbers_that_the_element_type_cannot_hold_are_refused(self):
        for values, dtype in (([2 ** 40], None), ([[1, 256]], "u8"), (10 ** 400, "f64"), ([1.5], "i32")):
            with self.assertRaisesRegex(libds.InvalidArgument, "values must be numbers that .* can hold"):
                libds.tensor(values, dtype)


if __name__ == "__main__":
    unittest.main()
