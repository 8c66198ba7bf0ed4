//! The ops: one table from domain and type to the function that computes the op.

mod activation;
mod attention;
mod attributes;
mod cast;
mod contraction;
mod control;
pub(super) mod conv;
mod create;
mod elementwise;
mod gather;
mod loss;
mod matmul;
mod microsoft;
mod ml;
mod norm;
mod pool;
mod recurrent;
mod reduce;
mod region;
mod resize;
mod row;
mod sample;
mod scatter;
mod select;
pub(crate) mod shape;
mod signal;
mod text;
pub(crate) mod whole;

pub(crate) use attributes::check as check_attributes;
pub(crate) use cast::dynamic;
pub(crate) use matmul::{matrices, product};
pub(crate) use microsoft::{DOMAIN as MICROSOFT, looked_up_weight, packed_product, packed_weight};
pub(crate) use ml::{DOMAIN as CLASSICAL, Forest};
use polygrad_core::{Error, Result, printable};
pub(crate) use row::{Row, apply, settle};

/// The newest supported version of each domain's ops; unlisted domains have one version.
fn newest(domain: &str) -> i64 {
    match domain {
        "" => 28,
        ml::DOMAIN => ml::NEWEST,
        _ => i64::MAX,
    }
}

/// The version of a domain's ops in a model that does not say it. ONNX Runtime, whose optimizer for transformers writes
/// such models, takes the newest.
pub(crate) fn unsaid_version(domain: &str) -> Option<i64> {
    match domain {
        MICROSOFT => Some(1),
        CLASSICAL => Some(newest(domain)),
        _ => None,
    }
}

/// All rows, family by family.
fn families() -> impl Iterator<Item = &'static [Row]> {
    let own = [
        elementwise::ROWS,
        activation::ROWS,
        cast::ROWS,
        reduce::ROWS,
        shape::ROWS,
        gather::ROWS,
        scatter::ROWS,
        select::ROWS,
        create::ROWS,
        matmul::ROWS,
        conv::ROWS,
        pool::ROWS,
        norm::ROWS,
        attention::ROWS,
        recurrent::ROWS,
        resize::ROWS,
        sample::ROWS,
        region::ROWS,
        signal::ROWS,
        loss::ROWS,
        text::ROWS,
        control::ROWS,
    ];
    own.into_iter().chain(microsoft::FAMILIES).chain(ml::FAMILIES)
}

/// The row of an op, whatever its version.
pub(crate) fn row(domain: &str, op_type: &str) -> Option<&'static Row> {
    let mut rows = families().flatten();
    rows.find(|row| row.domain == domain && row.op_type == op_type)
}

/// The row of an op.
///
/// # Errors
/// When there is none, or the op is newer than the version asked for.
pub(crate) fn find(domain: &str, op_type: &str, version: i64) -> Result<&'static Row> {
    let Some(row) = row(domain, op_type) else {
        return Err(Error::unsupported(format!(
            "an op is not known here: {} of {}",
            printable(op_type),
            printable(super::unknown::name_of(domain))
        )));
    };
    let newest = newest(domain);
    if !(1..=newest).contains(&version) {
        return Err(Error::unsupported(format!(
            "version {version} of the ops is not known here: {newest} is the newest"
        ))
        .with_hint("export the model for an older version"));
    }
    if version < row.since {
        return Err(Error::unsupported(format!(
            "{op_type} came with version {}, the model says {version}",
            row.since
        )));
    }
    Ok(row)
}

/// Each op that can be imported: its domain (empty for `ai.onnx`), its type, and the version of the domain's ops that
/// introduced it.
pub fn op_versions() -> Vec<(&'static str, &'static str, i64)> {
    let rows = families().flatten();
    rows.map(|row| (row.domain, row.op_type, row.since)).collect()
}
