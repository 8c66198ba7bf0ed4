//! The calls that programs consist of. One line for each defines how it is made, and how it is written in Rust.

use std::cell::Cell;

use polygrad_core::{
    ArgOp, BinaryOp, CompareOp, ConvParams, CrossEntropyParams, DType, Error, PoolParams, Result, SliceRange,
};
use polygrad_nn::loss;
use polygrad_tensor::{AnyBackend, Attention, InterpolateMode, PadMode, Resize, Tensor};

use super::program::{Dtypes, Kind};

type T = Tensor<AnyBackend>;

/// An argument other than a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An axis, an extent, a choice.
    Int(i64),
    /// A real number.
    Number(f64),
    /// Axes or extents.
    List(Vec<i64>),
    /// A dtype.
    Kind(Kind),
}

/// The numerical nature of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Rounds its results; similar inputs give similar results.
    Smooth,
    /// Returns integers for integers, without rounding.
    Exact,
    /// Discontinuous: its operands must be exact.
    Jump,
}

/// The computation of a call.
type Run = fn(Vec<T>, &[Arg], Dtypes) -> Result<Vec<T>>;

/// A call.
#[derive(Debug)]
pub struct Call {
    /// Its name in the files of cases.
    pub name: &'static str,
    /// Its numerical nature.
    pub nature: Nature,
    operands: &'static str,
    args: &'static [&'static str],
    body: &'static str,
    run: Run,
    write: fn(&[Arg], Dtypes) -> Result<Vec<String>>,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Call {
    /// The call with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        CALLS.iter().find(|call| call.name == name)
    }

    /// Runs the call.
    ///
    /// # Errors
    /// Errors of the op; a wrong number of operands or arguments.
    pub fn run(&self, operands: Vec<T>, args: &[Arg], dtypes: Dtypes) -> Result<Vec<T>> {
        (self.run)(operands, args, dtypes)
    }

    /// The expression in Rust, on operands of these names.
    ///
    /// # Errors
    /// If the number of arguments is wrong.
    pub fn source(&self, operands: &[String], args: &[Arg], dtypes: Dtypes) -> Result<String> {
        let mut words: Vec<(&str, String)> = match self.operands {
            "xs" => {
                let listed: Vec<String> = operands.iter().map(|name| format!("&{name}")).collect();
                vec![("xs", format!("[{}]", listed.join(", ")))]
            }
            names => names.split(' ').zip(operands.iter().cloned()).collect(),
        };
        words.extend(self.args.iter().copied().zip((self.write)(args, dtypes)?));
        Ok(replaced(self.body, &words))
    }
}

/// Replaces words in a text, except methods, fields and paths.
fn replaced(text: &str, words: &[(&str, String)]) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        let is_name =
            (!out.ends_with('.') || out.ends_with("..")) && !after.starts_with("::") && !after.starts_with(": ");
        match words.iter().find(|(name, _)| *name == word) {
            Some((_, value)) if is_name => out.push_str(value),
            _ => out.push_str(word),
        }
        rest = after;
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A type of an argument.
trait FromArg: Sized {
    fn from_arg(arg: &Arg, dtypes: Dtypes) -> Option<Self>;

    /// Its form in Rust.
    fn written(self) -> String;
}

macro_rules! whole {
    ($($type:ty)*) => {$(
        impl FromArg for $type {
            fn from_arg(arg: &Arg, _: Dtypes) -> Option<Self> {
                match arg {
                    Arg::Int(value) => Self::try_from(*value).ok(),
                    _ => None,
                }
            }

            fn written(self) -> String {
                self.to_string()
            }
        }

        impl FromArg for Vec<$type> {
            fn from_arg(arg: &Arg, _: Dtypes) -> Option<Self> {
                match arg {
                    Arg::List(values) => values.iter().map(|&value| <$type>::try_from(value).ok()).collect(),
                    _ => None,
                }
            }

            fn written(self) -> String {
                let values: Vec<String> = self.iter().map(|value| format!("{value}{}", stringify!($type))).collect();
                match values.is_empty() {
                    true => format!("[0{}; 0]", stringify!($type)),
                    false => format!("[{}]", values.join(", ")),
                }
            }
        }
    )*};
}

whole! { isize usize }

