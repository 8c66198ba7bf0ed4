//! Streams: examples one after another.

use polygrad_core::Result;

/// Examples that come one after another, without a known number: files larger than memory, a generator, a simulation. A
/// resumed run reads the stream from its start again, so the same epoch must give the same examples.
///
/// ```
/// use polygrad_data::Stream;
/// # use polygrad_core::Result;
///
/// struct Waves;
///
/// impl Stream for Waves {
///     type Item = [f32; 8];
///
///     fn examples(&self, epoch: u64) -> Result<Box<dyn Iterator<Item = Result<[f32; 8]>> + Send>> {
///         Ok(Box::new((0..100).map(move |i| {
///             let phase = (100 * epoch + i) as f32;
///             Ok(std::array::from_fn(|t| (phase + t as f32).sin()))
///         })))
///     }
/// }
/// # assert_eq!(Waves.examples(0).unwrap().count(), 100);
/// ```
pub trait Stream: Send + Sync {
    /// The type of an example.
    type Item: Send + 'static;

    /// All examples of an epoch. If examples can be skipped without reading them, implement this in [`Iterator::nth`].
    ///
    /// # Errors
    /// When the stream cannot be opened. Implementations that read files should name the file.
    fn examples(&self, epoch: u64) -> Result<Box<dyn Iterator<Item = Result<Self::Item>> + Send>>;
}
