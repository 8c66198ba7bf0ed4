//! Streams, sequences, deadlines, and calls other than inference, over gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::running::messages::{first_float, float, with};
use crate::running::proto::health::HealthCheckRequest;
use crate::running::proto::health::health_client::HealthClient;
use crate::running::proto::infer_parameter::ParameterChoice;
use crate::running::proto::*;
use crate::running::{Running, repository};
use crate::support::{accumulator, counted, delicate, identity};
use futures_util::stream;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{Pool, Repository, ServerOptions, Settings};
use tonic::{Code, Request};

#[tokio::test]
async fn a_stream_gives_each_request_its_answer_in_order() {
    let server = Running::of(vec![("identity", identity(ElementType::F32)), ("delicate", delicate())]).await;
    let mut client = server.grpc().await;
    let requests = (0..500).map(|i| match i % 50 {
        49 => ModelInferRequest {
            id: i.to_string(),
            ..float("delicate", -1.0)
        },
        _ => ModelInferRequest {
            id: i.to_string(),
            ..float("identity", i as f32)
        },
    });
    let mut answers = client
        .model_stream_infer(stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    for i in 0..500 {
        let answer = answers.message().await.unwrap().unwrap();
        let response = answer.infer_response.unwrap();
        assert_eq!(response.id, i.to_string());
        match i % 50 {
            49 => assert!(answer.error_message.contains("minus one"), "{}", answer.error_message),
            _ => assert_eq!((first_float(&response), answer.error_message.as_str()), (i as f32, "")),
        }
    }
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn sequences_go_on_in_a_stream_and_between_calls() {
    let server = Running::of(vec![("sum", accumulator())]).await;
    let mut client = server.grpc().await;
    let step = |id: ParameterChoice, value: f32, start: bool, end: bool| {
        let request = with(float("sum", value), "sequence_id", id);
        let request = with(request, "sequence_start", ParameterChoice::BoolParam(start));
        with(request, "sequence_end", ParameterChoice::BoolParam(end))
    };
    let of = |i: i64| match i % 2 {
        0 => ParameterChoice::Uint64Param(7),
        _ => ParameterChoice::StringParam("seven".to_owned()),
    };
    let requests: Vec<_> = (0..200).map(|i| step(of(i), i as f32, i < 2, i >= 198)).collect();
    let mut answers = client
        .model_stream_infer(stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut sums = [0.0; 2];
    for i in 0..200 {
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.error_message, "");
        sums[i % 2] += i as f32;
        let response = answer.infer_response.unwrap();
        assert_eq!(first_float(&response), sums[i % 2]);
        // The state stays on the server.
        assert_eq!(response.outputs.len(), 1);
    }
    let ended = client.model_infer(step(of(0), 1.0, false, false)).await.unwrap_err();
    assert!(ended.message().contains("begin it with sequence_start"), "{ended}");
    for (value, sum) in [(1.0, 1.0), (2.0, 3.0), (4.0, 7.0)] {
        let response = client
            .model_infer(step(of(0), value, value == 1.0, false))
            .await
            .unwrap();
        assert_eq!(first_float(response.get_ref()), sum);
    }
}

const SLOW: Duration = Duration::from_millis(100);

/// A model that takes [`SLOW`], one request at a time, and its repository.
async fn slow() -> (Running, Arc<crate::support::Counts>) {
    let counts = Arc::<crate::support::Counts>::default();
    let model = counted(ElementType::F32, Arc::clone(&counts), SLOW);
    let settings = Settings {
        max_batch_size: 1,
        max_queue: 2,
        ..Settings::default()
    };
    let repository = Repository::new(Pool::new(1).unwrap());
    repository
        .add("slow", 1, move || Ok(Arc::clone(&model)), settings)
        .unwrap();
    repository.load("slow").unwrap();
    (Running::start(repository, ServerOptions::default()).await, counts)
}

#[tokio::test]
async fn what_is_late_is_not_computed() {
    let (server, counts) = slow().await;
    let before = counts.runs.load(Ordering::SeqCst);
    let mut clients = [server.grpc().await, server.grpc().await, server.grpc().await];
    let [first, second, third] = &mut clients;
    let mut by_header = Request::new(float("slow", 1.0));
    by_header.metadata_mut().insert("grpc-timeout", "20m".parse().unwrap());
    let by_parameter = with(float("slow", 1.0), "timeout", ParameterChoice::Uint64Param(20_000));
    let late = async {
        tokio::time::sleep(SLOW / 4).await;
        tokio::join!(second.model_infer(by_header), third.model_infer(by_parameter))
    };
    let (first, (header, parameter)) = tokio::join!(first.model_infer(float("slow", 1.0)), late);
    first.unwrap();
    // The client has a timeout, too, which may be first.
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&header.unwrap_err().code()));
    let status = parameter.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let (_, _, statistics) = server.repository.statistics(Some("slow"), None).unwrap().remove(0);
    assert_eq!(statistics.late, 2);
    assert_eq!(counts.runs.load(Ordering::SeqCst) - before, 1);
}

