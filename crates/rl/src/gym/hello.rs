//! What a Python process reports about the environments that it has made.

use polygrad_core::Result;
use polygrad_nn::models::ActivationFn;
use serde::Deserialize;
use serde_json::Value;

use crate::zoo::{Algorithm, Preset, presets_like};
use crate::{
    ActionSpace, CnnEncoderConfig, DqnConfig, EncoderConfig, MlpEncoderConfig, PolicyConfig, PpoConfig, PqnConfig,
    SacConfig, Space, Td3Config,
};

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Hello {
    /// Per environment; the episodes of its agents end together.
    pub(super) agents: usize,
    pub(super) gymnasium: String,
    pub(super) numpy: String,
    pub(super) python: String,
    /// Spaces as [`Space::to_json`] writes them.
    observation: Value,
    action: Value,
    /// Names of the numbers of a flattened observation; empty if it was not flattened.
    pub(super) names: Vec<String>,
    pub(super) max_episode_steps: Option<usize>,
    pub(super) reward_threshold: Option<f64>,
    pub(super) fps: Option<f64>,
    /// `None` unless the process plays.
    pub(super) picture: Option<Picture>,
}

/// Height and width, or the reason why there is no picture.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Picture {
    Size([usize; 2]),
    None(String),
}

impl Hello {
    /// An image that is too small for convolutions is a vector.
    ///
    /// # Errors
    /// If the space is invalid.
    pub(super) fn observation(&self) -> Result<Space> {
        let mut space = Space::from_json(&self.observation)?;
        if let Space::Box { low, shape, .. } = &mut space
            && image(shape).is_none()
        {
            *shape = vec![low.len()];
        }
        Ok(space)
    }

    /// # Errors
    /// If the space is invalid.
    pub(super) fn action(&self) -> Result<Space> {
        Space::from_json(&self.action)
    }
}

/// Channels, height and width, if convolutions can take them.
fn image(shape: &[usize]) -> Option<[usize; 3]> {
    let shape = <[usize; 3]>::try_from(shape).ok()?;
    (shape[1].min(shape[2]) >= CnnEncoderConfig::LEAST_IMAGE).then_some(shape)
}

/// Training settings: those of our environment of the same name, otherwise CleanRL's for every algorithm that fits.
pub(super) fn presets(name: &str, observation: &Space, action: &Space) -> Vec<Preset> {
    if let Some(presets) = presets_like(name) {
        return presets;
    }
    let images = match observation {
        Space::Box { shape, .. } => image(shape),
        _ => None,
    };
    let encoder = |hidden: &[usize], activation| match images {
        Some(shape) => EncoderConfig::Cnn(CnnEncoderConfig::new(shape)),
        None => EncoderConfig::Mlp(MlpEncoderConfig {
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
        self_play: None,
    };
    let vector = || encoder(&[64, 64], ActivationFn::Tanh);
    let wide = |hidden: &[usize]| encoder(hidden, ActivationFn::Relu);
    let normalized = |encoder| match encoder {
        EncoderConfig::Mlp(config) => EncoderConfig::Mlp(MlpEncoderConfig {
            layer_norm: true,
            ..config
        }),
        images @ EncoderConfig::Cnn(_) => images,
    };
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
            preset(4, normalized(wide(&[120, 84])), Algorithm::Pqn(PqnConfig::default())),
        ],
        _ => vec![preset(4, vector(), Algorithm::Ppo(PpoConfig::cleanrl()))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::spaces::observation_shape;

    #[test]
    fn policies_see_what_is_observed() {
        for (shape, seen) in [
            (vec![3, 8, 8], vec![192]),
            (vec![1, 35, 84], vec![35 * 84]),
            (vec![3, 36, 36], vec![3, 36, 36]),
            (vec![5], vec![5]),
        ] {
            let given = serde_json::json!({
                "agents": 1, "gymnasium": "", "numpy": "", "python": "", "names": [],
                "observation": Space::boxed_in(0.0, 255.0, &shape).to_json(),
                "action": Space::discrete(2).to_json(),
            });
            let hello = Hello::deserialize(given).unwrap();
            let (observation, action) = (hello.observation().unwrap(), hello.action().unwrap());
            assert_eq!(observation_shape(&observation), seen);
            for preset in presets("x", &observation, &action) {
                let own = match preset.policy.encoder {
                    EncoderConfig::Mlp(config) => vec![config.observation_size],
                    EncoderConfig::Cnn(config) => config.observation_shape.to_vec(),
                };
                assert_eq!(own, seen);
            }
        }
    }
}
