//! A request to try a model with.

use polygrad_onnx::graph::{Dim, ElementType};
use polygrad_serve::{InputDefault, Signature, TensorSpec, datatype_name};

/// More values than these are written by the shell.
const SHORT: usize = 16;

/// What is posted to a model, in the quotes of a shell.
pub(super) fn body(signature: &Signature) -> String {
    let inputs = signature.inputs.iter().enumerate();
    let inputs = inputs.filter(|(place, _)| !signature.is_optional(*place));
    let inputs: Vec<String> = inputs.map(|(_, spec)| input(spec)).collect();
    let sequence = match signature.states.is_empty() {
        true => "",
        false => r#""parameters":{"sequence_id":1,"sequence_start":true},"#,
    };
    format!(r#"'{{{sequence}"inputs":[{}]}}'"#, inputs.join(","))
}

fn input(spec: &TensorSpec) -> String {
    let rank = spec.dims.len();
    let extent = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Fixed(extent) => *extent,
        _ if spec.batch == Some(axis) || axis == 0 => 1,
        // Of pictures.
        _ if rank > 3 => 64,
        _ => 4,
    };
    let shape: Vec<usize> = spec.dims.iter().enumerate().map(extent).collect();
    let count: usize = shape.iter().product();
    let value = match spec.element {
        ElementType::Bool => "true",
        ElementType::String => r#""a few words""#,
        _ if spec.name.ends_with("mask") => "1",
        _ => "0",
    };
    let data = match count <= SHORT {
        true => vec![value; count].join(","),
        false => format!("'$(yes {value} | head -n {count} | paste -sd, -)'"),
    };
    format!(
        r#"{{"name":{:?},"shape":{},"datatype":"{}","data":[{data}]}}"#,
        spec.name,
        format!("{shape:?}").replace(", ", ","),
        datatype_name(spec.element).unwrap_or_default()
    )
}

/// What a model takes or gives, in a line.
pub(super) fn types(specs: &[TensorSpec]) -> String {
    let one = |spec: &TensorSpec| {
        let dims: Vec<String> = spec.dims.iter().map(Dim::to_string).collect();
        let name = datatype_name(spec.element).unwrap_or_default();
        let default = match &spec.default {
            Some(InputDefault::Number(number)) => format!(" = {number}"),
            Some(InputDefault::Value(_)) => " = its default".to_owned(),
            None => String::new(),
        };
        format!("{} {name}[{}]{default}", spec.name, dims.join(", "))
    };
    specs.iter().map(one).collect::<Vec<_>>().join(", ")
}