#[tokio::test]
async fn what_is_given_up_is_not_computed() {
    let (server, counts) = slow().await;
    let before = counts.runs.load(Ordering::SeqCst);
    let mut clients = [server.grpc().await, server.grpc().await];
    let [first, second] = &mut clients;
    let given_up = async {
        tokio::time::sleep(SLOW / 4).await;
        tokio::time::timeout(SLOW / 4, second.model_infer(float("slow", 1.0))).await
    };
    let (first, given_up) = tokio::join!(first.model_infer(float("slow", 1.0)), given_up);
    first.unwrap();
    assert!(given_up.is_err());
    clients[0].model_infer(float("slow", 1.0)).await.unwrap();
    assert_eq!(counts.runs.load(Ordering::SeqCst) - before, 2);
    let (_, _, statistics) = server.repository.statistics(Some("slow"), None).unwrap().remove(0);
    assert_eq!((statistics.cancelled, statistics.success.count), (1, 2));
}

#[tokio::test]
async fn beyond_its_limit_a_queue_turns_calls_away() {
    let (server, _) = slow().await;
    let client = server.grpc().await;
    let began = Instant::now();
    let refused = Arc::new(AtomicUsize::new(0));
    let calls = (0..10).map(|_| {
        let (mut client, refused) = (client.clone(), Arc::clone(&refused));
        tokio::spawn(async move {
            if let Err(status) = client.model_infer(float("slow", 1.0)).await {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(began.elapsed() < SLOW, "it was told too late");
                refused.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let refused = refused.load(Ordering::SeqCst);
    assert!((7..=8).contains(&refused), "{refused}");
}

#[tokio::test]
async fn models_come_and_go_where_that_is_allowed() {
    let unload = || RepositoryModelUnloadRequest {
        model_name: "identity".to_owned(),
        ..Default::default()
    };
    let load = || RepositoryModelLoadRequest {
        model_name: "identity".to_owned(),
        ..Default::default()
    };
    let server = Running::of(vec![("identity", identity(ElementType::F32))]).await;
    let status = server.grpc().await.repository_model_unload(unload()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");

    let options = ServerOptions {
        control: true,
        ..ServerOptions::default()
    };
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let server = Running::start(models, options).await;
    let mut client = server.grpc().await;
    let ready = || ModelReadyRequest {
        name: "identity".to_owned(),
        ..Default::default()
    };
    client.repository_model_unload(unload()).await.unwrap();
    assert!(!client.model_ready(ready()).await.unwrap().into_inner().ready);
    let server_ready = client.server_ready(ServerReadyRequest {}).await.unwrap();
    assert!(server_ready.into_inner().ready, "what nobody wants is not waited for");
    let status = client.model_infer(float("identity", 1.0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let index = client
        .repository_index(RepositoryIndexRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (index.models[0].state.as_str(), index.models[0].reason.as_str()),
        ("UNAVAILABLE", "unloaded")
    );
    let only_ready = RepositoryIndexRequest {
        ready: true,
        ..Default::default()
    };
    assert!(
        client
            .repository_index(only_ready)
            .await
            .unwrap()
            .into_inner()
            .models
            .is_empty()
    );

    client.repository_model_load(load()).await.unwrap();
    client.model_infer(float("identity", 1.0)).await.unwrap();
    let other = RepositoryModelLoadRequest {
        model_name: "other".to_owned(),
        ..Default::default()
    };
    assert_eq!(
        client.repository_model_load(other).await.unwrap_err().code(),
        Code::NotFound
    );
    let elsewhere = RepositoryModelLoadRequest {
        repository_name: "elsewhere".to_owned(),
        ..load()
    };
    assert_eq!(
        client.repository_model_load(elsewhere).await.unwrap_err().code(),
        Code::NotFound
    );
    let mut config = load();
    let override_ = ModelRepositoryParameter {
        parameter_choice: Some(model_repository_parameter::ParameterChoice::StringParam(
            "{}".to_owned(),
        )),
    };
    config.parameters.insert("config".to_owned(), override_);
    assert_eq!(
        client.repository_model_load(config).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn health_is_told_as_grpc_has_it() {
    let mut server = Running::of(vec![("identity", identity(ElementType::F32))]).await;
    let mut health = HealthClient::new(server.channel().await);
    let of = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    for service in ["", "inference.GRPCInferenceService"] {
        assert_eq!(health.check(of(service)).await.unwrap().into_inner().status, 1);
    }
    assert_eq!(health.check(of("other")).await.unwrap_err().code(), Code::NotFound);
    let mut states = health.watch(of("")).await.unwrap().into_inner();
    let mut of_other = health.watch(of("other")).await.unwrap().into_inner();
    assert_eq!(states.message().await.unwrap().unwrap().status, 1);
    assert_eq!(of_other.message().await.unwrap().unwrap().status, 3);
    let late = || Ok(identity(ElementType::F32));
    server.repository.add("late", 1, late, Settings::default()).unwrap();
    assert_eq!(states.message().await.unwrap().unwrap().status, 2);
    server.repository.load("late").unwrap();
    assert_eq!(states.message().await.unwrap().unwrap().status, 1);
    server.stop();
    assert_eq!(states.message().await.unwrap().unwrap().status, 2);
    assert!(states.message().await.unwrap().is_none());
    assert!(of_other.message().await.unwrap().is_none());
    assert_eq!(server.ended().await, 0);
}

#[tokio::test]
async fn a_stream_ends_with_the_server_when_all_that_came_is_answered() {
    let mut server = Running::of(vec![("identity", identity(ElementType::F32))]).await;
    let mut client = server.grpc().await;
    let (send, requests) = tokio::sync::mpsc::unbounded_channel();
    let requests = stream::unfold(requests, |mut requests| async move {
        Some((requests.recv().await?, requests))
    });
    send.send(float("identity", 1.0)).unwrap();
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    server.stop();
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(server.ended().await, 0);
}

#[tokio::test]
async fn calls_that_there_are_not_are_unimplemented() {
    let server = Running::of(vec![("identity", identity(ElementType::F32))]).await;
    for path in ["/inference.GRPCInferenceService/TraceSetting", "/other.Service/Call"] {
        let mut client = tonic::client::Grpc::new(server.channel().await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<ServerLiveRequest, ServerLiveResponse>::default();
        let path = path.parse().unwrap();
        let status = client
            .unary(Request::new(ServerLiveRequest {}), path, codec)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    }
}

#[tokio::test]
async fn the_server_and_its_models_tell_what_they_are() {
    let server = Running::of(vec![("identity", identity(ElementType::F32)), ("sum", accumulator())]).await;
    let mut client = server.grpc().await;
    assert!(
        client
            .server_live(ServerLiveRequest {})
            .await
            .unwrap()
            .into_inner()
            .live
    );
    assert!(
        client
            .server_ready(ServerReadyRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let about = client
        .server_metadata(ServerMetadataRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(about.name, "polygrad");
    assert!(about.extensions.contains(&"sequence".to_owned()));

    let name = || "identity".to_owned();
    let request = ModelMetadataRequest {
        name: name(),
        ..Default::default()
    };
    let about = client.model_metadata(request).await.unwrap().into_inner();
    assert_eq!(
        (about.versions, about.platform.as_str()),
        (vec!["1".to_owned()], "polygrad")
    );
    assert_eq!(
        (about.inputs[0].datatype.as_str(), &about.inputs[0].shape[..]),
        ("FP32", &[-1, -1][..])
    );

    let request = ModelConfigRequest {
        name: name(),
        ..Default::default()
    };
    let config = client.model_config(request).await.unwrap().into_inner().config.unwrap();
    assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (32, &[-1][..]));
    assert_eq!(config.input[0].data_type(), DataType::TypeFp32);
    let Some(model_config::SchedulingChoice::DynamicBatching(batching)) = config.scheduling_choice else {
        panic!("{config:?}");
    };
    assert_eq!((batching.priority_levels, batching.default_priority_level), (3, 2));
    let request = ModelConfigRequest {
        name: "sum".to_owned(),
        ..Default::default()
    };
    let config = client.model_config(request).await.unwrap().into_inner().config.unwrap();
    // Its rows are along another axis than the first.
    assert_eq!(config.max_batch_size, 0);
    let Some(model_config::SchedulingChoice::SequenceBatching(batching)) = config.scheduling_choice else {
        panic!("{config:?}");
    };
    assert_eq!(batching.state[0].input_name, "total");
    assert_eq!(batching.state[0].output_name, "next_total");

    client.model_infer(float("identity", 1.0)).await.unwrap();
    let request = ModelStatisticsRequest {
        name: name(),
        ..Default::default()
    };
    let found = client
        .model_statistics(request)
        .await
        .unwrap()
        .into_inner()
        .model_stats
        .remove(0);
    assert_eq!((found.inference_count, found.execution_count), (1, 1));
    assert_eq!(found.inference_stats.unwrap().success.unwrap().count, 1);
    assert_eq!(found.batch_stats[0].batch_size, 1);
    let all = client
        .model_statistics(ModelStatisticsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(all.model_stats.len(), 2);

    let request = ModelReadyRequest {
        name: "other".to_owned(),
        ..Default::default()
    };
    assert!(
        !client.model_ready(request).await.unwrap().into_inner().ready,
        "as by HTTP"
    );
}
