//! The last episodes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::Episode;

/// The number of episodes that count.
const WINDOW: usize = 100;

/// Returns and lengths of the last episodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Recent(VecDeque<(f64, usize)>);

impl Recent {
    pub(crate) fn add(&mut self, episodes: &[Episode]) {
        let ended = episodes.iter().map(|episode| (episode.total_reward, episode.length));
        self.0.extend(ended);
        self.0.drain(..self.0.len().saturating_sub(WINDOW));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// `None` before the first episode has ended.
    pub(crate) fn mean_return(&self) -> Option<f64> {
        self.mean(|(total, _)| *total)
    }

    pub(crate) fn mean_length(&self) -> Option<f64> {
        self.mean(|(_, length)| *length as f64)
    }

    fn mean(&self, of: impl Fn(&(f64, usize)) -> f64) -> Option<f64> {
        match self.0.len() {
            0 => None,
            len => Some(self.0.iter().map(of).sum::<f64>() / len as f64),
        }
    }
}
