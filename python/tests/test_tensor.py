"""Tensors by DLPack, beside NumPy's own."""

import gc
import sys

import numpy as np
import pytest

import polygrad

DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


def example(dtype, shape=(2, 3)):
    return np.array(np.arange(np.prod(shape)).reshape(shape) % 2, dtype)


def pointer(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 0), (1, 2, 1, 2, 1, 2, 1, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_is_shared_both_ways(dtype, shape):
    array = example(dtype, shape)
    tensor = polygrad.from_dlpack(array)
    assert (tensor.shape, tensor.ndim, tensor.dtype) == (shape, len(shape), dtype)
    assert tensor.__dlpack_device__() == (1, 0)
    back = np.from_dlpack(tensor)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    if array.size:
        assert pointer(back) == pointer(array)
        assert pointer(tensor.numpy()) == pointer(array) == pointer(np.asarray(tensor))
    assert not back.flags.writeable


def test_the_last_owner_frees_the_memory():
    array = example("float32", (1000,))
    before = sys.getrefcount(array)
    tensor = polygrad.from_dlpack(array)
    assert sys.getrefcount(array) == before + 1
    back = np.from_dlpack(tensor)
    copy, address = array.copy(), pointer(array)
    del array, tensor
    gc.collect()
    assert pointer(back) == address
    np.testing.assert_array_equal(back, copy)


def test_references_hold_in_a_loop():
    array = example("int64")
    before = sys.getrefcount(array)
    for _ in range(100_000):
        np.from_dlpack(polygrad.from_dlpack(array))
    tensor = polygrad.from_dlpack(array)
    capsules = sys.getrefcount(tensor)
    for version in [None, (1, 0)]:
        for _ in range(1000):
            # Never taken over.
            tensor.__dlpack__(max_version=version)
    assert sys.getrefcount(tensor) == capsules
    del tensor
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[:, ::-1],
        lambda x: x[::2],
        lambda x: np.broadcast_to(x[0], (3, 4)),
        np.asfortranarray,
    ],
)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float64"])
def test_what_is_not_contiguous_is_copied(view, dtype):
    array = view(example(dtype, (5, 4)))
    tensor = polygrad.from_dlpack(array)
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert pointer(tensor.numpy()) != pointer(array)
    with pytest.raises(polygrad.Error, match="does not lie row by row.*copy=False"):
        polygrad.from_dlpack(array, copy=False)


def test_memory_that_is_not_aligned_is_copied():
    array = np.frombuffer(b"\0" + example("float32").tobytes(), "uint8")[1:].view("float32")
    np.testing.assert_array_equal(polygrad.from_dlpack(array).numpy(), example("float32").ravel())


def test_read_only_memory_is_shared():
    array = example("float32")
    array.flags.writeable = False
    assert pointer(polygrad.from_dlpack(array).numpy()) == pointer(array)


def test_copies_are_writable_and_apart():
    array = example("float32")
    tensor = polygrad.from_dlpack(array, copy=True)
    array[:] = 7
    assert tensor.numpy().max() == 1
    copy = np.from_dlpack(tensor, copy=True)
    copy[:] = 5
    assert tensor.numpy().max() == 1


def test_bool_that_is_none_is_refused():
    with pytest.raises(polygrad.ArgumentError, match="neither 0 nor 1"):
        polygrad.from_dlpack(np.array([0, 1, 2], "uint8").view("bool"))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "uint64", "complex64"])
def test_dtypes_that_there_are_not(dtype):
    with pytest.raises(polygrad.ArgumentError, match=f"no tensors of {dtype}.*uint8, int32") as caught:
        polygrad.from_dlpack(np.zeros(2, dtype))
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, RuntimeError)
    assert caught.value.kind == "wrong dtype"


class Exporter:
    """Exports another's tensor with what the test wants changed."""

    def __init__(self, inner, device=(1, 0), legacy=False):
        self.inner, self.device, self.legacy = inner, device, legacy

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **settings):
        if self.legacy and settings:
            raise TypeError("what are versions?")
        return self.inner.__dlpack__(**settings)


def test_exporters_of_before_version_1():
    array = example("int32")
    tensor = polygrad.from_dlpack(Exporter(array, legacy=True))
    assert pointer(tensor.numpy()) == pointer(array)


def test_memory_of_other_devices_is_refused():
    with pytest.raises(BufferError, match=r"\(2, 0\).*\.cpu\(\)"):
        polygrad.from_dlpack(Exporter(example("float32"), device=(2, 0)))


def test_capsules_are_taken_over_once():
    capsule = example("float32").__dlpack__()

    class Twice:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **settings):
            return capsule

    polygrad.from_dlpack(Twice())
    with pytest.raises(BufferError, match="taken over"):
        polygrad.from_dlpack(Twice())


def test_what_cannot_be_exported_is_told():
    tensor = polygrad.from_dlpack(example("float32"))
    for settings, text in [
        ({"stream": 1}, "no streams"),
        ({"dl_device": (2, 0)}, r"device \(2, 0\)"),
    ]:
        with pytest.raises(BufferError, match=text):
            tensor.__dlpack__(**settings)
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 1)))
    assert '"dltensor"' in repr(tensor.__dlpack__())


def test_consumers_of_before_version_1_share_the_memory():
    tensor = polygrad.from_dlpack(example("int32"))
    again = polygrad.from_dlpack(Exporter(tensor, legacy=True))
    assert pointer(again.numpy()) == pointer(tensor.numpy())


def test_objects_without_dlpack_are_refused():
    with pytest.raises(TypeError, match="list has no __dlpack__.*numpy.asarray"):
        polygrad.from_dlpack([1, 2])


def test_arrays_of_numpy_are_made_of_tensors():
    tensor = polygrad.from_dlpack(example("float32"))
    assert np.asarray(tensor, dtype="float64").dtype == np.float64
    assert np.array(tensor).flags.writeable
    assert len(tensor) == 2 and "float32" in repr(tensor)
    with pytest.raises(TypeError):
        len(polygrad.from_dlpack(np.float32(1).reshape(())))


def test_bfloat16_goes_to_those_who_have_it():
    torch = pytest.importorskip("torch")
    tensor = polygrad.from_dlpack(torch.arange(6).to(torch.bfloat16))
    assert tensor.dtype == "bfloat16"
    with pytest.raises(polygrad.Error, match="NumPy has no bfloat16"):
        tensor.numpy()
    assert torch.equal(torch.from_dlpack(tensor), torch.arange(6).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_pytorch_shares_the_memory(dtype):
    torch = pytest.importorskip("torch")
    theirs = torch.arange(6).to(getattr(torch, dtype))
    tensor = polygrad.from_dlpack(theirs)
    back = torch.from_dlpack(tensor)
    assert back.data_ptr() == theirs.data_ptr() and torch.equal(back, theirs)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_jax_shares_the_memory(dtype):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    theirs = jax.numpy.arange(32).astype(dtype)
    tensor = polygrad.from_dlpack(theirs)
    back = jax.dlpack.from_dlpack(tensor)
    assert back.unsafe_buffer_pointer() == theirs.unsafe_buffer_pointer()
    assert (np.asarray(back) == np.asarray(theirs)).all()
