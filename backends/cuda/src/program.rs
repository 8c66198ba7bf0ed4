//! CUDA C for programs of element-wise steps.

use std::fmt::Write;

use polygrad_core::compute::{ElementwiseProgram, Step, Value};
use polygrad_core::{DType, Error, Result};

use crate::source::type_of;
use crate::table::{self, Class};

/// Elements per thread.
pub(crate) const EACH: u32 = 4;

/// How the elements of a view are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Contiguous.
    Row,
    /// With a stride for each axis.
    Strided,
}

/// The kernel of a program over axes of this rank; the arguments are `n`, the extents, the strides of each strided
/// view, the views' addresses and the scalars.
///
/// # Errors
/// If one of its steps has no form in CUDA C.
pub(crate) fn text(program: &ElementwiseProgram, rank: usize, views: &[Access]) -> Result<String> {
    let mut text = format!("#define EACH {EACH}\n");
    write(&mut text, program, rank, views).map_err(|_| Error::invalid("a program too long to be written down"))??;
    Ok(text)
}

fn write(
    out: &mut String,
    program: &ElementwiseProgram,
    rank: usize,
    views: &[Access],
) -> std::result::Result<Result<()>, std::fmt::Error> {
    let dtypes: Vec<DType> = (program.inputs().iter().copied())
        .chain(program.outputs().iter().filter_map(|&value| program.dtype(value)))
        .collect();
    let strided = |view: &usize| views[*view] == Access::Strided;
    let inputs = program.inputs().len();
    writeln!(out, "struct Args {{\n    u64 n;\n    i64 dims[{rank}];")?;
    for view in (0..views.len()).filter(strided) {
        writeln!(out, "    i64 strides{view}[{rank}];")?;
    }
    for (view, &dtype) in dtypes.iter().enumerate() {
        writeln!(out, "    {}* view{view};", type_of(dtype))?;
    }
    for i in 0..program.scalars().len() {
        writeln!(out, "    u64 scalar{i};")?;
    }
    writeln!(out, "}};\n")?;
    writeln!(
        out,
        "extern \"C\" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {{"
    )?;
    writeln!(
        out,
        "    const u64 first = (u64)blockIdx.x * (BLOCK * EACH) + threadIdx.x;"
    )?;
    for (i, &dtype) in program.scalars().iter().enumerate() {
        writeln!(out, "    const {0}::C s{i} = {1};", number(dtype), scalar(dtype, i))?;
    }
    for (view, &dtype) in dtypes.iter().enumerate() {
        if view < inputs {
            writeln!(out, "    {} in{view}[EACH];", type_of(dtype))?;
        }
        if strided(&view) {
            writeln!(out, "    i64 at{view}[EACH];")?;
        }
    }
    // All inputs are read before anything is written, so that a thread's loads are in flight together.
    writeln!(out, "#pragma unroll\n    for (int j = 0; j < EACH; ++j) {{")?;
    writeln!(
        out,
        "        const u64 i = first + (u64)j * BLOCK;\n        if (i >= args.n) continue;"
    )?;
    if views.contains(&Access::Strided) {
        let all = || (0..views.len()).filter(strided);
        for view in all() {
            writeln!(out, "        at{view}[j] = 0;")?;
        }
        writeln!(out, "        u64 rest = i;")?;
        for axis in (1..rank).rev() {
            writeln!(
                out,
                "        {{\n            const u64 next = rest / (u64)args.dims[{axis}];"
            )?;
            writeln!(
                out,
                "            const i64 step = (i64)(rest - next * (u64)args.dims[{axis}]);"
            )?;
            for view in all() {
                writeln!(out, "            at{view}[j] += step * args.strides{view}[{axis}];")?;
            }
            writeln!(out, "            rest = next;\n        }}")?;
        }
        for view in all() {
            writeln!(out, "        at{view}[j] += (i64)rest * args.strides{view}[0];")?;
        }
    }
    let at = |view: usize| match views[view] {
        Access::Row => "i".to_owned(),
        Access::Strided => format!("at{view}[j]"),
    };
    for view in 0..inputs {
        writeln!(out, "        in{view}[j] = args.view{view}[{}];", at(view))?;
    }
    writeln!(out, "    }}\n#pragma unroll\n    for (int j = 0; j < EACH; ++j) {{")?;
    writeln!(
        out,
        "        const u64 i = first + (u64)j * BLOCK;\n        if (i >= args.n) continue;"
    )?;
    for (i, &dtype) in program.inputs().iter().enumerate() {
        writeln!(out, "        const {0}::C x{i} = {0}::get(in{i}[j]);", number(dtype))?;
    }
    for (i, &(step, dtype)) in program.steps().iter().enumerate() {
        match expression(program, step, dtype) {
            Ok(text) => writeln!(out, "        const {}::C t{i} = {text};", number(dtype))?,
            Err(error) => return Ok(Err(error.with_op(step.name()))),
        }
    }
    for (i, &value) in program.outputs().iter().enumerate() {
        let view = inputs + i;
        writeln!(
            out,
            "        args.view{view}[{}] = {}::put({});",
            at(view),
            number(dtypes[view]),
            name(value)
        )?;
    }
    writeln!(out, "    }}\n}}")?;
    Ok(Ok(()))
}

