//! A page that shows which backend computes which op in which dtype.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use polygrad_core::{DType, Op, Result};
use polygrad_tensor::{AnyBackend, Device};

use crate::generated;

/// The page `docs/ops.md`: for each op and backend the dtypes that it computes with a kernel of its own (native), with
/// other ops (decomposed) or on the host, as observed with the suite's samples. It does not support dtypes that are in
/// neither list. The dtype is that of the op's first tensor.
///
/// # Errors
/// A device that fails to compute something it claims to support.
pub fn support_page(devices: &[Device<AnyBackend>]) -> Result<String> {
    let columns = devices
        .iter()
        .map(|device| generated::ways(device, label))
        .collect::<Result<Vec<_>>>()?;
    let mut page = String::from(
        "# Ops\n\nWhat each backend computes, and in which dtypes: *native* by a kernel of its own, *decomposed* by other ops, \
         *on the host* where a driver\nhas no kernel; what is not listed it does not compute. The dtype is that of the op's first tensor. Floats are f64, f32, f16 and bf16, integers u8, i32 and i64, numbers both.\n\
         Written by `polygrad check cpu --mode support`.\n\n| op |",
    );
    for device in devices {
        let _ = write!(page, " {} |", device.backend_name());
    }
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(devices.len()));
    page.push('\n');
    let labels: BTreeSet<&String> = columns.iter().flat_map(BTreeMap::keys).collect();
    for label in labels {
        let _ = write!(page, "| {label} |");
        for ways in &columns {
            let _ = write!(page, " {} |", ways.get(label).map_or_else(String::new, cell));
        }
        page.push('\n');
    }
    Ok(page)
}

/// The op's name, with a suffix if several ops have this name.
fn label(op: &Op) -> String {
    let name = op.name();
    match op {
        Op::BinaryScalar { .. } | Op::CompareScalar { .. } => format!("{name} with a number"),
        Op::Activation(_) => format!("{name} as an activation"),
        _ => name.to_owned(),
    }
}

fn cell(ways: &BTreeMap<DType, &'static str>) -> String {
    let parts: Vec<String> = ["native", "decomposed", "on the host"]
        .into_iter()
        .filter_map(|way| {
            let dtypes: Vec<DType> = DType::ALL
                .into_iter()
                .filter(|dtype| ways.get(dtype) == Some(&way))
                .collect();
            (!dtypes.is_empty()).then(|| format!("{way}: {}", kinds(&dtypes)))
        })
        .collect();
    if parts.is_empty() {
        "no".to_owned()
    } else {
        parts.join("; ")
    }
}

/// The dtypes in as few words as possible.
fn kinds(dtypes: &[DType]) -> String {
    let all = |kind: fn(&DType) -> bool| {
        let members: Vec<DType> = DType::ALL.into_iter().filter(kind).collect();
        members == dtypes
    };
    let name = [
        ("all", all(|_| true)),
        ("numbers", all(|dtype| *dtype != DType::Bool)),
        ("floats", all(|dtype| dtype.is_float())),
        ("integers and bool", all(|dtype| !dtype.is_float())),
        ("integers", all(|dtype| !dtype.is_float() && *dtype != DType::Bool)),
    ];
    match name.into_iter().find(|(_, fits)| *fits) {
        Some((name, _)) => name.to_owned(),
        None => dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" "),
    }
}
