//! Memory shared by DLPack: import of other libraries' tensors, and export of ours.
//!
//! Source of the layout: `dlpack.h` 1.1, whose structures are compiled into other libraries.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use polygrad::backend::{Element, HostBytes, HostTensor};
use polygrad::{DType, Error, ErrorKind, Result, Shape};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use crate::arrays::Array;

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;

/// The version that we write; consumers must know the major version.
const VERSION: Version = Version { major: 1, minor: 1 };

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

const CONVERTED: &str = "convert it to one of bool, uint8, int32, int64, float16, bfloat16, float32 and float64";

/// The name of a capsule before and after a consumer takes its tensor.
const VERSIONED: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];
const LEGACY: [&CStr; 2] = [c"dltensor", c"used_dltensor"];

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    rank: i32,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    flags: u64,
    tensor: DlTensor,
}

#[repr(C)]
struct LegacyManaged {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut LegacyManaged)>,
}

fn to_dl(dtype: DType) -> DlType {
    let code = match dtype {
        DType::I32 | DType::I64 => 0,
        DType::U8 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
    };
    // At most 8 bytes.
    let bits = 8 * dtype.size() as u8;
    DlType { code, bits, lanes: 1 }
}

fn from_dl(dtype: DlType) -> Result<DType> {
    let found = DType::ALL.into_iter().find(|known| to_dl(*known) == dtype);
    found.ok_or_else(|| {
        let kinds = ["int", "uint", "float", "handle", "bfloat", "complex", "bool"];
        let kind = kinds.get(usize::from(dtype.code)).copied().unwrap_or("type ");
        let lanes = match dtype.lanes {
            1 => String::new(),
            lanes => format!(" in vectors of {lanes}"),
        };
        Error::dtype(format!("there are no tensors of {kind}{}{lanes}", dtype.bits)).with_hint(CONVERTED)
    })
}

// Import.

/// A tensor in foreign memory, which is released when this is dropped.
struct Foreign {
    owner: Owner,
    /// The first element; dangling if there is none.
    data: NonNull<u8>,
    /// Bytes from the first element on, if the tensor is contiguous.
    len: usize,
}

enum Owner {
    Versioned(NonNull<Managed>),
    Legacy(NonNull<LegacyManaged>),
    /// An object that keeps a NumPy array alive.
    Array(NonNull<ffi::PyObject>),
}

// SAFETY: the memory belongs to the exporter, which accepts calls of its deleter from any thread (DLPack demands it),
// or to an object, whose reference is released while the interpreter is attached; we only read the memory.
unsafe impl Send for Foreign {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Foreign {}

impl HostBytes for Foreign {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `data` is the first of `len` bytes of a contiguous tensor, or dangling with `len` 0. The exporter
        // keeps them until `drop` calls its deleter. `from_dlpack` requires its caller to prevent writes meanwhile.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // Exporters release Python references, which is not needed once the interpreter has ended.
        let _ = Python::try_attach(|_| match self.owner {
            // SAFETY: the deleter belongs to the pointer, and this, its only owner, calls it once.
            Owner::Versioned(managed) => unsafe {
                if let Some(deleter) = managed.as_ref().deleter {
                    deleter(managed.as_ptr());
                }
            },
            // SAFETY: as above.
            Owner::Legacy(managed) => unsafe {
                if let Some(deleter) = managed.as_ref().deleter {
                    deleter(managed.as_ptr());
                }
            },
            // SAFETY: the reference is this one's own, and is released once, while the interpreter is attached.
            Owner::Array(object) => unsafe { ffi::Py_DecRef(object.as_ptr()) },
        });
    }
}

/// A foreign tensor in its own layout.
pub(crate) struct View {
    foreign: Foreign,
    dtype: DType,
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<isize>,
}

/// The tensor of an object: of a NumPy array, of what the object exports, or else of the array that NumPy makes of it.
///
/// # Errors
/// Those of NumPy and of the exporter; if the object's memory is not the CPU's, or its dtype is one we do not have.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<View> {
    if let Some(array) = Array::of(object)? {
        return View::of_array(array);
    }
    if object.hasattr("__dlpack__")? {
        return exported(object);
    }
    let made = numpy(object.py())?.call_method1("asarray", (object,))?;
    match Array::of(&made)? {
        Some(array) => View::of_array(array),
        None => exported(&made),
    }
}

