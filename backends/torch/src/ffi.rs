//! LibTorch's own C interface, for functions that tch does not expose: views without autograd, memory with an owner,
//! and ops that tch leaves out.
//!
//! LibTorch guarantees that this interface stays compatible between versions. Its tensor handle is a pointer to an
//! `at::Tensor` from `new`, which is also what a [`tch::Tensor`] holds, so the two are interchangeable.

#![allow(unsafe_code, reason = "a C interface")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use polygrad_core::{DType, HostBytes, MAX_RANK, Result, Shape};
use tch::Tensor;

use crate::error;

/// `AtenTensorHandle`: an `at::Tensor *`.
type Handle = *mut c_void;
/// `StableListHandle`.
type List = *mut c_void;
/// `AOTITorchError`: 0 for success.
type Code = i32;

unsafe extern "C" {
    fn aoti_torch_get_dim(x: Handle, out: *mut i64) -> Code;
    fn aoti_torch_get_sizes(x: Handle, out: *mut *const i64) -> Code;
    fn aoti_torch_get_strides(x: Handle, out: *mut *const i64) -> Code;
    fn aoti_torch_get_dtype(x: Handle, out: *mut i32) -> Code;
    fn aoti_torch_get_data_ptr(x: Handle, out: *mut *mut c_void) -> Code;
    fn aoti_torch_new_tensor_handle(x: Handle, out: *mut Handle) -> Code;
    fn aoti_torch_abi_version() -> u64;
    fn aoti_torch__reinterpret_tensor(
        x: Handle,
        ndim: i64,
        sizes: *const i64,
        strides: *const i64,
        offset: i64,
        out: *mut Handle,
    ) -> Code;
    fn aoti_torch_cpu_convolution_backward(
        grad: Handle,
        input: Handle,
        weight: Handle,
        bias_sizes: *const *const i64,
        bias_sizes_len: i64,
        stride: *const i64,
        stride_len: i64,
        padding: *const i64,
        padding_len: i64,
        dilation: *const i64,
        dilation_len: i64,
        transposed: i32,
        output_padding: *const i64,
        output_padding_len: i64,
        groups: i64,
        mask: *const i32,
        mask_len: i64,
        input_grad: *mut Handle,
        weight_grad: *mut Handle,
        bias_grad: *mut Handle,
    ) -> Code;
    fn torch_from_blob(
        data: *mut c_void,
        ndim: i64,
        sizes: *const i64,
        strides: *const i64,
        offset: i64,
        dtype: i32,
        device_type: i32,
        device_index: i32,
        out: *mut Handle,
        layout: i32,
        metadata: *const u8,
        metadata_size: i64,
        deleter: extern "C" fn(*mut c_void, *mut c_void),
        context: *mut c_void,
    ) -> Code;
    fn torch_call_dispatcher(op: *const c_char, overload: *const c_char, stack: *mut u64, version: u64) -> Code;
    fn torch_new_list_reserve_size(size: usize, out: *mut List) -> Code;
    fn torch_list_push_back(list: List, element: u64) -> Code;
    fn torch_new_stable_ivalue(out: *mut *mut u64) -> Code;
    fn torch_exception_get_what_without_backtrace() -> *const c_char;
}

fn handle(x: &Tensor) -> Handle {
    x.as_ptr().cast_mut().cast()
}

/// Takes ownership of a handle from a call above.
///
/// # Safety
/// The handle must come from a call that returns a new one, and be taken only once.
unsafe fn own(handle: Handle) -> Tensor {
    // SAFETY: both sides hold `new at::Tensor`, and free it with `delete`; the caller passes the ownership.
    unsafe { Tensor::from_ptr(handle.cast()) }
}

fn check(code: Code, op: &'static str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: returns null, or a string that stays valid until this thread's next call.
    let text = unsafe {
        let text = torch_exception_get_what_without_backtrace();
        if text.is_null() {
            "LibTorch gives no reason".into()
        } else {
            CStr::from_ptr(text).to_string_lossy()
        }
    };
    Err(error::from_text(op, &text))
}

