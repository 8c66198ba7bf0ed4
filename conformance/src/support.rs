//! Which backend computes which op in which dtype, as a page.

use std::collections::BTreeMap;
use std::fmt::Write;

use polygrad_core::{DType, Op, OpDesc, Result, Support};
use polygrad_tensor::{AnyBackend, Device};

use crate::generated;

/// The page `docs/ops.md`: for each op and backend the dtypes that it computes by a kernel of its own (native), by other ops (decomposed) or on the host.
/// Dtypes that stand in neither list it does not compute. The dtype is that of the op's first tensor.
///
/// # Errors
/// A device that does not say what it supports.
pub fn support_page(devices: &[Device<AnyBackend>]) -> Result<String> {
    let mut rows: BTreeMap<String, Op> = BTreeMap::new();
    for op in generated::ops() {
        rows.entry(label(&op)).or_insert(op);
    }
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
    for (label, op) in &rows {
        let _ = write!(page, "| {label} |");
        for device in devices {
            let _ = write!(page, " {} |", cell(op, device)?);
        }
        page.push('\n');
    }
    Ok(page)
}

/// The op's name, and what tells it from another op of the name.
fn label(op: &Op) -> String {
    let name = op.name();
    match op {
        Op::BinaryScalar { .. } | Op::CompareScalar { .. } => format!("{name} with a number"),
        Op::Activation(_) => format!("{name} as an activation"),
        _ => name.to_owned(),
    }
}

fn cell(op: &Op, device: &Device<AnyBackend>) -> Result<String> {
    let (mut native, mut decomposed, mut host) = (Vec::new(), Vec::new(), Vec::new());
    let there = device.capabilities().dtypes;
    for dtype in DType::ALL.into_iter().filter(|dtype| there.contains(dtype)) {
        match device
            .inner()
            .backend()
            .supports(device.inner(), &OpDesc { op, dtype })?
        {
            Support::Native => native.push(dtype),
            Support::Decomposed => decomposed.push(dtype),
            Support::Host => host.push(dtype),
            Support::No(_) => {}
        }
    }
    let lists = [("native", native), ("decomposed", decomposed), ("on the host", host)];
    let parts = lists.into_iter().filter(|(_, dtypes)| !dtypes.is_empty());
    let parts: Vec<String> = parts
        .map(|(how, dtypes)| format!("{how}: {}", kinds(&dtypes)))
        .collect();
    Ok(if parts.is_empty() {
        "no".to_owned()
    } else {
        parts.join("; ")
    })
}

/// The dtypes in as few words as say it.
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
