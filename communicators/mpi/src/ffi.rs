//! Bindings of MPI's functions, and all unsafe code. A request owns its memory, and leaks it if it is dropped while MPI
//! may still use it.

#![expect(unsafe_code, reason = "the one place where a C library is called")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

use libloading::Library;
use polygrad_core::communicator::HostBuffer;
use polygrad_core::{Error, ErrorKind};

/// An opaque MPI handle; a pointer in both binary interfaces.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Handle(*mut c_void);

// SAFETY: a handle is an opaque name that only MPI dereferences; only MPI_Abort may be called by two threads at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

macro_rules! functions {
    ($table:ident { $($name:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        struct $table {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl $table {
            fn load(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the signatures are those of the MPI standard, with handles that are pointers.
                    $($name: *unsafe { library.get($symbol)? },)*
                })
            }
        }
    };
}

functions!(Functions {
    abort = b"MPI_Abort\0" (Handle, c_int);
    comm_dup = b"MPI_Comm_dup\0" (Handle, *mut Handle);
    comm_group = b"MPI_Comm_group\0" (Handle, *mut Handle);
    comm_rank = b"MPI_Comm_rank\0" (Handle, *mut c_int);
    comm_set_errhandler = b"MPI_Comm_set_errhandler\0" (Handle, Handle);
    comm_size = b"MPI_Comm_size\0" (Handle, *mut c_int);
    error_class = b"MPI_Error_class\0" (c_int, *mut c_int);
    error_string = b"MPI_Error_string\0" (c_int, *mut c_char, *mut c_int);
    finalize = b"MPI_Finalize\0" ();
    finalized = b"MPI_Finalized\0" (*mut c_int);
    get_library_version = b"MPI_Get_library_version\0" (*mut c_char, *mut c_int);
    group_free = b"MPI_Group_free\0" (*mut Handle);
    group_size = b"MPI_Group_size\0" (Handle, *mut c_int);
    group_translate_ranks = b"MPI_Group_translate_ranks\0" (Handle, c_int, *const c_int, Handle, *mut c_int);
    iallgather = b"MPI_Iallgather\0" (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle);
    iallreduce = b"MPI_Iallreduce\0" (*const c_void, *mut c_void, c_int, Handle, Handle, Handle, *mut Handle);
    ibarrier = b"MPI_Ibarrier\0" (Handle, *mut Handle);
    ibcast = b"MPI_Ibcast\0" (*mut c_void, c_int, Handle, c_int, Handle, *mut Handle);
    init_thread = b"MPI_Init_thread\0" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    initialized = b"MPI_Initialized\0" (*mut c_int);
    iprobe = b"MPI_Iprobe\0" (c_int, c_int, Handle, *mut c_int, *mut c_void);
    irecv = b"MPI_Irecv\0" (*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    ireduce_scatter_block = b"MPI_Ireduce_scatter_block\0"
        (*const c_void, *mut c_void, c_int, Handle, Handle, Handle, *mut Handle);
    isend = b"MPI_Isend\0" (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    query_thread = b"MPI_Query_thread\0" (*mut c_int);
    test = b"MPI_Test\0" (*mut Handle, *mut c_int, *mut c_void);
});

// User-level failure mitigation; Open MPI 5 has it.
functions!(Ulfm {
    agree = b"MPIX_Comm_agree\0" (Handle, *mut c_int);
    get_failed = b"MPIX_Comm_get_failed\0" (Handle, *mut Handle);
    revoke = b"MPIX_Comm_revoke\0" (Handle);
    shrink = b"MPIX_Comm_shrink\0" (Handle, *mut Handle);
});

/// The constants of one binary interface.
struct Constants {
    world: Handle,
    this: Handle,
    errors_return: Handle,
    datatypes: [Handle; 7],
    operations: [Handle; 3],
    serialized: c_int,
}

/// The element types that MPI reduces or moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    U8,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// The reductions of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Sum,
    Min,
    Max,
}

/// The value of `MPI_IN_PLACE` in both interfaces.
const IN_PLACE: *const c_void = std::ptr::without_provenance(1);
/// The error classes of a failed process in Open MPI's ULFM.
const FAILED: [c_int; 3] = [75, 76, 77];
/// At least `MPI_MAX_LIBRARY_VERSION_STRING` and `MPI_MAX_ERROR_STRING`.
const TEXT: usize = 8192;
/// Larger than any `MPI_Status`.
type Status = [u64; 16];

/// An error that MPI returned.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) message: String,
    /// Whether a process has failed.
    pub(crate) process: bool,
}

/// An MPI communicator, which is never freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comm(Handle);

/// A loaded MPI library. It stays loaded, since MPI cannot be started twice in a process.
pub(crate) struct Mpi {
    functions: Functions,
    ulfm: Option<Ulfm>,
    constants: Constants,
}

/// Memory that a collective reads from and writes to.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) send: HostBuffer,
    pub(crate) receive: HostBuffer,
}

