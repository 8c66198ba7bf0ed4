//! Information about models and their statistics, as messages.

use polygrad_onnx::graph::ElementType;

use super::proto::model_config::SchedulingChoice;
use super::proto::model_metadata_response::TensorMetadata;
use super::proto::model_sequence_batching::State;
use super::proto::model_version_policy::{All, PolicyChoice};
use super::proto::{
    DataType, InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelInput,
    ModelMetadataResponse, ModelOutput, ModelParameter, ModelQueuePolicy, ModelSequenceBatching, ModelStatistics,
    ModelVersionPolicy, StatisticDuration,
};
use crate::repository::ModelInfo;
use crate::value::shown;
use crate::{Settings, Snapshot, TensorSpec, Total, protocol};

pub(super) fn metadata(name: String, model: &ModelInfo) -> ModelMetadataResponse {
    let tensors = |specs: &[TensorSpec]| {
        let tensors = specs.iter().map(|spec| TensorMetadata {
            name: spec.name.clone(),
            datatype: shown(spec.element).to_owned(),
            shape: spec.wire_dims(),
        });
        tensors.collect()
    };
    ModelMetadataResponse {
        name,
        versions: model.versions().iter().map(u64::to_string).collect(),
        platform: model.platform().to_owned(),
        inputs: tensors(&model.signature().inputs),
        outputs: tensors(&model.signature().outputs),
    }
}

/// The fields of Triton's model configuration that apply here. If rows are joined along the first axis, extents are
/// without it.
pub(super) fn config(name: String, model: &ModelInfo) -> ModelConfig {
    let signature = model.signature();
    let is_batched = signature.is_batched_first();
    let max_batch_size = match is_batched {
        true => i32::try_from(model.max_batch_size()).unwrap_or(i32::MAX),
        false => 0,
    };
    let dims = |spec: &TensorSpec| spec.wire_dims().into_iter().skip(usize::from(is_batched)).collect();
    let input = signature.inputs.iter().enumerate().map(|(place, spec)| ModelInput {
        name: spec.name.clone(),
        data_type: data_type(spec.element).into(),
        dims: dims(spec),
        optional: signature.is_optional(place),
    });
    let output = signature.outputs.iter().map(|spec| ModelOutput {
        name: spec.name.clone(),
        data_type: data_type(spec.element).into(),
        dims: dims(spec),
    });
    let state = signature.states.iter().map(|state| {
        let input = &signature.inputs[state.input];
        State {
            input_name: input.name.clone(),
            output_name: signature.outputs[state.output].name.clone(),
            data_type: data_type(input.element).into(),
            dims: dims(input),
        }
    });
    let scheduling = match signature.states.is_empty() {
        true => is_batched.then(|| SchedulingChoice::DynamicBatching(batching(model.settings(), max_batch_size))),
        false => Some(SchedulingChoice::SequenceBatching(ModelSequenceBatching {
            max_sequence_idle_microseconds: protocol::microseconds(model.settings().sequence_timeout),
            state: state.collect(),
        })),
    };
    ModelConfig {
        name,
        platform: model.platform().to_owned(),
        backend: "polygrad".to_owned(),
        version_policy: Some(ModelVersionPolicy {
            policy_choice: Some(PolicyChoice::All(All {})),
        }),
        max_batch_size,
        input: input.collect(),
        output: output.collect(),
        scheduling_choice: scheduling,
        parameters: model
            .metadata()
            .iter()
            .map(|(name, value)| {
                let string_value = value.clone();
                (name.clone(), ModelParameter { string_value })
            })
            .collect(),
    }
}

fn batching(settings: &Settings, max_batch_size: i32) -> ModelDynamicBatching {
    ModelDynamicBatching {
        preferred_batch_size: vec![max_batch_size],
        priority_levels: settings.priority_levels,
        default_priority_level: settings.default_priority(),
        default_queue_policy: Some(ModelQueuePolicy {
            default_timeout_microseconds: settings.timeout.map_or(0, protocol::microseconds),
            allow_timeout_override: true,
            max_queue_size: u32::try_from(settings.max_queue).unwrap_or(u32::MAX),
        }),
    }
}

fn data_type(element: ElementType) -> DataType {
    let name = match shown(element) {
        "BYTES" => "STRING",
        name => name,
    };
    DataType::from_str_name(&format!("TYPE_{name}")).unwrap_or(DataType::TypeInvalid)
}

pub(super) fn statistics((name, version, snapshot): (String, u64, Snapshot)) -> ModelStatistics {
    let batches = snapshot
        .batches
        .iter()
        .map(|(&rows, [input, infer, output])| InferBatchStatistics {
            batch_size: rows as u64,
            compute_input: duration(*input),
            compute_infer: duration(*infer),
            compute_output: duration(*output),
        });
    ModelStatistics {
        name,
        version: version.to_string(),
        last_inference: snapshot.last_inference_ms,
        inference_count: snapshot.rows,
        execution_count: snapshot.executions,
        inference_stats: Some(InferStatistics {
            success: duration(snapshot.success),
            fail: duration(snapshot.fail),
            queue: duration(snapshot.queue),
            compute_input: duration(snapshot.compute_input),
            compute_infer: duration(snapshot.compute_infer),
            compute_output: duration(snapshot.compute_output),
        }),
        batch_stats: batches.collect(),
    }
}

fn duration(total: Total) -> Option<StatisticDuration> {
    Some(StatisticDuration {
        count: total.count,
        ns: total.ns,
    })
}