/// LibTorch's description of a tensor: the number of its dtype, extents and strides.
pub(crate) fn describe(x: &Tensor) -> Result<(i32, &[i64], &[i64])> {
    let x = handle(x);
    let (mut dim, mut dtype, mut sizes, mut strides) = (0, 0, ptr::null(), ptr::null());
    // SAFETY: the handle is alive; sizes and strides are borrowed from the tensor, `dim` numbers each, and do not
    // change while it lives, since nothing here resizes a tensor.
    unsafe {
        check(aoti_torch_get_dim(x, &raw mut dim), "dim")?;
        check(aoti_torch_get_dtype(x, &raw mut dtype), "dtype")?;
        check(aoti_torch_get_sizes(x, &raw mut sizes), "size")?;
        check(aoti_torch_get_strides(x, &raw mut strides), "stride")?;
        if dim == 0 {
            return Ok((dtype, &[], &[]));
        }
        let dim = dim as usize;
        Ok((
            dtype,
            std::slice::from_raw_parts(sizes, dim),
            std::slice::from_raw_parts(strides, dim),
        ))
    }
}

/// A view of a tensor's memory, `offset` elements after its first; unknown to autograd.
pub(crate) fn view(x: &Tensor, shape: &Shape, strides: &[isize], offset: usize) -> Result<Tensor> {
    let mut sizes = [0i64; MAX_RANK];
    let mut steps = [0i64; MAX_RANK];
    for (axis, (&dim, &stride)) in shape.iter().zip(strides).enumerate() {
        sizes[axis] = dim as i64;
        steps[axis] = stride as i64;
    }
    let mut out = ptr::null_mut();
    // SAFETY: the handle is alive, both arrays have `rank` numbers, and the result is a new handle.
    unsafe {
        check(
            aoti_torch__reinterpret_tensor(
                handle(x),
                shape.rank() as i64,
                sizes.as_ptr(),
                steps.as_ptr(),
                offset as i64,
                &raw mut out,
            ),
            "view",
        )?;
        Ok(own(out))
    }
}

/// The address of a tensor's first element, in the memory of its device.
pub(crate) fn data(x: &Tensor) -> *const u8 {
    let mut out = ptr::null_mut();
    // SAFETY: the handle is alive.
    let code = unsafe { aoti_torch_get_data_ptr(handle(x), &raw mut out) };
    if code == 0 {
        out.cast_const().cast()
    } else {
        ptr::null()
    }
}

/// LibTorch's number for a dtype.
pub(crate) const fn code(dtype: DType) -> i32 {
    match dtype {
        DType::U8 => 0,
        DType::I32 => 3,
        DType::I64 => 4,
        DType::F16 => 5,
        DType::F32 => 6,
        DType::F64 => 7,
        DType::Bool => 11,
        DType::BF16 => 15,
    }
}

/// A host tensor's memory as a tensor of LibTorch, which keeps the memory alive. It must not be written.
pub(crate) fn share(memory: Arc<dyn HostBytes>, shape: &Shape, dtype: DType) -> Result<Tensor> {
    extern "C" fn release(_: *mut c_void, context: *mut c_void) {
        // SAFETY: `context` is the box that was passed below, and LibTorch calls this once.
        drop(unsafe { Box::from_raw(context.cast::<Arc<dyn HostBytes>>()) });
    }
    let (mut sizes, mut strides) = ([0i64; MAX_RANK], [0i64; MAX_RANK]);
    for (axis, (&dim, stride)) in shape.iter().zip(shape.contiguous_strides()).enumerate() {
        sizes[axis] = dim as i64;
        strides[axis] = stride as i64;
    }
    let data = memory.bytes().as_ptr().cast_mut().cast();
    let context = Box::into_raw(Box::new(memory));
    let mut out = ptr::null_mut();
    // SAFETY: the memory holds the shape's elements, and lives until `release` drops its owner. LibTorch takes a
    // mutable pointer, but its ops change only their outputs, and a tensor that shares memory is never an output.
    unsafe {
        let made = torch_from_blob(
            data,
            shape.rank() as i64,
            sizes.as_ptr(),
            strides.as_ptr(),
            0,
            code(dtype),
            0,
            // The CPU has no index.
            -1,
            &raw mut out,
            0,
            ptr::null(),
            0,
            release,
            context.cast(),
        );
        check(made, "from_host")?;
        Ok(own(out))
    }
}

/// The wanted gradient of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Input,
    Weight,
}