impl FromArg for f64 {
    fn from_arg(arg: &Arg, _: Dtypes) -> Option<Self> {
        match arg {
            Arg::Number(value) => Some(*value),
            _ => None,
        }
    }

    fn written(self) -> String {
        format!("{self:?}")
    }
}

impl FromArg for bool {
    fn from_arg(arg: &Arg, _: Dtypes) -> Option<Self> {
        match arg {
            Arg::Int(value) => Some(*value != 0),
            _ => None,
        }
    }

    fn written(self) -> String {
        self.to_string()
    }
}

impl FromArg for DType {
    fn from_arg(arg: &Arg, dtypes: Dtypes) -> Option<Self> {
        match arg {
            Arg::Kind(kind) => Some(dtypes.of(*kind)),
            _ => None,
        }
    }

    fn written(self) -> String {
        format!("DType::{self:?}")
    }
}

/// The arguments of a call, read in order.
struct Args<'a> {
    list: &'a [Arg],
    dtypes: Dtypes,
    taken: Cell<usize>,
}

impl<'a> Args<'a> {
    fn new(list: &'a [Arg], dtypes: Dtypes) -> Self {
        Self {
            list,
            dtypes,
            taken: Cell::new(0),
        }
    }

    fn next<A: FromArg>(&self) -> Result<A> {
        let i = self.taken.replace(self.taken.get() + 1);
        let arg = self.list.get(i).and_then(|arg| A::from_arg(arg, self.dtypes));
        arg.ok_or_else(|| Error::invalid(format!("argument {i} of the call is missing or of another kind")))
    }

    /// Fails if there are more arguments.
    fn end(&self) -> Result<()> {
        match self.list.len() == self.taken.get() {
            true => Ok(()),
            false => Err(Error::invalid("the call has fewer arguments")),
        }
    }
}

/// The results of a call as a list.
trait Results {
    fn list(self) -> Vec<T>;
}

impl Results for T {
    fn list(self) -> Vec<T> {
        vec![self]
    }
}

impl Results for (T, T) {
    fn list(self) -> Vec<T> {
        vec![self.0, self.1]
    }
}

impl Results for (T, T, T) {
    fn list(self) -> Vec<T> {
        vec![self.0, self.1, self.2]
    }
}

impl Results for Vec<T> {
    fn list(self) -> Vec<T> {
        self
    }
}

macro_rules! operands {
    ($given:ident, [$xs:ident ..]) => { "xs" };
    ($given:ident, [$first:ident $($more:ident)*]) => { concat!(stringify!($first), $(" ", stringify!($more)),*) };
}

macro_rules! calls {
    ($($nature:ident $name:ident $operands:tt ($($arg:ident: $type:ty),*) = $body:expr;)*) => {
        /// Every call.
        pub const CALLS: &[Call] = &[$(
            Call {
                name: stringify!($name),
                nature: Nature::$nature,
                operands: operands!(given, $operands),
                args: &[$(stringify!($arg)),*],
                body: stringify!($body),
                run: |given, args, dtypes| {
                    calls!(@bind given $operands);
                    let args = Args::new(args, dtypes);
                    $(let $arg: $type = args.next()?;)*
                    args.end()?;
                    Ok(Results::list($body?))
                },
                write: |args, dtypes| {
                    let args = Args::new(args, dtypes);
                    let written = vec![$(args.next::<$type>()?.written()),*];
                    args.end()?;
                    Ok(written)
                },
            },
        )*];
    };
    (@bind $given:ident [$xs:ident ..]) => { let $xs = $given; };
    (@bind $given:ident [$($x:ident)*]) => {
        let [$($x),*] = <[T; calls!(@count $($x)*)]>::try_from($given)
            .map_err(|_| Error::invalid("the call has more or fewer tensors"))?;
    };
    (@count) => { 0 };
    (@count $x:ident $($more:ident)*) => { 1 + calls!(@count $($more)*) };
}