/// A collective or message in flight.
#[derive(Debug)]
pub(crate) struct Request {
    handle: Handle,
    memory: Option<Memory>,
}

impl Drop for Request {
    fn drop(&mut self) {
        // MPI, a peer or a network card may still write to the memory.
        std::mem::forget(self.memory.take());
    }
}

impl Mpi {
    /// Loads a library.
    ///
    /// # Errors
    /// The loader's error, or that the library has neither interface.
    pub(crate) fn load(path: &Path) -> Result<&'static Self, String> {
        // SAFETY: loading an MPI runs its initializers, which is what is asked for.
        let library = unsafe { Library::new(path) }.map_err(|e| reason(&e))?;
        let lacks = |e: libloading::Error| format!("{}, so that it is no MPI", reason(&e));
        let functions = Functions::load(&library).map_err(lacks)?;
        let constants = constants(&library).ok_or_else(|| {
            let path = path.display();
            format!("{path} is neither an Open MPI nor of the standard binary interface of MPI 5 (libmpi_abi.so)")
        })?;
        let ulfm = Ulfm::load(&library).ok();
        std::mem::forget(library);
        Ok(Box::leak(Box::new(Self {
            functions,
            ulfm,
            constants,
        })))
    }

    fn check(&self, code: c_int) -> Result<(), Failed> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut len, mut class) = (vec![0u8; TEXT], 0, code);
        // SAFETY: the text is longer than MPI_MAX_ERROR_STRING.
        let known = unsafe {
            (self.functions.error_class)(code, &raw mut class);
            (self.functions.error_string)(code, text.as_mut_ptr().cast(), &raw mut len)
        };
        let message = match known {
            0 => ended(&text),
            _ => format!("error {code}"),
        };
        let process = self.ulfm.is_some() && FAILED.contains(&class);
        Err(Failed { message, process })
    }

    /// Calls a function that writes a number, and returns the number.
    fn number(&self, f: impl FnOnce(*mut c_int) -> c_int) -> Result<c_int, Failed> {
        let mut number = 0;
        self.check(f(&raw mut number)).map(|()| number)
    }

    /// Whether MPI has been initialized, and whether it has been finalized.
    pub(crate) fn state(&self) -> Result<(bool, bool), Failed> {
        // SAFETY: it may be called at any time, with a place for the answer.
        let started = self.number(|flag| unsafe { (self.functions.initialized)(flag) })?;
        // SAFETY: as above.
        let over = self.number(|flag| unsafe { (self.functions.finalized)(flag) })?;
        Ok((started != 0, over != 0))
    }

    /// Starts MPI, unless `started`; returns whether any thread may call it, one at a time. From now on MPI returns
    /// errors instead of aborting.
    pub(crate) fn start(&self, started: bool) -> Result<bool, Failed> {
        let serialized = self.constants.serialized;
        let level = self.number(|level| match started {
            // SAFETY: it has been started.
            true => unsafe { (self.functions.query_thread)(level) },
            // SAFETY: MPI takes no arguments where it is given none.
            false => unsafe { (self.functions.init_thread)(null_mut(), null_mut(), serialized, level) },
        })?;
        for comm in [self.constants.world, self.constants.this] {
            self.returns_errors(Comm(comm))?;
        }
        Ok(level >= serialized)
    }

    fn returns_errors(&self, comm: Comm) -> Result<(), Failed> {
        // SAFETY: both are handles of this library.
        self.check(unsafe { (self.functions.comm_set_errhandler)(comm.0, self.constants.errors_return) })
    }

    /// Finalizes MPI, which waits for all ranks.
    pub(crate) fn finalize(&self) -> Result<(), Failed> {
        // SAFETY: it has been started, and nothing calls it afterwards.
        self.check(unsafe { (self.functions.finalize)() })
    }

    /// Aborts all processes of the group.
    pub(crate) fn abort(&self, comm: Comm) {
        // SAFETY: it has been started.
        unsafe { (self.functions.abort)(comm.0, 1) };
    }

    /// The library's version string.
    pub(crate) fn version(&self) -> Result<String, Failed> {
        let mut text = vec![0u8; TEXT];
        // SAFETY: the text is as long as MPI_MAX_LIBRARY_VERSION_STRING.
        self.number(|len| unsafe { (self.functions.get_library_version)(text.as_mut_ptr().cast(), len) })?;
        Ok(ended(&text))
    }

    pub(crate) fn world(&self) -> Comm {
        Comm(self.constants.world)
    }

    pub(crate) fn rank(&self, comm: Comm) -> Result<usize, Failed> {
        // SAFETY: the group is one of this library.
        let rank = self.number(|rank| unsafe { (self.functions.comm_rank)(comm.0, rank) })?;
        Ok(rank.unsigned_abs() as usize)
    }

    pub(crate) fn size(&self, comm: Comm) -> Result<usize, Failed> {
        // SAFETY: the group is one of this library.
        let size = self.number(|size| unsafe { (self.functions.comm_size)(comm.0, size) })?;
        Ok(size.unsigned_abs() as usize)
    }

    /// A communicator of the same ranks, with separate messages. Every rank must call it.
    pub(crate) fn duplicate(&self, comm: Comm) -> Result<Comm, Failed> {
        let mut new = comm;
        // SAFETY: the group is one of this library, and there is a place for the new one.
        self.check(unsafe { (self.functions.comm_dup)(comm.0, &raw mut new.0) })?;
        self.returns_errors(new)?;
        Ok(new)
    }

    fn begin(&self, memory: Memory, f: impl FnOnce(*mut Handle) -> c_int) -> Result<Request, Failed> {
        let mut request = Request {
            handle: Handle(null_mut()),
            memory: Some(memory),
        };
        self.check(f(&raw mut request.handle)).map(|()| request)
    }

    /// Reduces `count` values over all ranks, in place.
    pub(crate) fn all_reduce(
        &self,
        comm: Comm,
        mut memory: Memory,
        count: usize,
        datatype: Datatype,
        operation: Operation,
    ) -> Result<Request, Failed> {
        let receive = place(&mut memory.receive, count * datatype.size());
        let (count, kind, how) = (count as c_int, self.datatype(datatype), self.operation(operation));
        // SAFETY: `place` saw that the memory is large enough, and the request keeps it.
        self.begin(memory, |request| unsafe {
            (self.functions.iallreduce)(IN_PLACE, receive, count, kind, how, comm.0, request)
        })
    }

    /// Reduces `count` values for each of `size` ranks.
    pub(crate) fn reduce_scatter(
        &self,
        comm: Comm,
        mut memory: Memory,
        (count, size): (usize, usize),
        datatype: Datatype,
        operation: Operation,
    ) -> Result<Request, Failed> {
        let send = place(&mut memory.send, count * size * datatype.size()).cast_const();
        let receive = place(&mut memory.receive, count * datatype.size());
        let (count, kind, how) = (count as c_int, self.datatype(datatype), self.operation(operation));
        // SAFETY: `place` saw that the memory is large enough, and the request keeps it.
        self.begin(memory, |request| unsafe {
            (self.functions.ireduce_scatter_block)(send, receive, count, kind, how, comm.0, request)
        })
    }

    /// Gathers `count` bytes from each of `size` ranks.
    pub(crate) fn all_gather(
        &self,
        comm: Comm,
        mut memory: Memory,
        (count, size): (usize, usize),
    ) -> Result<Request, Failed> {
        let send = place(&mut memory.send, count).cast_const();
        let receive = place(&mut memory.receive, count * size);
        let (count, kind) = (count as c_int, self.datatype(Datatype::U8));
        // SAFETY: `place` saw that the memory is large enough, and the request keeps it.
        self.begin(memory, |request| unsafe {
            (self.functions.iallgather)(send, count, kind, receive, count, kind, comm.0, request)
        })
    }

    /// Sends `count` bytes from the root to all ranks.
    pub(crate) fn broadcast(
        &self,
        comm: Comm,
        mut memory: Memory,
        count: usize,
        root: usize,
    ) -> Result<Request, Failed> {
        let receive = place(&mut memory.receive, count);
        let (count, kind, root) = (count as c_int, self.datatype(Datatype::U8), root as c_int);
        // SAFETY: `place` saw that the memory is large enough, and the request keeps it.
        self.begin(memory, |request| unsafe {
            (self.functions.ibcast)(receive, count, kind, root, comm.0, request)
        })
    }

    pub(crate) fn barrier(&self, comm: Comm) -> Result<Request, Failed> {
        // SAFETY: the group is one of this library.
        self.begin(Memory::default(), |request| unsafe {
            (self.functions.ibarrier)(comm.0, request)
        })
    }

    /// Sends a message to one rank.
    pub(crate) fn send(&self, comm: Comm, message: HostBuffer, to: usize) -> Result<Request, Failed> {
        let mut memory = Memory {
            send: message,
            ..Memory::default()
        };
        let count = memory.send.bytes().len();
        let send = place(&mut memory.send, count).cast_const();
        let kind = self.datatype(Datatype::U8);
        // SAFETY: the memory is as long as said, and the request keeps it.
        self.begin(memory, |request| unsafe {
            (self.functions.isend)(send, count as c_int, kind, to as c_int, 0, comm.0, request)
        })
    }

    /// Whether a message from a rank has arrived.
    pub(crate) fn probe(&self, comm: Comm, from: usize) -> Result<bool, Failed> {
        let mut status: Status = [0; _];
        let status = (&raw mut status).cast();
        // SAFETY: the status is larger than an MPI_Status.
        let flag = self.number(|flag| unsafe { (self.functions.iprobe)(from as c_int, 0, comm.0, flag, status) })?;
        Ok(flag != 0)
    }

    /// Receives a message of `count` bytes.
    pub(crate) fn receive(&self, comm: Comm, message: HostBuffer, from: usize) -> Result<Request, Failed> {
        let mut memory = Memory {
            receive: message,
            ..Memory::default()
        };
        let count = memory.receive.bytes().len();
        let receive = place(&mut memory.receive, count);
        let kind = self.datatype(Datatype::U8);
        // SAFETY: the memory is as long as said, and the request keeps it.
        self.begin(memory, |request| unsafe {
            (self.functions.irecv)(receive, count as c_int, kind, from as c_int, 0, comm.0, request)
        })
    }

    /// The memory of a request if it is done, else `None`.
    pub(crate) fn test(&self, request: &mut Request) -> Result<Option<Memory>, Failed> {
        let mut status: Status = [0; _];
        let (handle, status) = (&raw mut request.handle, (&raw mut status).cast());
        // SAFETY: the request is one of this library, and the status larger than an MPI_Status.
        let flag = self.number(|flag| unsafe { (self.functions.test)(handle, flag, status) })?;
        Ok(match flag {
            0 => None,
            // MPI no longer uses the memory.
            _ => request.memory.take(),
        })
    }

    /// The ranks of a group that are known to have failed.
    pub(crate) fn lost(&self, comm: Comm) -> Vec<usize> {
        let found = self.ulfm.as_ref().map(|ulfm| self.find_lost(ulfm, comm));
        found.and_then(Result::ok).unwrap_or_default()
    }

    fn find_lost(&self, ulfm: &Ulfm, comm: Comm) -> Result<Vec<usize>, Failed> {
        let (mut failed, mut all) = (comm.0, comm.0);
        // SAFETY: the group is one of this library, and there is a place for the new one.
        self.check(unsafe { (ulfm.get_failed)(comm.0, &raw mut failed) })?;
        // SAFETY: as above.
        self.check(unsafe { (self.functions.comm_group)(comm.0, &raw mut all) })?;
        // SAFETY: the group has just been made.
        let count = self.number(|count| unsafe { (self.functions.group_size)(failed, count) })?;
        let theirs: Vec<c_int> = (0..count).collect();
        let mut ours = vec![0; theirs.len()];
        // SAFETY: both lists are as long as said.
        self.check(unsafe {
            (self.functions.group_translate_ranks)(failed, count, theirs.as_ptr(), all, ours.as_mut_ptr())
        })?;
        for mut group in [failed, all] {
            // SAFETY: they were made here and are not used any more.
            self.check(unsafe { (self.functions.group_free)(&raw mut group) })?;
        }
        Ok(ours.into_iter().map(|rank| rank.unsigned_abs() as usize).collect())
    }

    /// Whether the library supports continuing without a failed process.
    pub(crate) fn shrinks(&self) -> bool {
        self.ulfm.is_some()
    }

    /// Revokes the communicators, so that ranks which wait in them return, agrees with the remaining ranks, and returns
    /// a communicator of these. Waits for them.
    pub(crate) fn shrink(&self, comm: Comm, notes: Comm) -> Result<Comm, Failed> {
        let Some(ulfm) = &self.ulfm else {
            let message = "no MPIX_Comm_shrink".to_owned();
            return Err(Failed {
                message,
                process: false,
            });
        };
        for comm in [comm, notes] {
            // SAFETY: the group is one of this library.
            self.check(unsafe { (ulfm.revoke)(comm.0) })?;
        }
        let (mut new, mut flag) = (comm, 1);
        // SAFETY: the group is one of this library, and there is a place for the new one.
        self.check(unsafe { (ulfm.shrink)(comm.0, &raw mut new.0) })?;
        self.returns_errors(new)?;
        // SAFETY: the group has just been made.
        self.check(unsafe { (ulfm.agree)(new.0, &raw mut flag) })?;
        Ok(new)
    }

    fn datatype(&self, datatype: Datatype) -> Handle {
        self.constants.datatypes[datatype as usize]
    }

    fn operation(&self, operation: Operation) -> Handle {
        self.constants.operations[operation as usize]
    }
}

