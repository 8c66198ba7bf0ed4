//! What a Python process says of the environments that it has made.

use polygrad_core::DType;
use polygrad_nn::models::ActivationFn;
use serde::Deserialize;

use crate::zoo::{Algorithm, Preset, presets_like};
use crate::{
    ActionSpace, CnnEncoderConfig, DqnConfig, EncoderConfig, MlpEncoderConfig, PolicyConfig, PpoConfig, SacConfig,
    Space, Td3Config,
};

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) gymnasium: String,
    pub(super) numpy: String,
    pub(super) python: String,
    observation: SpaceOf,
    action: SpaceOf,
    /// What the numbers of a flattened observation are called; none where it was not flattened.
    pub(super) names: Vec<String>,
    pub(super) max_episode_steps: Option<usize>,
    pub(super) reward_threshold: Option<f64>,
    pub(super) fps: Option<f64>,
    /// Where it plays.
    pub(super) picture: Option<Picture>,
}

/// Height and width, or why there is none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Picture {
    Size([usize; 2]),
    None(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SpaceOf {
    Discrete {
        n: usize,
        start: i64,
    },
    MultiDiscrete {
        nvec: Vec<usize>,
        start: Vec<i64>,
    },
    MultiBinary {
        n: usize,
    },
    /// Bounds that are not there are infinite.
    Box {
        low: Vec<Option<f32>>,
        high: Vec<Option<f32>>,
        shape: Vec<usize>,
        dtype: String,
    },
}

impl From<&SpaceOf> for Space {
    fn from(space: &SpaceOf) -> Self {
        let bounds = |bounds: &[Option<f32>], none: f32| bounds.iter().map(|x| x.unwrap_or(none)).collect();
        match space {
            SpaceOf::Discrete { n, start } => Self::Discrete { n: *n, start: *start },
            SpaceOf::MultiDiscrete { nvec, start } => Self::MultiDiscrete {
                nvec: nvec.clone(),
                start: start.clone(),
            },
            SpaceOf::MultiBinary { n } => Self::MultiBinary { n: *n },
            SpaceOf::Box {
                low,
                high,
                shape,
                dtype,
            } => Self::Box {
                low: bounds(low, f32::NEG_INFINITY),
                high: bounds(high, f32::INFINITY),
                shape: shape.clone(),
                dtype: match dtype.as_str() {
                    "uint8" => DType::U8,
                    "float64" => DType::F64,
                    name if name.starts_with("int") || name.starts_with("uint") => DType::I64,
                    _ => DType::F32,
                },
            },
        }
    }
}

impl Hello {
    pub(super) fn observation(&self) -> Space {
        Space::from(&self.observation)
    }

    pub(super) fn action(&self) -> Space {
        Space::from(&self.action)
    }
}

/// The least height and width that the convolutions of [`CnnEncoderConfig::new`] take.
const LEAST_IMAGE: usize = 36;

/// Settings to train with: those of our environment of the same name, else CleanRL's for whatever algorithm fits.
pub(super) fn presets(name: &str, observation: &Space, action: &Space) -> Vec<Preset> {
    if let Some(presets) = presets_like(name) {
        return presets;
    }
    let encoder = |hidden: &[usize], activation| match observation {
        Space::Box { shape, .. } if shape.len() == 3 && shape[1].min(shape[2]) >= LEAST_IMAGE => {
            EncoderConfig::Cnn(CnnEncoderConfig::new([shape[0], shape[1], shape[2]]))
        }
        _ => EncoderConfig::Mlp(MlpEncoderConfig {
            hidden: hidden.to_vec(),
            activation,
            ..MlpEncoderConfig::new(observation.flat_len())
        }),
    };
    let preset = |num_envs, encoder, algorithm| Preset {
        name: "cleanrl",
        num_envs,
        policy: PolicyConfig::new(encoder, ActionSpace::from(action)),
        algorithm,
    };
    let vector = || encoder(&[64, 64], ActivationFn::Tanh);
    let wide = |hidden: &[usize]| encoder(hidden, ActivationFn::Relu);
    let image = matches!(vector(), EncoderConfig::Cnn(_));
    match action {
        Space::Box { .. } => {
            let clip = matches!(observation, Space::Box { .. })
                .then_some(10.0)
                .filter(|_| !image);
            let ppo = PpoConfig {
                total_steps: 1_000_000,
                num_steps: 2048,
                num_minibatches: 32,
                update_epochs: 10,
                learning_rate: crate::Annealed::Linear(3e-4, 0.0),
                entropy_coefficient: 0.0.into(),
                normalize_observations: clip,
                normalize_rewards: Some(10.0),
                ..PpoConfig::cleanrl()
            };
            let mut all = vec![preset(1, vector(), Algorithm::Ppo(ppo))];
            if !image {
                all.push(preset(1, wide(&[256, 256]), Algorithm::Sac(SacConfig::default())));
                all.push(preset(1, wide(&[256, 256]), Algorithm::Td3(Td3Config::default())));
            }
            all
        }
        Space::Discrete { .. } => vec![
            preset(4, vector(), Algorithm::Ppo(PpoConfig::cleanrl())),
            preset(1, wide(&[120, 84]), Algorithm::Dqn(DqnConfig::default())),
        ],
        _ => vec![preset(4, vector(), Algorithm::Ppo(PpoConfig::cleanrl()))],
    }
}