calls! {
    // Element by element.
    Exact neg [x] () = x.neg();
    Exact abs [x] () = x.abs();
    Jump sign [x] () = x.sign();
    Jump floor [x] () = x.floor();
    Jump ceil [x] () = x.ceil();
    Jump round [x] () = x.round();
    Jump trunc [x] () = x.trunc();
    Smooth exp [x] () = x.exp();
    Smooth expm1 [x] () = x.expm1();
    Smooth log [x] () = x.log();
    Smooth log1p [x] () = x.log1p();
    Smooth sqrt [x] () = x.sqrt();
    Smooth rsqrt [x] () = x.rsqrt();
    Smooth reciprocal [x] () = x.reciprocal();
    Smooth sin [x] () = x.sin();
    Smooth cos [x] () = x.cos();
    Smooth tanh [x] () = x.tanh();
    Smooth sigmoid [x] () = x.sigmoid();
    Smooth erf [x] () = x.erf();
    Exact relu [x] () = x.relu();
    Smooth gelu [x] () = x.gelu();
    Smooth gelu_tanh [x] () = x.gelu_tanh();
    Smooth silu [x] () = x.silu();
    Smooth softplus [x] (beta: f64, threshold: f64) = x.softplus(beta, threshold);
    Smooth elu [x] (alpha: f64) = x.elu(alpha);
    Smooth leaky_relu [x] (slope: f64) = x.leaky_relu(slope);
    Smooth celu [x] (alpha: f64) = x.celu(alpha);
    Smooth hardtanh [x] (low: f64, high: f64) = x.hardtanh(low, high);
    Smooth square [x] () = x.square();
    Exact logical_not [x] () = x.logical_not();
    Exact isfinite [x] () = x.isfinite();
    Exact add [x y] () = x.add(&y);
    Exact sub [x y] () = x.sub(&y);
    Exact mul [x y] () = x.mul(&y);
    Smooth div [x y] () = x.div(&y);
    Jump remainder [x y] () = x.remainder(&y);
    Smooth pow [x y] () = x.pow(&y);
    Exact maximum [x y] () = x.maximum(&y);
    Exact minimum [x y] () = x.minimum(&y);
    Smooth atan2 [x y] () = x.atan2(&y);
    Smooth logaddexp [x y] () = x.logaddexp(&y);
    Exact bitwise_and [x y] () = x.bitwise_and(&y);
    Exact bitwise_or [x y] () = x.bitwise_or(&y);
    Exact bitwise_xor [x y] () = x.bitwise_xor(&y);
    Smooth add_number [x] (number: f64) = x.add(number);
    Smooth mul_number [x] (number: f64) = x.mul(number);
    Smooth div_number [x] (number: f64) = x.div(number);
    Smooth number_sub [x] (number: f64) = x.binary_scalar(BinaryOp::Sub, number, true);
    Smooth number_div [x] (number: f64) = x.binary_scalar(BinaryOp::Div, number, true);
    Smooth pow_number [x] (number: f64) = x.pow(number);
    Exact maximum_number [x] (number: f64) = x.maximum(number);
    Exact clamp [x] (low: f64, high: f64) = x.clamp(Some(low), Some(high));
    Jump lt [x y] () = x.lt(&y);
    Jump ge [x y] () = x.compare(CompareOp::Ge, &y);
    Jump eq [x y] () = x.eq(&y);
    Jump ne [x y] () = x.compare(CompareOp::Ne, &y);
    Jump gt_number [x] (number: f64) = x.gt(number);
    Exact where_ [condition x y] () = Tensor::where_(&condition, &x, &y);
    Exact masked_fill [x mask] (number: f64) = x.masked_fill(&mask, number);
    Exact to_dtype [x] (dtype: DType) = x.to_dtype(dtype);
    Exact detach [x] () = Ok::<_, Error>(x.detach());
    // Reductions and scans.
    Exact sum [x] (axes: Vec<isize>) = x.sum(&axes[..]);
    Exact sum_keepdim [x] (axes: Vec<isize>) = x.sum_keepdim(&axes[..]);
    Smooth mean [x] (axes: Vec<isize>) = x.mean(&axes[..]);
    Smooth mean_keepdim [x] (axes: Vec<isize>) = x.mean_keepdim(&axes[..]);
    Smooth prod [x] (axes: Vec<isize>) = x.prod(&axes[..]);
    Exact amax [x] (axes: Vec<isize>) = x.amax(&axes[..]);
    Exact amin_keepdim [x] (axes: Vec<isize>) = x.amin_keepdim(&axes[..]);
    Smooth variance [x] (axes: Vec<isize>) = x.variance(&axes[..], 1.0);
    Smooth logsumexp [x] (axes: Vec<isize>) = x.logsumexp(&axes[..]);
    Exact any [x] (axes: Vec<isize>) = x.any(&axes[..]);
    Exact all [x] (axes: Vec<isize>) = x.all(&axes[..]);
    Jump max [x] (axis: isize) = x.max(axis);
    Jump min [x] (axis: isize) = x.min(axis);
    Jump argmax [x] (axis: isize) = x.argmax(axis);
    Jump argmin_keepdim [x] (axis: isize) = x.arg_reduce(ArgOp::Min, axis, true);
    Jump sort [x] (axis: isize, descending: bool) = x.sort(axis, descending);
    Jump argsort [x] (axis: isize, descending: bool) = x.argsort(axis, descending);
    Jump topk [x] (k: usize, axis: isize, largest: bool) = x.topk(k, axis, largest);
    Exact cumsum [x] (axis: isize) = x.cumsum(axis);
    Smooth cumprod [x] (axis: isize) = x.cumprod(axis);
    Smooth softmax [x] (axis: isize) = x.softmax(axis);
    Smooth log_softmax [x] (axis: isize) = x.log_softmax(axis);
    Smooth glu [x] (axis: isize) = x.glu(axis);
    // Views and what moves numbers.
    Exact reshape [x] (shape: Vec<usize>) = x.reshape(&shape[..]);
    Exact permute [x] (axes: Vec<isize>) = x.permute(&axes[..]);
    Exact transpose [x] (a: isize, b: isize) = x.transpose(a, b);
    Exact expand [x] (shape: Vec<usize>) = x.expand(&shape[..]);
    Exact squeeze [x] (axis: isize) = x.squeeze(axis);
    Exact unsqueeze [x] (axis: isize) = x.unsqueeze(axis);
    Exact flatten [x] (first: isize, last: isize) = x.flatten(first, last);
    Exact narrow [x] (axis: isize, start: usize, len: usize) = x.narrow(axis, start, len);
    Exact slice [x] (axis: usize, start: usize, len: usize, every: isize) = x.slice(&(0..x.rank()).map(|i| {
        if i == axis { SliceRange::new(start, len, every) } else { SliceRange::full(x.shape()[i]) }
    }).collect::<Vec<_>>());
    Exact select [x] (axis: isize, at: isize) = x.select(axis, at);
    Exact flip [x] (axes: Vec<isize>) = x.flip(&axes[..]);
    Exact roll [x] (shift: isize, axis: isize) = x.roll(&[shift], &[axis]);
    Exact repeat [x] (counts: Vec<usize>) = x.repeat(&counts[..]);
    Exact repeat_interleave [x] (count: usize, axis: isize) = x.repeat_interleave(count, axis);
    Exact tril [x] (offset: isize) = x.tril(offset);
    Exact triu [x] (offset: isize) = x.triu(offset);
    Exact diagonal [x] (offset: isize) = x.diagonal(offset, -2, -1);
    Exact chunk [x] (parts: usize, axis: isize) = x.chunk(parts, axis);
    Exact unbind [x] (axis: isize) = x.unbind(axis);
    Exact pad [x] (before: usize, after: usize, number: f64) = x.pad(&vec![(before, after); x.rank()], number);
    Exact pad_reflect [x] (before: isize, after: isize) =
        x.pad_with(&vec![(before, after); x.rank()], PadMode::Reflect);
    Exact pad_circular [x] (before: isize, after: isize) =
        x.pad_with(&vec![(before, after); x.rank()], PadMode::Circular);
    Exact cat [xs ..] (axis: isize) = Tensor::cat(&xs, axis);
    Exact stack [xs ..] (axis: isize) = Tensor::stack(&xs, axis);
    Exact gather [x index] (axis: isize) = x.gather(axis, &index);
    Exact scatter [x index y] (axis: isize) = x.scatter(axis, &index, &y);
    Exact scatter_add [x index y] (axis: isize) = x.scatter_add(axis, &index, &y);
    Exact index_select [x index] (axis: isize) = x.index_select(axis, &index);
    Exact index_add [x index y] (axis: isize) = x.index_add(axis, &index, &y);
    Exact embedding [index weight] () = index.embedding(&weight, None);
    Exact assign [x y] (at: isize) = {
        let mut z = if x.is_leaf() { x.mul(1.0)? } else { x.clone() };
        z.set_i(at, &y)?;
        Ok::<_, Error>(z)
    };
    // Other sets of numbers may exceed the number of classes, which was counted on one set.
    Exact one_hot [index] (classes: usize) = index.remainder(classes as i64)?.one_hot(classes);
    // Layers and losses.
    Smooth matmul [x y] () = x.matmul(&y);
    Smooth linear [x weight] () = x.linear(&weight, None);
    Smooth linear_bias [x weight bias] () = x.linear(&weight, Some(&bias));
    Smooth einsum [x y] () = Tensor::einsum("bij,bkj->bik", &[&x, &y]);
    Smooth conv [x weight] (s: usize, p: usize, d: usize, g: usize) = x.conv(&weight, None,
        &ConvParams { stride: [s; 3], padding: [p; 3], dilation: [d; 3], groups: g });
    Smooth conv_bias [x weight bias] (s: usize, p: usize, d: usize, g: usize) = x.conv(&weight, Some(&bias),
        &ConvParams { stride: [s; 3], padding: [p; 3], dilation: [d; 3], groups: g });
    Smooth conv_transpose [x weight] (s: usize, p: usize) = x.conv_transpose(&weight,
        &ConvParams { stride: [s; 3], padding: [p; 3], ..ConvParams::default() }, [0; 3]);
    Jump max_pool [x] (k: usize, s: usize, p: usize) =
        x.max_pool(&PoolParams { stride: [s; 3], padding: [p; 3], ..PoolParams::new([k; 3]) });
    Exact max_pool_values [x] (k: usize) = x.max_pool(&PoolParams::new([k; 3])).map(|found| found.0);
    Smooth avg_pool [x] (k: usize, s: usize, p: usize) =
        x.avg_pool(&PoolParams { stride: [s; 3], padding: [p; 3], ..PoolParams::new([k; 3]) });
    Smooth adaptive_avg_pool [x] (size: Vec<usize>) = x.adaptive_avg_pool(&size[..]);
    Smooth interpolate [x] (size: Vec<usize>) = x.interpolate(Resize::Size(&size[..]), InterpolateMode::Linear, false);
    Exact interpolate_nearest [x] (size: Vec<usize>) =
        x.interpolate(Resize::Size(&size[..]), InterpolateMode::Nearest, false);
    Smooth layer_norm [x weight bias] (axes: usize) = x.layer_norm(Some(&weight), Some(&bias), axes, 1e-2);
    Smooth layer_norm_plain [x] (axes: usize) = x.layer_norm(None, None, axes, 1e-2);
    Smooth rms_norm [x weight] (axes: usize) = x.rms_norm(Some(&weight), axes, 1e-2);
    Smooth group_norm [x weight bias] (groups: usize) = x.group_norm(groups, Some(&weight), Some(&bias), 1e-2);
    Smooth batch_norm [x weight bias] () = x.batch_norm(Some(&weight), Some(&bias), 1e-2).map(|found| found.0);
    Smooth batch_norm_running [x mean variance weight bias] () =
        x.batch_norm_running(&mean, &variance, Some(&weight), Some(&bias), 1e-2);
    Smooth attention [x y z] (causal: bool) =
        x.scaled_dot_product_attention(&y, &z, Attention::new().causal(causal));
    Smooth attention_masked [x y z mask] () =
        x.scaled_dot_product_attention(&y, &z, Attention::new().mask(&mask));
    Smooth lstm_cell [gates cell] () = gates.lstm_cell(&cell);
    Smooth gru_cell [x gates hidden] () = x.gru_cell(&gates, &hidden);
    Smooth cosine_similarity [x y] (axis: isize) = x.cosine_similarity(&y, axis, 1e-2);
    Smooth cross_entropy [x classes] (smoothing: f64) = x.cross_entropy(&classes,
        &CrossEntropyParams { label_smoothing: smoothing, ..CrossEntropyParams::default() });
    Smooth cross_entropy_mean [x classes] () = x.cross_entropy_mean(&classes, &CrossEntropyParams::default());
    Smooth mse_loss [x y] () = loss::mse_loss(&x, &y);
    Smooth l1_loss [x y] () = loss::l1_loss(&x, &y);
    Smooth bce_with_logits [x y] () = loss::bce_with_logits(&x, &y);
}
