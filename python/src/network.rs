//! The sources of models, and trainable networks.

use std::sync::Arc;

use polygrad::nn::models::{LeNet, LeNetConfig, Mlp, MlpConfig, ResNet, ResNetConfig, VisionTransformer, VitConfig};
use polygrad::nn::{Forward, Module, StateDict, Visit, Visitor, skip_init};
use polygrad::onnx::graph::{Dim, Graph, TensorType};
use polygrad::onnx::{Export, ExportOnnx, Input, OnnxModel, OnnxModule, learnable};
use polygrad::{AnyBackend, DType, Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

/// A network that exists in Rust, by its sizes.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum NetworkConfig {
    Mlp(MlpConfig),
    LeNet(LeNetConfig),
    ResNet {
        config: ResNetConfig,
        /// Height and width of the images.
        image_size: [usize; 2],
    },
    Vit(VitConfig),
}

impl NetworkConfig {
    /// With new weights from this thread's generator.
    fn build(&self, device: &Device) -> Result<Box<dyn Forward>> {
        Ok(match self {
            Self::Mlp(config) => Box::new(Mlp::new(config, device)?),
            Self::LeNet(config) => Box::new(LeNet::new(config, device)?),
            Self::ResNet { config, .. } => Box::new(ResNet::new(config, device)?),
            Self::Vit(config) => Box::new(VisionTransformer::new(config, device)?),
        })
    }

    /// The extents of an input after the first.
    fn input(&self) -> Vec<usize> {
        match self {
            Self::Mlp(config) => config.sizes.iter().take(1).copied().collect(),
            Self::LeNet(config) => vec![config.in_channels, config.image_size[0], config.image_size[1]],
            Self::ResNet { config, image_size } => vec![config.in_channels, image_size[0], image_size[1]],
            Self::Vit(config) => vec![config.in_channels, config.image_size, config.image_size],
        }
    }

    fn record(&self, network: &dyn Forward) -> Result<Graph> {
        let batch = Dim::Named("batch".to_owned());
        let dims = [batch].into_iter().chain(self.input().into_iter().map(Dim::Fixed));
        let input = Input::new("input", DType::F32, dims.collect::<Vec<_>>());
        let export = Export::new([input]).outputs(["output"]);
        network.record_onnx(&export, |x| network.forward(&x[0]))
    }
}

/// The source of a model's graph.
#[derive(Clone)]
pub(crate) enum Origin {
    /// Recorded from a network with these parameters and buffers.
    Network(NetworkConfig, StateDict),
    /// Only the graph exists.
    Graph,
}

/// A trainable model: from inputs in order to the output that is trained.
pub(crate) enum Network {
    Built(NetworkConfig, Box<dyn Forward>),
    Graph(Box<OnnxModule>),
    /// A model for inference only.
    Running(Arc<OnnxModel>),
}

impl Network {
    /// A network with new weights.
    pub(crate) fn new(config: NetworkConfig, device: &Device) -> Result<Self> {
        let built = config.build(device)?;
        Ok(Self::Built(config, built))
    }

    /// A network with the weights of a model.
    pub(crate) fn of(origin: &Origin, graph: &Graph, device: &Device) -> Result<Self> {
        match origin {
            Origin::Network(config, weights) => {
                let network = skip_init(|| Self::new(config.clone(), device))?;
                network.load_state_dict(weights, true)?;
                Ok(network)
            }
            Origin::Graph => {
                let weights = learnable(&graph.body);
                let network = OnnxModule::new(graph, |name| weights.contains(&name), device)?;
                Ok(Self::Graph(Box::new(network)))
            }
        }
    }

    pub(crate) fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        match (self, inputs) {
            (Self::Built(_, network), [x]) => network.forward(x),
            (Self::Built(..), _) => Err(Error::invalid(format!(
                "a batch has {} inputs, and the network takes 1",
                inputs.len()
            ))),
            (Self::Graph(network), _) => network.forward(inputs)?.tensor(0),
            (Self::Running(model), _) => model.forward(inputs)?.tensor(0),
        }
    }

    /// The result as a graph that runs: `before` with the trained weights.
    pub(crate) fn finished(&self, before: &Graph) -> Result<(Origin, Graph)> {
        self.eval();
        match self {
            Self::Built(config, network) => {
                let weights = network.state_dict()?;
                Ok((Origin::Network(config.clone(), weights), config.record(&**network)?))
            }
            Self::Graph(network) => Ok((Origin::Graph, network.written(before)?)),
            Self::Running(_) => Ok((Origin::Graph, before.clone())),
        }
    }
}

impl Visit<AnyBackend> for Network {
    fn visit(&self, visitor: &mut Visitor<'_, AnyBackend>) {
        match self {
            Self::Built(_, network) => network.visit(visitor),
            Self::Graph(network) => network.visit(visitor),
            Self::Running(_) => {}
        }
    }
}

impl Module for Network {}

/// The dtypes of a model's inputs, in order.
pub(crate) fn input_dtypes(model: &OnnxModel) -> Result<Vec<DType>> {
    let dtype = |(name, ty): (&str, Option<&polygrad::onnx::graph::ValueType>)| {
        let ty: Option<&TensorType> = ty.and_then(|ty| ty.as_tensor());
        let ty = ty.ok_or_else(|| Error::invalid(format!("the file does not say the type of the input {name:?}")))?;
        ty.element.dtype()
    };
    model.inputs().map(dtype).collect()
}
