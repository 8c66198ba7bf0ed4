//! The processes that train together.

use std::sync::Arc;

use polygrad::communicator::{self, Communicator};
use polygrad::data::DataLoader;
use polygrad::nn::Param;
use polygrad::optim::Optimizer;
use polygrad::train::{RunConfig, ShardedOptimizer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::progress;

/// The variable in which `torchrun` counts its restarts.
const RESTARTS: &str = "TORCHELASTIC_RESTART_COUNT";

/// This process and the others it trains with, if any; by default it is alone.
#[derive(Default)]
pub struct Team {
    group: Option<Arc<dyn Communicator>>,
    shards: bool,
}

impl Team {
    /// This process and those in its `group`, if there are others.
    pub fn of(group: Option<Arc<dyn Communicator>>) -> Self {
        Self { group, shards: false }
    }

    /// Joins the processes that a launcher has started, if an engine is given. From then on only rank 0 prints output.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn join(engine: Option<&str>) -> Result<Self> {
        let group = engine.map(communicator::open).transpose()?;
        if let Some(group) = &group {
            progress::speak_as(group.rank());
        }
        Ok(Self { group, shards: false })
    }

    /// The same team, with or without sharding the optimizer's moments over all processes.
    #[must_use]
    pub fn sharding(self, shards: bool) -> Self {
        Self { shards, ..self }
    }

    /// The group of all processes, if there are others.
    pub fn group(&self) -> Option<&Arc<dyn Communicator>> {
        self.group.as_ref()
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        self.group().map_or(0, |group| group.rank())
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.group().map_or(1, |group| group.size())
    }

    /// The numbers of all processes.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn gather(&self, own: &[f64]) -> Result<Vec<Vec<f64>>> {
        match &self.group {
            Some(group) => Ok(group.all_gather_vec(own)?),
            None => Ok(vec![own.to_vec()]),
        }
    }

    /// Whether the launcher has restarted the processes after one was lost.
    pub fn is_restarted(&self) -> bool {
        let restarts = std::env::var(RESTARTS).ok().and_then(|count| count.parse::<u64>().ok());
        self.group.is_some() && restarts.is_some_and(|count| count > 0)
    }

    /// Runs `f` on the first process, and returns its result on all. If it fails, all fail.
    ///
    /// # Errors
    /// Errors of `f` and of the engine.
    pub fn share<T: Serialize + DeserializeOwned>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(group) = &self.group else { return f() };
        if group.rank() == 0 {
            let found = f();
            let told: std::result::Result<&T, String> = found.as_ref().map_err(ToString::to_string);
            let text = serde_json::to_vec(&told).map_err(|e| Failure::new(e.to_string()))?;
            group.broadcast_vec(text, 0)?;
            return found;
        }
        let text = group.broadcast_vec(Vec::new(), 0)?;
        let told: std::result::Result<T, String> =
            serde_json::from_slice(&text).map_err(|e| Failure::new(e.to_string()))?;
        told.map_err(|why| Failure::new(format!("rank 0 has failed: {why}")))
    }

    /// Limits the data to this process's shard, so that all processes have the same number of batches.
    ///
    /// # Errors
    /// More ranks than there can be examples.
    pub fn share_out<T: Send + 'static>(&self, data: &DataLoader<T>) -> Result<()> {
        match &self.group {
            Some(group) => Ok(data.set_shard(group.rank(), group.size(), true)?),
            None => Ok(()),
        }
    }

    /// Adds this team to the options of a trainer.
    pub fn options<O>(&self, options: RunConfig<O>) -> RunConfig<O> {
        match &self.group {
            Some(group) => options.parallel(Arc::clone(group)),
            None => options,
        }
    }

    /// An optimizer of these parameters, or of this process's shards of them.
    ///
    /// # Errors
    /// Errors of `build`.
    pub fn optimizer<O: Optimizer + 'static>(
        &self,
        params: Vec<Param>,
        build: impl Fn(Vec<Param>) -> polygrad::Result<O> + 'static,
    ) -> polygrad::Result<Box<dyn Optimizer>> {
        Ok(match &self.group {
            Some(group) if self.shards => Box::new(ShardedOptimizer::new(Arc::clone(group), params, build)?),
            _ => Box::new(build(params)?),
        })
    }

    /// A description of the team beside the device, and of what each process has of its own.
    pub fn about(&self, own: &str) -> Option<String> {
        let group = self.group.as_ref()?;
        let spread = if self.shards {
            ", the optimizer's moments spread over them"
        } else {
            ""
        };
        Some(format!(
            "{} processes by {}, each with {own} of its own{spread}",
            group.size(),
            group.name()
        ))
    }
}
