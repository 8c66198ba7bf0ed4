//! Invalid input: for each op the mistake, the expected kind of error, and a part of its text.
//!
//! Most mistakes are detected by the library before a backend is called; indices out of range are left to the backend.

use polygrad_core::ErrorKind::{DType as WrongDType, InvalidArgument, OutOfRange, Shape};
use polygrad_core::{ConvParams, CrossEntropyParams, DType, ErrorKind, PoolParams, Result};
use polygrad_tensor::{AnyBackend, Device, Tensor};

use crate::case::{Case, Outcome, Source, Status};

type Any = Tensor<AnyBackend>;

/// The device of the calls.
struct Given<'a>(&'a Device<AnyBackend>);

impl Given<'_> {
    /// Ones of f32.
    fn ones(&self, shape: &[usize]) -> Result<Any> {
        Tensor::ones(shape, self.0)
    }

    fn of(&self, dtype: DType, shape: &[usize]) -> Result<Any> {
        Tensor::full(shape, 1i64, (self.0, dtype))
    }

    fn list(&self, values: &[i64]) -> Result<Any> {
        Tensor::from_slice(values, [values.len()], self.0)
    }

    /// Indices as a column.
    fn column(&self, values: &[i64]) -> Result<Any> {
        self.list(values)?.reshape([values.len(), 1])
    }
}