/// Whether it is an array of which some elements are masked; a method of pandas' tables has the same name.
pub(crate) fn is_masked(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.hasattr("mask")? && object.hasattr("__dlpack__")?)
}

fn exported(object: &Bound<'_, PyAny>) -> PyResult<View> {
    let py = object.py();
    if is_masked(object)? {
        let error = Error::dtype("the array has a mask, which would be lost");
        return Err(crate::errors::raised(
            error.with_hint("fill what is masked first, as by x.filled(0)"),
        ));
    }
    let device: (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    if device.0 != CPU {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on the device {device:?} of DLPack, and only memory of the CPU can be shared; move it there \
             first, as by .cpu()"
        )));
    }
    let versions = [("max_version", (VERSION.major, VERSION.minor))].into_py_dict(py)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&versions)) {
        // Exporters from before DLPack 1.0. Errors of a subclass, such as Arrow's, are about the content.
        Err(error) if error.get_type(py).is(py.get_type::<pyo3::exceptions::PyTypeError>()) => {
            object.call_method0("__dlpack__")?
        }
        Err(error) => return Err(refused(object, error)),
        Ok(capsule) => capsule,
    };
    take(&capsule)
}

/// NumPy says neither which dtype an array has nor what to do; other exporters' errors are passed on.
fn refused(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let dtype = object
        .getattr("dtype")
        .ok()
        .filter(|dtype| dtype.hasattr("kind").is_ok_and(|has| has));
    let Some(dtype) = dtype.filter(|_| error.is_instance_of::<PyBufferError>(object.py())) else {
        return error;
    };
    let why = error.value(object.py()).to_string();
    let text = format!("an array of {dtype} cannot be read: {}", why.trim_end_matches('.'));
    crate::errors::raised(Error::dtype(text).with_hint(CONVERTED))
}

/// Takes over the tensor in a capsule.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<View> {
    if let Some(managed) = opened::<Managed>(capsule, VERSIONED)? {
        let owner = Owner::Versioned(managed);
        // SAFETY: a capsule of this name holds such a structure, which is alive until its deleter is called. In another
        // major version, only the version and the deleter are at the same places.
        let version = unsafe { managed.as_ref() }.version;
        if version.major != VERSION.major {
            drop(Foreign {
                owner,
                data: NonNull::dangling(),
                len: 0,
            });
            let text = format!(
                "the tensor is in DLPack {}.{}, and this is 1.1",
                version.major, version.minor
            );
            return Err(PyBufferError::new_err(text));
        }
        // SAFETY: as above.
        return view(owner, unsafe { &managed.as_ref().tensor });
    }
    match opened::<LegacyManaged>(capsule, LEGACY)? {
        // SAFETY: as above.
        Some(managed) => view(Owner::Legacy(managed), unsafe { &managed.as_ref().tensor }),
        None => Err(PyBufferError::new_err(
            "`__dlpack__` has given no capsule of a tensor, or one that was taken over",
        )),
    }
}

/// The structure in a capsule of this name, which is renamed so that it is not taken over twice.
fn opened<T>(capsule: &Bound<'_, PyAny>, [name, used]: [&CStr; 2]) -> PyResult<Option<NonNull<T>>> {
    // SAFETY: the object is alive and the interpreter attached; the names live forever.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return Ok(None);
        }
        let found = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
        if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(NonNull::new(found.cast()))
    }
}

fn view(owner: Owner, tensor: &DlTensor) -> PyResult<View> {
    let foreign = Foreign {
        owner,
        data: NonNull::dangling(),
        len: 0,
    };
    let dtype = from_dl(tensor.dtype).map_err(crate::errors::raised)?;
    let rank = usize::try_from(tensor.rank).map_err(|_| PyBufferError::new_err("the tensor has a negative rank"))?;
    let numbers = |at: *mut i64| match rank {
        0 => &[][..],
        // SAFETY: a tensor of this rank has as many extents, and as many strides where the pointer is not null.
        _ => unsafe { std::slice::from_raw_parts(at, rank) },
    };
    if rank > 0 && tensor.shape.is_null() {
        return Err(PyBufferError::new_err("the tensor has no shape"));
    }
    let shape: Vec<usize> = numbers(tensor.shape)
        .iter()
        .map(|&extent| usize::try_from(extent))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| PyBufferError::new_err("the tensor has a negative extent"))?;
    let strides = match tensor.strides.is_null() {
        true => row_major(&shape),
        // On 64 bits, the types are the same.
        false => numbers(tensor.strides).iter().map(|&stride| stride as isize).collect(),
    };
    let first = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    View::new(foreign, first, (dtype, shape, strides))
}

