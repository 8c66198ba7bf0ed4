//! Checks that ranks agree.

use std::hash::{DefaultHasher, Hash, Hasher};

use polygrad_core::communicator::{HostSlice, HostSliceMut};
use polygrad_core::{Error, Result};
use polygrad_nn::Module;
use polygrad_tensor::Tensor;

use super::DataParallel;

impl DataParallel {
    /// Fails unless all ranks' models have the same parameters and buffers with the same values, and all ranks pass the
    /// same texts. Each text comes with a phrase for the error, such as `other data`. Every rank has to call this.
    ///
    /// # Errors
    /// The first difference, and the first rank that has it; those of the group and the device.
    pub fn check_ranks(&self, model: &(impl Module + ?Sized), others: &[(&str, String)]) -> Result<()> {
        let (mut kinds, mut weights) = (DefaultHasher::new(), DefaultHasher::new());
        let params = model.named_parameters().into_iter();
        let params = params.map(|(name, param)| (name, Ok(param.tensor())));
        let buffers = model.named_buffers().into_iter();
        // Plain, since a rank may have settled its model.
        for (name, tensor) in params.chain(buffers.map(|(name, buffer)| (name, buffer.plain()))) {
            let host = tensor?.detach().to_host()?;
            (name, host.shape().dims(), host.dtype().name()).hash(&mut kinds);
            host.bytes().hash(&mut weights);
        }
        let mut items = vec![
            ("a model of other parameters", kinds.finish()),
            ("a model of other weights", weights.finish()),
        ];
        for (what, text) in others {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            items.push((what, hasher.finish()));
        }
        let group = self.communicator();
        let own: Vec<i64> = items.iter().map(|(_, hash)| hash.cast_signed()).collect();
        let mut all = vec![0i64; own.len() * group.size()];
        group.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        for (at, (what, _)) in items.iter().enumerate() {
            let of = |rank: usize| all[rank * own.len() + at];
            if let Some(rank) = (1..group.size()).find(|&rank| of(rank) != of(0)) {
                return Err(Error::invalid(format!("rank {rank} has {what} than rank 0")).with_hint(
                    "give every rank the same options, data and seed: manual_seed before the model is made",
                ));
            }
        }
        Ok(())
    }

    /// Copies rank 0's buffers to all ranks, as PyTorch's `DistributedDataParallel` does. Every rank has to call this.
    ///
    /// # Errors
    /// Those of the group and the device.
    pub fn broadcast_buffers(&self, model: &(impl Module + ?Sized)) -> Result<()> {
        let group = self.communicator();
        for (_, buffer) in model.named_buffers() {
            let value = group.broadcast_tensor(buffer.plain()?.inner(), 0)?;
            buffer.set(&Tensor::from_inner(value))?;
        }
        Ok(())
    }
}
