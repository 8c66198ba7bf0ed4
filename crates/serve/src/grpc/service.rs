//! The calls of `inference.GRPCInferenceService`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::proto::grpc_inference_service_server::GrpcInferenceService;
use super::proto::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse,
    ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerLiveRequest,
    ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
    repository_index_response::ModelIndex,
};
use super::{about, codec};
use crate::front::{Named, Weight};
use crate::repository::ModelInfo;
use crate::server::Shared;
use crate::{Failure, Reason, Repository, VersionState, protocol};

pub(super) struct Models(pub(super) Arc<Shared>);

/// The most requests of one stream that are answered at once.
const STREAM_WIDTH: usize = 64;

/// Answers with fewer bytes get no `Weight`, so they are not measured before they are written.
const LIGHT: usize = 4096;

/// The size of an answer's values in bytes.
fn weight(answer: &ModelInferResponse) -> usize {
    answer.raw_output_contents.iter().map(|bytes| bytes.len()).sum()
}

impl Models {
    fn model(&self, name: &str, version: &str) -> Result<ModelInfo, Failure> {
        self.0.repository.get(name, codec::version(version)?)
    }

    /// Loads or unloads a model, which may take long.
    async fn control(
        &self,
        repository: &str,
        has_parameters: bool,
        work: impl FnOnce(&Repository) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        protocol::control(self.0.options.control)?;
        if !repository.is_empty() {
            return Err(Failure::new(
                Reason::NotFound,
                format!("there is no repository {repository:?}"),
            ));
        }
        if has_parameters {
            return Err(Failure::invalid(
                "parameters are not taken: models are loaded from where the server was told to find them",
            ));
        }
        let models = self.0.repository.clone();
        let work = tokio::task::spawn_blocking(move || work(&models));
        work.await.unwrap_or_else(|_| {
            Err(Failure::new(
                Reason::Internal,
                "the model could not be loaded: it panicked",
            ))
        })
    }
}

/// Answers one request, whose call ends at `until`.
async fn infer(
    shared: &Shared,
    request: ModelInferRequest,
    until: Option<Instant>,
) -> Result<ModelInferResponse, Failure> {
    let model = shared
        .repository
        .get(&request.model_name, codec::version(&request.model_version)?)?;
    let (request, wanted) = codec::read(request, model.signature(), until)?;
    let response = model.infer(request).await?;
    codec::write(wanted, response, model.signature())
}

/// The same for a request in a stream, where a failure only concerns that request.
async fn infer_in_stream(shared: Arc<Shared>, request: ModelInferRequest) -> ModelStreamInferResponse {
    let about = ModelInferResponse {
        model_name: request.model_name.clone(),
        model_version: request.model_version.clone(),
        id: request.id.clone(),
        ..ModelInferResponse::default()
    };
    match infer(&shared, request, None).await {
        Ok(response) => ModelStreamInferResponse {
            error_message: String::new(),
            infer_response: Some(response),
        },
        Err(failure) => ModelStreamInferResponse {
            error_message: failure.message,
            infer_response: Some(about),
        },
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Models {
    type ModelStreamInferStream = Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Result<Response<ServerReadyResponse>, Status> {
        let ready = self.0.is_ready();
        Ok(Response::new(ServerReadyResponse { ready }))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = match self.model(&name, &version) {
            Ok(_) => true,
            Err(failure) if matches!(failure.reason, Reason::Unavailable | Reason::NotFound) => false,
            Err(failure) => return Err(failure.into()),
        };
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(ServerMetadataResponse {
            name: self.0.options.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: crate::server::EXTENSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version)?;
        Ok(Response::new(about::metadata(name, &model)))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Result<Response<ModelInferResponse>, Status> {
        let until = codec::deadline(request.metadata())?;
        let request = request.into_inner();
        let named = Named::new(&request.model_name);
        let answer = infer(&self.0, request, until).await?;
        let bytes = weight(&answer);
        let mut response = Response::new(answer);
        if bytes > LIGHT {
            response.extensions_mut().insert(Weight(bytes));
        }
        if let Some(named) = named {
            response.extensions_mut().insert(named);
        }
        Ok(response)
    }

    /// Sends one answer for each request, in their order.
    async fn model_stream_infer(
        &self,
        request: Request<tonic::Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let shared = Arc::clone(&self.0);
        let end = Arc::clone(&self.0);
        let requests = request.into_inner().take_until(async move { end.drained().await });
        // A message that cannot be decoded ends the stream; otherwise tonic would report it for ever.
        let requests = requests.scan(false, |failed, request| {
            let was = std::mem::replace(failed, request.is_err());
            std::future::ready((!was).then_some(request))
        });
        let answers = requests.map(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok(infer_in_stream(shared, request?).await) }
        });
        let end = Arc::clone(&self.0);
        let ended = stream::once(async move {
            let ended = || {
                Err(Status::unavailable(
                    "the server ends: send what is not answered to another",
                ))
            };
            end.is_draining().then(ended)
        });
        let answers = answers
            .buffered(STREAM_WIDTH)
            .chain(ended.filter_map(std::future::ready));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version)?;
        let config = Some(about::config(name, &model));
        Ok(Response::new(ModelConfigResponse { config }))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let name = (!name.is_empty()).then_some(name);
        let found = self
            .0
            .repository
            .statistics(name.as_deref(), codec::version(&version)?)?;
        let model_stats = found.into_iter().map(about::statistics).collect();
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let request = request.into_inner();
        if !request.repository_name.is_empty() {
            return Err(Status::not_found(format!(
                "there is no repository {:?}",
                request.repository_name
            )));
        }
        let all = self.0.repository.index().into_iter();
        let wanted = all.filter(|(.., state)| !request.ready || *state == VersionState::Ready);
        let models = wanted.map(|(name, version, state)| {
            let (state, reason) = protocol::state(&state);
            ModelIndex {
                name,
                version: version.to_string(),
                state: state.to_owned(),
                reason: reason.to_owned(),
            }
        });
        Ok(Response::new(RepositoryIndexResponse {
            models: models.collect(),
        }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let request = request.into_inner();
        let work = move |models: &Repository| models.load(&request.model_name);
        self.control(&request.repository_name, !request.parameters.is_empty(), work)
            .await?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        let mut request = request.into_inner();
        // No model depends on another.
        request.parameters.remove("unload_dependents");
        let work = move |models: &Repository| models.unload(&request.model_name);
        self.control(&request.repository_name, !request.parameters.is_empty(), work)
            .await?;
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }
}