impl Datatype {
    pub(crate) fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// The address of memory, which must have at least `len` bytes.
fn place(buffer: &mut HostBuffer, len: usize) -> *mut c_void {
    buffer.bytes_mut()[..len].as_mut_ptr().cast()
}

/// The loader's error message.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A text up to its terminating NUL.
fn ended(text: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(text).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

fn constants(library: &Library) -> Option<Constants> {
    open_mpi(library).or_else(|| standard(library))
}

/// Open MPI's constants. Its handles are the addresses of its objects.
fn open_mpi(library: &Library) -> Option<Constants> {
    let address = |symbol: &[u8]| {
        // SAFETY: the object is not read; only its address is taken.
        let found = unsafe { library.get::<*mut c_void>(symbol) }.ok()?;
        // SAFETY: the library is never unloaded.
        unsafe { found.try_as_raw_ptr() }.map(Handle)
    };
    Some(Constants {
        world: address(b"ompi_mpi_comm_world\0")?,
        this: address(b"ompi_mpi_comm_self\0")?,
        errors_return: address(b"ompi_mpi_errors_return\0")?,
        datatypes: [
            address(b"ompi_mpi_uint8_t\0")?,
            address(b"ompi_mpi_int32_t\0")?,
            address(b"ompi_mpi_uint32_t\0")?,
            address(b"ompi_mpi_int64_t\0")?,
            address(b"ompi_mpi_uint64_t\0")?,
            address(b"ompi_mpi_float\0")?,
            address(b"ompi_mpi_double\0")?,
        ],
        operations: [
            address(b"ompi_mpi_op_sum\0")?,
            address(b"ompi_mpi_op_min\0")?,
            address(b"ompi_mpi_op_max\0")?,
        ],
        serialized: 2,
    })
}

/// The constants of the standard binary interface of MPI 5, from `mpi_abi.h` of MPICH 5.0.2.
fn standard(library: &Library) -> Option<Constants> {
    type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the signature is that of the standard.
    let version = unsafe { library.get::<Version>(b"MPI_Abi_get_version\0") }.ok()?;
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: there is a place for both numbers.
    let code = unsafe { version(&raw mut major, &raw mut minor) };
    if code != 0 || major < 1 {
        return None;
    }
    let number = |number| Handle(std::ptr::without_provenance_mut(number));
    Some(Constants {
        world: number(0x101),
        this: number(0x102),
        errors_return: number(0x143),
        datatypes: [0x241, 0x250, 0x251, 0x258, 0x259, 0x210, 0x214].map(number),
        operations: [0x21, 0x22, 0x23].map(number),
        serialized: 2048,
    })
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::new(ErrorKind::Communication, format!("MPI says: {}", failed.message))
    }
}