/// Strides of a row-major tensor.
fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        // If it would overflow, the number of bytes does, too, and that is reported.
        strides[axis - 1] = shape[axis].cast_signed().wrapping_mul(strides[axis]);
    }
    strides
}

impl View {
    fn of_array(array: Array) -> PyResult<Self> {
        let Array {
            owner,
            dtype,
            data,
            shape,
            strides,
        } = array;
        let owner = NonNull::new(owner.into_ptr()).ok_or_else(|| PyBufferError::new_err("the array has no owner"))?;
        let foreign = Foreign {
            owner: Owner::Array(owner),
            data: NonNull::dangling(),
            len: 0,
        };
        Self::new(foreign, data, (dtype, shape, strides))
    }

    /// The tensor whose first element is at `first`.
    fn new(
        mut foreign: Foreign,
        first: *mut u8,
        (dtype, shape, strides): (DType, Vec<usize>, Vec<isize>),
    ) -> PyResult<Self> {
        let bytes = shape
            .iter()
            .try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
        let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
        foreign.len =
            bytes.ok_or_else(|| PyBufferError::new_err(format!("a tensor of {shape:?} has too many elements")))?;
        if foreign.len > 0 {
            foreign.data = NonNull::new(first).ok_or_else(|| PyBufferError::new_err("the tensor has no memory"))?;
        }
        Ok(Self {
            foreign,
            dtype,
            shape,
            strides,
        })
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn numel(&self) -> usize {
        self.foreign.len / self.dtype.size()
    }

    /// Whether it can be shared in its layout: row-major, and aligned. Strides of extents of 1 are ignored.
    fn is_plain(&self) -> bool {
        let aligned = self.foreign.data.as_ptr().addr().is_multiple_of(self.dtype.size());
        let same = row_major(&self.shape);
        let mut axes = self.shape.iter().zip(&self.strides).zip(&same);
        self.numel() == 0 || aligned && axes.all(|((&extent, own), expected)| extent == 1 || own == expected)
    }

    /// The tensor in its own memory, or `None` if it has to be copied. `copy` is the caller's request.
    ///
    /// # Errors
    /// If a copy is needed but not allowed; if the rank exceeds ours; if a bool is neither 0 nor 1.
    pub(crate) fn tensor(self, copy: Option<bool>) -> Result<HostTensor> {
        let shape = Shape::new(&self.shape)?;
        if self.is_plain() && copy != Some(true) {
            let dtype = self.dtype;
            return HostTensor::from_shared(dtype, shape, Arc::new(self.foreign));
        }
        if copy == Some(false) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the tensor of {shape} does not lie row by row in aligned memory, and is not to be copied"),
            )
            .with_hint("leave copy=False out, or give one that is contiguous (numpy.ascontiguousarray)"));
        }
        let mut bytes = room(self.foreign.len)?;
        self.each(|element| bytes.extend_from_slice(element));
        HostTensor::from_bytes(self.dtype, shape, &bytes)
    }

    /// Writes the elements as f32, row by row, up to the length of `out`. A bool is true if it is not 0, as in C.
    pub(crate) fn write_f32(&self, out: &mut [f32]) {
        let dtype = match self.dtype {
            DType::Bool => return self.write_as(out, |x: u8| f32::from(u8::from(x != 0))),
            dtype => dtype,
        };
        polygrad::backend::dispatch_dtype!(dtype, T => self.write_as(out, |x: T| Element::to_f64(x) as f32));
    }

    fn write_as<T: bytemuck::CheckedBitPattern>(&self, out: &mut [f32], number: impl Fn(T) -> f32) {
        let read = |element: &[u8]| bytemuck::checked::try_pod_read_unaligned(element).map_or(f32::NAN, &number);
        let mut out = out.iter_mut();
        let mut write = |element: &[u8]| out.next().into_iter().for_each(|out| *out = read(element));
        match self.is_plain() {
            true => self.foreign.bytes().chunks_exact(size_of::<T>()).for_each(write),
            false => self.each(&mut write),
        }
    }

    /// Calls `visit` with the bytes of each element, row by row.
    fn each(&self, mut visit: impl FnMut(&[u8])) {
        let (size, count) = (self.dtype.size(), self.numel());
        let mut index = vec![0_usize; self.shape.len()];
        let mut offset = 0_isize;
        for _ in 0..count {
            // SAFETY: `index` is inside of the shape, so that the element at its strides is inside of the exporter's
            // tensor, which lives as long as `foreign`.
            visit(unsafe {
                let at = self.foreign.data.as_ptr().offset(offset * size.cast_signed());
                std::slice::from_raw_parts(at, size)
            });
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                offset += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                offset -= self.strides[axis] * self.shape[axis].cast_signed();
                index[axis] = 0;
            }
        }
    }
}