/// `aten::convolution_backward`, computing only one of the gradients.
pub(crate) fn convolution_backward(
    op: &'static str,
    grad: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    [stride, padding, dilation]: [&[i64]; 3],
    groups: usize,
    wanted: Wanted,
) -> Result<Tensor> {
    let n = stride.len() as i64;
    let mask = [
        i32::from(wanted == Wanted::Input),
        i32::from(wanted == Wanted::Weight),
        0,
    ];
    let none = [0i64; 3];
    let mut out = [ptr::null_mut(); 3];
    let [input_grad, weight_grad, bias_grad] = &mut out;
    // SAFETY: the handles are alive, each array has the length that is passed, and each result is null or a new handle.
    unsafe {
        let done = aoti_torch_cpu_convolution_backward(
            handle(grad),
            handle(input),
            handle(weight),
            ptr::null(),
            0,
            stride.as_ptr(),
            n,
            padding.as_ptr(),
            n,
            dilation.as_ptr(),
            n,
            0,
            none.as_ptr(),
            n,
            groups as i64,
            mask.as_ptr(),
            3,
            input_grad,
            weight_grad,
            bias_grad,
        );
        check(done, op)?;
        let [input_grad, weight_grad, bias_grad] = out.map(|out| (!out.is_null()).then(|| own(out)));
        drop(bias_grad);
        let gradient = if wanted == Wanted::Input {
            input_grad
        } else {
            weight_grad
        };
        gradient.ok_or_else(|| error::from_text(op, "LibTorch gave no gradient"))
    }
}

/// An argument of an op that is called by its name.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Tensor(&'a Tensor),
    /// `Tensor?`.
    Maybe(Option<&'a Tensor>),
    /// `Tensor[]` with one tensor, or none.
    List(Option<&'a Tensor>),
    /// `SymInt[]`.
    Ints(&'a [i64]),
    /// `bool[3]`.
    Mask([bool; 3]),
    Bool(bool),
    Float(f64),
}

impl Arg<'_> {
    /// The argument in the dispatcher's form. Handles, lists and boxes are new, since the dispatcher takes ownership.
    fn pass(self, op: &'static str) -> Result<u64> {
        let tensor = |x: &Tensor| -> Result<u64> {
            let mut out = ptr::null_mut();
            // SAFETY: the handle is alive.
            check(unsafe { aoti_torch_new_tensor_handle(handle(x), &raw mut out) }, op)?;
            Ok(out as u64)
        };
        Ok(match self {
            Self::Tensor(x) => tensor(x)?,
            Self::Maybe(None) => 0,
            Self::Maybe(Some(x)) => {
                let mut cell = ptr::null_mut();
                // SAFETY: returns a new cell of 64 bits.
                unsafe {
                    check(torch_new_stable_ivalue(&raw mut cell), op)?;
                    *cell = tensor(x)?;
                }
                cell as u64
            }
            Self::List(x) => list(op, x.map(tensor).transpose()?.as_slice())?,
            Self::Ints(values) => {
                let mut bits = [0; MAX_RANK];
                for (bits, &value) in bits.iter_mut().zip(values) {
                    *bits = value as u64;
                }
                list(op, &bits[..values.len().min(MAX_RANK)])?
            }
            Self::Mask(mask) => list(op, &mask.map(u64::from))?,
            Self::Bool(value) => value.into(),
            Self::Float(value) => value.to_bits(),
        })
    }
}

fn list(op: &'static str, elements: &[u64]) -> Result<u64> {
    let mut list = ptr::null_mut();
    // SAFETY: a new list, into which elements are moved.
    unsafe {
        check(torch_new_list_reserve_size(elements.len(), &raw mut list), op)?;
        for &element in elements {
            check(torch_list_push_back(list, element), op)?;
        }
    }
    Ok(list as u64)
}

/// Calls an op of LibTorch by its name. `R` is the number of tensors that its schema returns, and `args` must match the
/// schema.
///
/// # Safety
/// The types and numbers of arguments and results must match the op's schema, since LibTorch interprets the bits
/// accordingly.
pub(crate) unsafe fn call<const R: usize>(op: &'static str, name: &CStr, args: &[Arg<'_>]) -> Result<[Tensor; R]> {
    let mut stack = [0u64; 16];
    for (slot, arg) in stack.iter_mut().zip(args) {
        *slot = arg.pass(op)?;
    }
    // SAFETY: the caller guarantees the schema; no op that is called has more than 16 arguments; results are new
    // handles.
    unsafe {
        let done = torch_call_dispatcher(
            name.as_ptr(),
            c"".as_ptr(),
            stack.as_mut_ptr(),
            aoti_torch_abi_version(),
        );
        check(done, op)?;
        Ok(std::array::from_fn(|i| own(stack[i] as Handle)))
    }
}
