//! A driver's calls as data, for hooks.

use polygrad_core::compute::{Access, Call, DevicePtr, DeviceView, Operand};
use polygrad_core::{BinaryOp, CompareOp, DType, Result, UnaryOp};

/// A call of a driver that does work. Queries (names, capabilities, devices) are not included.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the method of the same name documents each")]
pub enum DriverCall<'a> {
    Init,
    /// This number of bytes.
    Alloc(usize),
    Free(DevicePtr),
    /// Destination and number of bytes.
    CopyHtod(DevicePtr, usize),
    /// Source and number of bytes.
    CopyDtoh(DevicePtr, usize),
    /// Destination, source and number of bytes.
    CopyDtod(DevicePtr, DevicePtr, usize),
    Synchronize,
    /// Any computing method, except for those below.
    Kernel(Call<'a>),
    /// For this and the following: the view of the output.
    UnaryStrided(UnaryOp, &'a DeviceView),
    BinaryStrided(BinaryOp, &'a DeviceView),
    CompareStrided(CompareOp, &'a DeviceView),
    SelectStrided(&'a DeviceView),
    CopyStrided(&'a DeviceView),
}

impl DriverCall<'_> {
    /// The method's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Alloc(_) => "alloc",
            Self::Free(_) => "free",
            Self::CopyHtod(..) => "copy_htod",
            Self::CopyDtoh(..) => "copy_dtoh",
            Self::CopyDtod(..) => "copy_dtod",
            Self::Synchronize => "synchronize",
            Self::Kernel(call) => call.name(),
            Self::UnaryStrided(..) => "unary_strided",
            Self::BinaryStrided(..) => "binary_strided",
            Self::CompareStrided(..) => "compare_strided",
            Self::SelectStrided(_) => "select_strided",
            Self::CopyStrided(_) => "copy_strided",
        }
    }

    /// What is computed, if the method is generic: the name of an op or a program.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Kernel(call) => call.detail(),
            Self::UnaryStrided(op, _) => Some(op.name().to_owned()),
            Self::BinaryStrided(op, _) => Some(op.name().to_owned()),
            Self::CompareStrided(op, _) => Some(op.name().to_owned()),
            _ => None,
        }
    }

    /// Whether it launches a kernel: anything except memory management, copies to and from the host, and waiting.
    pub const fn is_kernel(&self) -> bool {
        !matches!(
            self,
            Self::Init | Self::Alloc(_) | Self::Free(_) | Self::CopyHtod(..) | Self::CopyDtoh(..) | Self::Synchronize
        )
    }

    /// The operands that it writes.
    ///
    /// # Errors
    /// If its shapes are invalid.
    pub fn outputs(&self) -> Result<Vec<Operand>> {
        let one = |ptr, dtype, span| {
            Ok(vec![Operand {
                name: "output",
                ptr,
                dtype,
                span,
                access: Access::Write,
            }])
        };
        match self {
            Self::Kernel(call) => {
                let all = call.operands()?.into_iter();
                Ok(all.filter(|operand| operand.access.writes()).collect())
            }
            Self::UnaryStrided(_, output)
            | Self::BinaryStrided(_, output)
            | Self::CompareStrided(_, output)
            | Self::SelectStrided(output)
            | Self::CopyStrided(output) => one(output.ptr, output.dtype, output.span()?),
            Self::CopyDtod(dst, _, bytes) | Self::CopyHtod(dst, bytes) => one(*dst, DType::U8, 0..*bytes),
            Self::Init | Self::Alloc(_) | Self::Free(_) | Self::CopyDtoh(..) | Self::Synchronize => Ok(Vec::new()),
        }
    }
}
