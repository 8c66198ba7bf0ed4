//! The subset of Fashion-MNIST that comes with the repository.

use std::io::Read;

use polygrad::prelude::*;

/// Images `[N, 1, 28, 28]` in 0..1 and labels `[N]` of a split, `train` or `t10k`.
pub(crate) fn load<B: Backend>(split: &str, device: &Device<B>) -> Result<(Tensor<B>, Tensor<B>)> {
    let read = |name: &str| -> Result<Vec<u8>> {
        // Cargo sets the crate's path; an example started directly must be started in the repository's root.
        let top = std::env::var("CARGO_MANIFEST_DIR").map_or(".".to_owned(), |here| format!("{here}/../.."));
        let path = format!("{top}/data/fashion-mnist/{split}-{name}-ubyte.gz");
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).map_err(|e| Error::io("open", path.as_ref(), e))?;
        flate2::read::GzDecoder::new(file)
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io("read", path.as_ref(), e))?;
        Ok(bytes)
    };
    // IDX files begin with a header of 16 bytes for images and 8 for labels.
    let pixels: Vec<f32> = read("images-idx3")?[16..]
        .iter()
        .map(|&pixel| f32::from(pixel) / 255.0)
        .collect();
    let labels: Vec<i64> = read("labels-idx1")?[8..]
        .iter()
        .map(|&label| i64::from(label))
        .collect();
    let count = labels.len();
    Ok((
        Tensor::from_vec(pixels, [count, 1, 28, 28], device)?,
        Tensor::from_vec(labels, [count], device)?,
    ))
}