fn room(bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("{bytes} bytes of memory could not be had"),
        )
    })?;
    Ok(room)
}

// Export.

/// Keeps a tensor's memory, extents and strides alive while a consumer uses it.
struct Exported {
    _memory: HostTensor,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

/// A tensor of ours as a capsule. Its memory is shared and read-only, unless `own`: then the consumer may write to it,
/// since the caller has created it and keeps no handle.
pub(crate) fn export<'py>(
    py: Python<'py>,
    memory: HostTensor,
    own: bool,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let extents = memory.shape().to_vec();
    let numbers = |values: Vec<i64>| values.into_boxed_slice();
    let data = memory.bytes().as_ptr().cast_mut();
    let dtype = to_dl(memory.dtype());
    let mut exported = Box::new(Exported {
        shape: numbers(extents.iter().map(|&extent| extent as i64).collect()),
        strides: numbers(row_major(&extents).into_iter().map(|stride| stride as i64).collect()),
        _memory: memory,
    });
    let tensor = DlTensor {
        data: data.cast(),
        device: DlDevice { kind: CPU, id: 0 },
        // At most 8.
        rank: extents.len() as i32,
        dtype,
        shape: exported.shape.as_mut_ptr(),
        strides: exported.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(exported).cast();
    if versioned {
        let managed = Managed {
            version: VERSION,
            context,
            deleter: Some(delete),
            flags: if own { IS_COPIED } else { READ_ONLY },
            tensor,
        };
        return capsule(py, Box::into_raw(Box::new(managed)), VERSIONED[0], destroy, delete);
    }
    let managed = LegacyManaged {
        tensor,
        context,
        deleter: Some(delete_legacy),
    };
    capsule(
        py,
        Box::into_raw(Box::new(managed)),
        LEGACY[0],
        destroy_legacy,
        delete_legacy,
    )
}

fn capsule<'py, T>(
    py: Python<'py>,
    managed: *mut T,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
    delete: unsafe extern "C" fn(*mut T),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer is not null and the name lives forever; the destructor frees a tensor that was not taken
    // over. The capsule is a new reference, or null with an exception; in that case its content is deleted once, here.
    unsafe {
        let made = ffi::PyCapsule_New(managed.cast(), name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, made).inspect_err(|_| delete(managed))
    }
}

// SAFETY of the four: consumers call a deleter once, with the exported pointer, from any thread. Python calls a
// destructor once, with the capsule, whose name tells whether its content was taken over.

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: see above; both were boxes.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn delete_legacy(managed: *mut LegacyManaged) {
    // SAFETY: see above; both were boxes.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: see above.
    unsafe {
        if let Some(managed) = unused(capsule, VERSIONED[0]) {
            delete(managed);
        }
    }
}

unsafe extern "C" fn destroy_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: see above.
    unsafe {
        if let Some(managed) = unused(capsule, LEGACY[0]) {
            delete_legacy(managed);
        }
    }
}

/// The content of a capsule that was not taken over.
unsafe fn unused<T>(capsule: *mut ffi::PyObject, name: &CStr) -> Option<*mut T> {
    // SAFETY: the caller has the capsule, which is being destroyed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 0 {
            return None;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, name.as_ptr());
        (!managed.is_null()).then_some(managed.cast())
    }
}

pub(crate) fn no_bf16() -> Error {
    Error::dtype("NumPy has no bfloat16").with_hint("take the tensor by DLPack, as torch.from_dlpack does")
}

pub(crate) fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(py.import("numpy")?.into_any())
}
