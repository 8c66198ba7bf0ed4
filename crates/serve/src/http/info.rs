//! Information about the server and its models, statistics, and loading of models.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use polygrad_onnx::graph::ElementType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{Answer, Target, body, json, text_of_json};
use crate::server::Shared;
use crate::{Failure, ModelInfo, Signature, Snapshot, TensorSpec, Total, datatype_name, protocol};

pub(super) async fn server(State(shared): State<Arc<Shared>>) -> Answer {
    Ok(json(&json!({
        "name": shared.options.name,
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": crate::server::EXTENSIONS,
    })))
}

pub(super) async fn live() -> Response {
    text_of_json(r#"{"live":true}"#)
}

pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let is_ready = shared.is_ready();
    let mut response = json(&json!({ "ready": is_ready }));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

pub(super) async fn model_ready(State(shared): State<Arc<Shared>>, target: Target) -> Answer {
    shared.repository.get(&target.model, target.version)?;
    Ok(json(&json!({ "name": target.model, "ready": true })))
}

pub(super) async fn model(State(shared): State<Arc<Shared>>, target: Target) -> Answer {
    let info = shared.repository.get(&target.model, target.version)?;
    let tensors = |specs: &[TensorSpec]| -> Vec<Json> {
        let tensor = |spec: &TensorSpec| json!({"name": spec.name, "datatype": datatype_name(spec.element), "shape": spec.wire_dims()});
        specs.iter().map(tensor).collect()
    };
    let signature = info.signature();
    Ok(json(&json!({
        "name": target.model,
        "versions": info.versions().iter().map(u64::to_string).collect::<Vec<_>>(),
        "platform": info.platform(),
        "inputs": tensors(&signature.inputs),
        "outputs": tensors(&signature.outputs),
    })))
}

pub(super) async fn config(State(shared): State<Arc<Shared>>, target: Target) -> Answer {
    let info = shared.repository.get(&target.model, target.version)?;
    Ok(json(&triton_config(&target.model, &info)))
}

/// The fields of Triton's model configuration that apply here.
fn triton_config(name: &str, info: &ModelInfo) -> Json {
    let (signature, settings) = (info.signature(), info.settings());
    let is_batched = signature.is_batched_first();
    let max_batch_size = if is_batched { info.max_batch_size() } else { 0 };
    let tensors = |specs: &[TensorSpec], is_optional: &dyn Fn(usize) -> bool| -> Vec<Json> {
        let tensor = |(place, spec): (usize, &TensorSpec)| {
            let dims = &spec.wire_dims()[usize::from(is_batched)..];
            let mut tensor = json!({"name": spec.name, "data_type": type_name(spec.element), "dims": dims});
            if is_optional(place) {
                tensor["optional"] = Json::Bool(true);
            }
            tensor
        };
        specs.iter().enumerate().map(tensor).collect()
    };
    let mut config = json!({
        "name": name,
        "platform": info.platform(),
        "backend": "polygrad",
        "version_policy": {"all": {}},
        "max_batch_size": max_batch_size,
        "input": tensors(&signature.inputs, &|place| signature.is_optional(place)),
        "output": tensors(&signature.outputs, &|_| false),
    });
    if is_batched {
        config["dynamic_batching"] = json!({
            "preferred_batch_size": [max_batch_size],
            "max_queue_delay_microseconds": 0,
            "priority_levels": settings.priority_levels,
            "default_priority_level": settings.default_priority(),
            "default_queue_policy": {
                "default_timeout_microseconds": settings.timeout.map_or(0, protocol::microseconds),
                "allow_timeout_override": true,
                "max_queue_size": settings.max_queue,
            },
        });
    }
    if !info.metadata().is_empty() {
        let known = info.metadata().iter();
        config["parameters"] = known
            .map(|(name, value)| (name.clone(), json!({ "string_value": value })))
            .collect::<Map<_, _>>()
            .into();
    }
    if !signature.states.is_empty() {
        config["sequence_batching"] = json!({
            "max_sequence_idle_microseconds": protocol::microseconds(settings.sequence_timeout),
            "state": states(signature, usize::from(is_batched)),
        });
    }
    config
}

fn states(signature: &Signature, skipped: usize) -> Vec<Json> {
    let state = |state: &crate::State| {
        let input = &signature.inputs[state.input];
        json!({
            "input_name": input.name,
            "output_name": signature.outputs[state.output].name,
            "data_type": type_name(input.element),
            "dims": &input.wire_dims()[skipped..],
        })
    };
    signature.states.iter().map(state).collect()
}

fn type_name(element: ElementType) -> String {
    match element {
        ElementType::String => "TYPE_STRING".to_owned(),
        element => format!("TYPE_{}", datatype_name(element).unwrap_or("INVALID")),
    }
}

pub(super) async fn statistics(State(shared): State<Arc<Shared>>, target: Target) -> Answer {
    let found = shared.repository.statistics(Some(&target.model), target.version)?;
    Ok(json(&shown_statistics(&found)))
}

pub(super) async fn statistics_of_all(State(shared): State<Arc<Shared>>) -> Answer {
    Ok(json(&shown_statistics(&shared.repository.statistics(None, None)?)))
}

fn shown_statistics(found: &[(String, u64, Snapshot)]) -> Json {
    let total = |total: &Total| json!({"count": total.count, "ns": total.ns});
    let models = found.iter().map(|(name, version, snapshot)| {
        let batches = snapshot.batches.iter().map(|(size, [input, infer, output])| {
            json!({
                "batch_size": size,
                "compute_input": total(input),
                "compute_infer": total(infer),
                "compute_output": total(output),
            })
        });
        json!({
            "name": name,
            "version": version.to_string(),
            "last_inference": snapshot.last_inference_ms,
            "inference_count": snapshot.rows,
            "execution_count": snapshot.executions,
            "inference_stats": {
                "success": total(&snapshot.success),
                "fail": total(&snapshot.fail),
                "queue": total(&snapshot.queue),
                "compute_input": total(&snapshot.compute_input),
                "compute_infer": total(&snapshot.compute_infer),
                "compute_output": total(&snapshot.compute_output),
            },
            "batch_stats": batches.collect::<Vec<_>>(),
        })
    });
    json!({"model_stats": models.collect::<Vec<_>>()})
}

#[derive(Default, Deserialize)]
struct IndexRequest {
    #[serde(default)]
    ready: bool,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    version: String,
    state: &'a str,
    reason: &'a str,
}

pub(super) async fn index(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let asked: IndexRequest = read_json(&shared, request).await?;
    let all = shared.repository.index();
    let entries = all.iter().map(|(name, version, state)| {
        let (state, reason) = protocol::state(state);
        Entry {
            name,
            version: version.to_string(),
            state,
            reason,
        }
    });
    let shown = entries.filter(|entry| !asked.ready || entry.state == "READY");
    Ok(json(&shown.collect::<Vec<_>>()))
}

pub(super) async fn load(State(shared): State<Arc<Shared>>, target: Target, request: Request) -> Answer {
    let asked: ControlRequest = controlled(&shared, request).await?;
    if let Some(name) = asked.parameters.keys().next() {
        return Err(Failure::invalid(format!(
            "the parameter {name:?} is not taken: models are loaded from where the server was told to find them"
        )));
    }
    let repository = shared.repository.clone();
    body::offload(move || repository.load(&target.model)).await?;
    Ok(json(&Map::new()))
}

pub(super) async fn unload(State(shared): State<Arc<Shared>>, target: Target, request: Request) -> Answer {
    // Triton's clients send unload_dependents, which has no effect: no model depends on another.
    let _: ControlRequest = controlled(&shared, request).await?;
    let repository = shared.repository.clone();
    body::offload(move || repository.unload(&target.model)).await?;
    Ok(json(&Map::new()))
}

#[derive(Default, Deserialize)]
struct ControlRequest {
    #[serde(default)]
    parameters: Map<String, Json>,
}

async fn controlled<T: Default + serde::de::DeserializeOwned>(shared: &Shared, request: Request) -> Result<T, Failure> {
    protocol::control(shared.options.control)?;
    read_json(shared, request).await
}

/// A JSON body; an empty one stands for the default.
async fn read_json<T: Default + serde::de::DeserializeOwned>(shared: &Shared, request: Request) -> Result<T, Failure> {
    let (parts, sent): (_, Body) = request.into_parts();
    let bytes = body::read(&parts.headers, sent, 0, shared.options.max_body_bytes.min(1 << 20)).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes).map_err(|error| Failure::invalid(format!("the JSON cannot be read: {error}")))
}
