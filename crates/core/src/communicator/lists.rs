//! Collectives on lists whose lengths the other ranks do not know.

use bytemuck::Pod;

use super::{Communicator, HostSlice, HostSliceMut};
use crate::{Element, Error, Result};

impl dyn Communicator + '_ {
    /// The lists of all ranks, that of rank 0 first. Their lengths may differ.
    ///
    /// # Errors
    /// As [`Communicator::all_gather`].
    pub fn all_gather_vec<T: Element + Pod>(&self, own: &[T]) -> Result<Vec<Vec<T>>> {
        let mut lens = vec![0i64; self.size()];
        self.all_gather(HostSlice::new(&[own.len() as i64]), HostSliceMut::new(&mut lens))?;
        let lens = lens.into_iter().map(length).collect::<Result<Vec<_>>>()?;
        let longest = lens.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); lens.len()]);
        }
        let mut own = own.to_vec();
        own.resize(longest, T::zeroed());
        let mut all = vec![T::zeroed(); longest * lens.len()];
        self.all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        let parts = all.chunks_exact(longest).zip(lens);
        Ok(parts.map(|(part, len)| part[..len].to_vec()).collect())
    }

    /// The list of rank `root`; the lists of the others are ignored.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`].
    pub fn broadcast_vec<T: Element + Pod>(&self, mut own: Vec<T>, root: usize) -> Result<Vec<T>> {
        let mut len = [own.len() as i64];
        self.broadcast(HostSliceMut::new(&mut len), root)?;
        own.resize(length(len[0])?, T::zeroed());
        self.broadcast(HostSliceMut::new(&mut own), root)?;
        Ok(own)
    }
}

fn length(sent: i64) -> Result<usize> {
    usize::try_from(sent).map_err(|_| Error::communication(format!("a rank sent {sent} as the length of a list")))
}
