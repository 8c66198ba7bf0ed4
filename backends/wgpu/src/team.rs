//! Teams of threads that work on a row, and indices into strided memory.

use std::fmt::Write as _;

use crate::source::{Source, param};

/// Threads per workgroup.
pub(crate) const THREADS: usize = 256;

/// The threads for a row: a workgroup, or a single thread for short rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Team {
    /// All threads of a workgroup.
    Group,
    /// One thread.
    Single,
}

impl Team {
    /// The team for rows of `len` elements.
    pub(crate) fn choose(len: usize) -> Self {
        if len > 64 { Self::Group } else { Self::Single }
    }

    /// Number of workgroups.
    pub(crate) fn groups(self, rows: usize) -> u64 {
        match self {
            Self::Group => rows as u64,
            Self::Single => (rows as u64).div_ceil(THREADS as u64),
        }
    }

    /// Distance from a thread's element to its next in the row.
    pub(crate) fn step(self) -> usize {
        match self {
            Self::Group => THREADS,
            Self::Single => 1,
        }
    }

    /// Defines `row` and `me`; the number of rows is parameter number `rows`.
    pub(crate) fn head(self, rows: usize) -> String {
        let (row, me) = match self {
            Self::Group => ("wg".to_owned(), "lane"),
            Self::Single => (format!("wg * {THREADS}u + lane"), "0u"),
        };
        format!(
            "let row = {row};\nif (row >= {}) {{ return; }}\nlet me = {me};\n",
            param(rows)
        )
    }

    /// Combines the variables of all threads, with the results in `out…`. `combine` takes the names of both sides'
    /// variables, and returns statements that assign to the first.
    pub(crate) fn combine(
        self,
        body: &mut String,
        shared: &[&str],
        vars: &[&str],
        out: &[&str],
        combine: impl Fn(&[String], &[String]) -> String,
    ) {
        if self == Self::Single {
            for (out, var) in out.iter().zip(vars) {
                let _ = writeln!(body, "let {out} = {var};");
            }
            return;
        }
        for (shared, var) in shared.iter().zip(vars) {
            let _ = writeln!(body, "{shared}[lane] = {var};");
        }
        let side = |index: &str| shared.iter().map(|name| format!("{name}[{index}]")).collect::<Vec<_>>();
        let _ = writeln!(
            body,
            "workgroupBarrier();\nfor (var s = {}u; s > 0u; s = s >> 1u) {{\nif (lane < s) {{ {} }}\nworkgroupBarrier();\n}}",
            THREADS / 2,
            combine(&side("lane"), &side("lane + s"))
        );
        for (out, shared) in out.iter().zip(shared) {
            let _ = writeln!(body, "let {out} = {shared}[0];");
        }
        body.push_str("workgroupBarrier();\n");
    }

    /// [`Team::combine`] for one variable and an expression with `$a` and `$b`.
    pub(crate) fn fold(self, body: &mut String, shared: &str, var: &str, out: &str, expression: &str) {
        self.combine(body, &[shared], &[var], &[out], |a, b| {
            format!("{} = {};", a[0], expression.replace("$a", &a[0]).replace("$b", &b[0]))
        });
    }
}

/// Defines `name(i)`: the offset of the `i`-th element of a strided layout, from the parameters `dims` and `strides` of
/// its axes.
pub(crate) fn walk(source: &mut Source<'_>, name: &str, rank: usize, dims: usize, strides: usize) {
    let mut body = String::from("var rest = i;\nvar at = 0u;\n");
    for axis in (1..rank).rev() {
        let _ = writeln!(
            body,
            "at = at + (rest % {d}) * {s};\nrest = rest / {d};",
            d = param(dims + axis),
            s = param(strides + axis)
        );
    }
    if rank > 0 {
        let _ = writeln!(body, "at = at + rest * {};", param(strides));
    }
    source.function(&format!("fn {name}(i: u32) -> u32 {{\n{body}return at;\n}}"));
}