type Call = fn(&Given<'_>) -> Result<Any>;

/// Op, mistake, kind, a part of the text, and the call.
const TABLE: &[(&str, &str, ErrorKind, &str, Call)] = &[
    ("add", "shapes", Shape, "add", |g| g.ones(&[2, 3])?.add(&g.ones(&[4])?)),
    ("sub", "bool", WrongDType, "sub", |g| {
        g.of(DType::Bool, &[2])?.sub(&g.of(DType::Bool, &[2])?)
    }),
    ("maximum", "shapes", Shape, "[4]", |g| {
        g.ones(&[2, 3])?.maximum(&g.ones(&[4])?)
    }),
    ("lt", "shapes", Shape, "lt", |g| g.ones(&[2, 3])?.lt(&g.ones(&[4])?)),
    ("bitwise_and", "floats", WrongDType, "f32", |g| {
        g.ones(&[2])?.bitwise_and(&g.ones(&[2])?)
    }),
    ("neg", "bool", WrongDType, "bool", |g| g.of(DType::Bool, &[2])?.neg()),
    ("where", "condition", WrongDType, "not bool", |g| {
        Tensor::where_(&g.ones(&[2])?, &g.ones(&[2])?, &g.ones(&[2])?)
    }),
    ("where", "shapes", Shape, "where", |g| {
        Tensor::where_(&g.of(DType::Bool, &[5])?, &g.ones(&[2, 3])?, &g.ones(&[2, 3])?)
    }),
    ("matmul", "inner dimensions", Shape, "3 and 4 differ", |g| {
        g.ones(&[2, 3])?.matmul(&g.ones(&[4, 5])?)
    }),
    ("matmul", "rank 0", Shape, "rank 0", |g| {
        g.ones(&[2, 3])?.matmul(&g.ones(&[])?)
    }),
    ("matmul", "bool", WrongDType, "bool", |g| {
        g.of(DType::Bool, &[3, 3])?.matmul(&g.of(DType::Bool, &[3, 3])?)
    }),
    ("matmul", "batches", Shape, "do not broadcast", |g| {
        g.ones(&[2, 2, 3])?.matmul(&g.ones(&[3, 3, 2])?)
    }),
    ("linear", "features", Shape, "3 and 2 differ", |g| {
        g.ones(&[2, 3])?.linear(&g.ones(&[4, 2])?, None)
    }),
    ("linear", "bias", Shape, "bias", |g| {
        g.ones(&[2, 3])?.linear(&g.ones(&[4, 3])?, Some(&g.ones(&[3])?))
    }),
    ("einsum", "operands", InvalidArgument, "names 2 operands", |g| {
        Tensor::einsum("ij,jk->ik", &[&g.ones(&[2, 3])?])
    }),
    ("sum", "axis", OutOfRange, "2", |g| g.ones(&[2, 3])?.sum(2)),
    ("mean", "nothing", Shape, "mean", |g| g.ones(&[0, 3])?.mean(0)),
    ("amax", "nothing", Shape, "amax", |g| g.ones(&[0, 3])?.amax(0)),
    ("amin", "nothing", Shape, "amin", |g| g.ones(&[0, 3])?.amin(0)),
    ("argmax", "nothing", Shape, "argmax", |g| g.ones(&[0, 3])?.argmax(0)),
    ("mean", "integers", WrongDType, "to_dtype", |g| {
        g.of(DType::I64, &[2])?.mean(0)
    }),
    ("cumsum", "axis", OutOfRange, "cumsum", |g| g.ones(&[2])?.cumsum(1)),
    ("softmax", "integers", WrongDType, "to_dtype", |g| {
        g.of(DType::I64, &[2])?.softmax(0)
    }),
    ("reshape", "elements", Shape, "[4]", |g| g.ones(&[2, 3])?.reshape([4])),
    ("permute", "an axis twice", InvalidArgument, "permute", |g| {
        g.ones(&[2, 3])?.permute([0, 0])
    }),
    ("expand", "extents", Shape, "does not expand", |g| {
        g.ones(&[4])?.expand([2, 3])
    }),
    ("slice", "past the end", OutOfRange, "axis 1", |g| {
        g.ones(&[2, 3])?.narrow(1, 2, 2)
    }),
    ("cat", "extents", Shape, "cat", |g| {
        Tensor::cat(&[&g.ones(&[2, 3])?, &g.ones(&[2, 4])?], 0)
    }),
    ("cat", "nothing", InvalidArgument, "cat", |_| {
        Tensor::cat::<Tensor>(&[], 0)
    }),
    ("gather", "position past the end", OutOfRange, "5", |g| {
        g.ones(&[2, 3])?.gather(1, &g.column(&[0, 5])?)
    }),
    ("gather", "negative position", OutOfRange, "-1", |g| {
        g.ones(&[2, 3])?.gather(1, &g.column(&[0, -1])?)
    }),
    ("gather", "index dtype", WrongDType, "f32", |g| {
        g.ones(&[2])?.gather(0, &g.ones(&[2])?)
    }),
    ("gather", "index rank", Shape, "[1]", |g| {
        g.ones(&[2, 3])?.gather(1, &g.list(&[0])?)
    }),
    ("scatter", "position past the end", OutOfRange, "7", |g| {
        g.ones(&[2, 3])?.scatter(1, &g.column(&[0, 7])?, &g.ones(&[2, 3])?)
    }),
    ("scatter_add", "position past the end", OutOfRange, "7", |g| {
        g.ones(&[2, 3])?.scatter_add(1, &g.column(&[0, 7])?, &g.ones(&[2, 3])?)
    }),
    ("scatter_add", "negative position", OutOfRange, "-2", |g| {
        g.ones(&[2, 3])?.scatter_add(1, &g.column(&[0, -2])?, &g.ones(&[2, 3])?)
    }),
    ("index_select", "position past the end", OutOfRange, "3", |g| {
        g.ones(&[2, 3])?.index_select(1, &g.list(&[0, 3])?)
    }),
    ("index_select", "negative position", OutOfRange, "-1", |g| {
        g.ones(&[2, 3])?.index_select(1, &g.list(&[-1])?)
    }),
    ("index_select", "index dtype", WrongDType, "bool", |g| {
        g.ones(&[2])?.index_select(0, &g.of(DType::Bool, &[2])?)
    }),
    ("index_add", "position past the end", OutOfRange, "2", |g| {
        g.ones(&[2, 3])?.index_add(0, &g.list(&[0, 2])?, &g.ones(&[2, 3])?)
    }),
    ("embedding", "position past the end", OutOfRange, "4", |g| {
        g.list(&[4])?.embedding(&g.ones(&[4, 2])?, None)
    }),
    ("embedding", "padding row", OutOfRange, "4", |g| {
        g.list(&[0])?.embedding(&g.ones(&[4, 2])?, Some(4))
    }),
    ("cross_entropy", "class past the end", OutOfRange, "3", |g| {
        g.ones(&[2, 3])?
            .cross_entropy(&g.list(&[0, 3])?, &CrossEntropyParams::default())
    }),
    ("cross_entropy", "targets of floats", WrongDType, "cross_entropy", |g| {
        g.ones(&[3, 2])?
            .cross_entropy(&g.ones(&[3])?, &CrossEntropyParams::default())
    }),
    ("conv", "channels", Shape, "groups", |g| {
        g.ones(&[1, 3, 5])?
            .conv(&g.ones(&[2, 2, 3])?, None, &ConvParams::default())
    }),
    ("conv", "a stride of 0", InvalidArgument, "stride 0", |g| {
        let params = ConvParams {
            stride: [0; 3],
            ..ConvParams::default()
        };
        g.ones(&[1, 2, 5])?.conv(&g.ones(&[2, 2, 3])?, None, &params)
    }),
    ("conv", "dtypes", WrongDType, "to_dtype", |g| {
        g.ones(&[1, 1, 4])?
            .conv(&g.of(DType::F64, &[1, 1, 2])?, None, &ConvParams::default())
    }),
    ("max_pool", "window", Shape, "does not fit", |g| {
        Ok(g.ones(&[1, 1, 2])?.max_pool(&PoolParams::new([3; 3]))?.0)
    }),
    ("avg_pool", "rank", Shape, "rank 3 to 5", |g| {
        g.ones(&[2])?.avg_pool(&PoolParams::new([1; 3]))
    }),
    ("layer_norm", "integers", WrongDType, "layer_norm", |g| {
        g.of(DType::I64, &[3, 2])?.layer_norm(None, None, 1, 1e-5)
    }),
    ("sort", "axis", OutOfRange, "sort", |g| {
        Ok(g.ones(&[2])?.sort(3, false)?.0)
    }),
    ("full", "more elements than memory can address", Shape, "address", |g| {
        g.ones(&[usize::MAX, 2])
    }),
];

/// Every row as a case. They run in f32, which every backend has.
pub(crate) fn cases() -> Vec<Case> {
    let row = |&(op, what, kind, piece, call): &(&'static str, &str, ErrorKind, &'static str, Call)| {
        let name = format!("{op}/error/{}", what.replace(' ', "_"));
        let run = move |device: &Device<AnyBackend>| Outcome::forward(judge(call(&Given(device)), kind, piece));
        Case::new(Source::Errors, name, op, DType::F32, run)
    };
    TABLE.iter().map(row).collect()
}

fn judge(result: Result<Any>, kind: ErrorKind, piece: &str) -> Status {
    let error = match result {
        // An asynchronous backend may report it later.
        Ok(answer) => match answer.to_host() {
            Ok(_) => return Status::Fail(format!("no error, where one of kind {kind:?} is right")),
            Err(error) => error,
        },
        Err(error) => error,
    };
    let text = error.to_string();
    match error.kind() {
        found if found == kind && text.contains(piece) => Status::Pass,
        found if found == kind => Status::Fail(format!("the error does not say {piece:?}: {text}")),
        ErrorKind::Unsupported => Status::Unsupported(text),
        found => Status::Fail(format!("the error is of kind {found:?}, not {kind:?}: {text}")),
    }
}