fn number(dtype: DType) -> String {
    format!("Number<{}>", type_of(dtype))
}

/// A scalar argument, which is passed as the bits of its dtype.
fn scalar(dtype: DType, i: usize) -> String {
    let bits = format!("args.scalar{i}");
    match dtype {
        DType::F64 => format!("__longlong_as_double((i64){bits})"),
        DType::F32 => format!("__uint_as_float((u32){bits})"),
        DType::F16 => format!("widen_half((u16){bits})"),
        DType::BF16 => format!("widen_brain((u16){bits})"),
        DType::Bool => format!("{bits} != 0"),
        DType::U8 | DType::I32 | DType::I64 => format!("({}){bits}", type_of(dtype)),
    }
}

fn name(value: Value) -> String {
    match value {
        Value::Input(i) => format!("x{i}"),
        Value::Scalar(i) => format!("s{i}"),
        Value::Step(i) => format!("t{i}"),
    }
}

/// The expression that a step computes, rounded to its dtype.
fn expression(program: &ElementwiseProgram, step: Step, result: DType) -> Result<String> {
    let of = |value| program.dtype(value).unwrap_or(result);
    let lacks = |dtype: DType| Error::unsupported(format!("CUDA has no such function of {dtype}"));
    // The table's expressions use names, which are bound to the operands inside a lambda, so that each operand is
    // computed once.
    let call = |dtype: DType, parameters: &[(&str, Value)], text: &str| {
        let declared: Vec<_> = (parameters.iter())
            .map(|&(parameter, value)| format!("const C {parameter} = {}", name(value)))
            .collect();
        format!(
            "[&]() -> {}::C {{ typedef {}::C C; {}; return ({}::C)({text}); }}()",
            number(result),
            number(dtype),
            declared.join("; "),
            number(result)
        )
    };
    let text = match step {
        Step::Unary(op, x) => {
            let text = table::unary(op, Class::of(of(x))).ok_or_else(|| lacks(of(x)))?;
            call(of(x), &[("x", x)], text)
        }
        Step::Binary(op, a, b) => {
            let text = table::binary(op, Class::of(result)).ok_or_else(|| lacks(result))?;
            call(result, &[("a", a), ("b", b)], text)
        }
        Step::Compare(op, a, b) => {
            let text = table::compare(op).ok_or_else(|| lacks(of(a)))?;
            call(of(a), &[("a", a), ("b", b)], text)
        }
        Step::Select(condition, a, b) => return Ok(format!("{} ? {} : {}", name(condition), name(a), name(b))),
        Step::Cast(x, to) if to == of(x) => return Ok(name(x)),
        Step::Cast(x, to) => return Ok(format!("Cast<{}>::from({})", type_of(to), name(x))),
        _ => return Err(Error::unsupported("the CUDA driver does not know this step")),
    };
    Ok(match result {
        DType::F16 | DType::BF16 => format!("rounded<{}>({text})", type_of(result)),
        _ => text,
    })
}
