//! The workloads: weights and data, the same for both sides.

use polygrad_core::{DType, Distribution, RandomKey, Result, Shape, random_host};

/// Which optimizer takes the step.
#[derive(Clone, Copy)]
pub(crate) enum Optim {
    Sgd,
    Adam,
    AdamW,
}

pub(crate) const LR: f64 = 1e-3;

/// Sizes of the language model.
pub(crate) const WIDTH: usize = 128;
pub(crate) const HEADS: usize = 4;
pub(crate) const BLOCKS: usize = 4;
pub(crate) const CONTEXT: usize = 64;
pub(crate) const VOCABULARY: usize = 1024;

/// Which model it is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Mlp,
    Cnn,
    Gpt,
}

/// A model's weights in the order in which its forward pass takes them, and a batch.
pub(crate) struct Work {
    pub(crate) kind: Kind,
    pub(crate) params: Vec<(Vec<usize>, Vec<f32>)>,
    /// Floats of the input; empty where it is tokens.
    pub(crate) input: Vec<f32>,
    pub(crate) tokens: Vec<i64>,
    pub(crate) shape: Vec<usize>,
    pub(crate) targets: Vec<i64>,
}

struct Draw(u64);

impl Draw {
    fn floats(&mut self, shape: &[usize], scale: f64) -> Result<Vec<f32>> {
        self.0 += 1;
        let normal = Distribution::Normal { mean: 0.0, std: scale };
        let key = RandomKey {
            seed: self.0,
            offset: 0,
        };
        random_host(Shape::new(shape)?, normal, DType::F32, key)?.to_vec()
    }

    fn classes(&mut self, count: usize, classes: usize) -> Result<Vec<i64>> {
        self.0 += 1;
        let any = Distribution::Integers {
            low: 0,
            high: classes as i64,
        };
        let key = RandomKey {
            seed: self.0,
            offset: 0,
        };
        random_host(Shape::new(&[count])?, any, DType::I64, key)?.to_vec()
    }

    /// A weight with as many inputs as its extents after the first, and a bias.
    fn layer(&mut self, shape: &[usize], params: &mut Vec<(Vec<usize>, Vec<f32>)>) -> Result<()> {
        let inputs: usize = shape[1..].iter().product();
        params.push((shape.to_vec(), self.floats(shape, 1.0 / (inputs as f64).sqrt())?));
        params.push((vec![shape[0]], vec![0.0; shape[0]]));
        Ok(())
    }
}

impl Work {
    pub(crate) fn mlp(sizes: &[usize], batch: usize) -> Result<Self> {
        let mut draw = Draw(0);
        let mut params = Vec::new();
        for pair in sizes.windows(2) {
            draw.layer(&[pair[1], pair[0]], &mut params)?;
        }
        Self::images(Kind::Mlp, params, &[batch, sizes[0]], sizes[sizes.len() - 1], draw)
    }

    pub(crate) fn cnn(batch: usize) -> Result<Self> {
        let mut draw = Draw(0);
        let mut params = Vec::new();
        for shape in [&[32, 1, 3, 3][..], &[64, 32, 3, 3], &[128, 3136], &[10, 128]] {
            draw.layer(shape, &mut params)?;
        }
        Self::images(Kind::Cnn, params, &[batch, 1, 28, 28], 10, draw)
    }

    fn images(
        kind: Kind,
        params: Vec<(Vec<usize>, Vec<f32>)>,
        shape: &[usize],
        classes: usize,
        mut draw: Draw,
    ) -> Result<Self> {
        Ok(Self {
            kind,
            params,
            input: draw.floats(shape, 1.0)?,
            tokens: Vec::new(),
            targets: draw.classes(shape[0], classes)?,
            shape: shape.to_vec(),
        })
    }

    pub(crate) fn gpt(batch: usize) -> Result<Self> {
        let mut draw = Draw(0);
        let mut params = Vec::new();
        let norm = |params: &mut Vec<(Vec<usize>, Vec<f32>)>| {
            params.push((vec![WIDTH], vec![1.0; WIDTH]));
            params.push((vec![WIDTH], vec![0.0; WIDTH]));
        };
        for rows in [VOCABULARY, CONTEXT] {
            params.push((vec![rows, WIDTH], draw.floats(&[rows, WIDTH], 0.02)?));
        }
        for _ in 0..BLOCKS {
            norm(&mut params);
            draw.layer(&[3 * WIDTH, WIDTH], &mut params)?;
            draw.layer(&[WIDTH, WIDTH], &mut params)?;
            norm(&mut params);
            draw.layer(&[4 * WIDTH, WIDTH], &mut params)?;
            draw.layer(&[WIDTH, 4 * WIDTH], &mut params)?;
        }
        norm(&mut params);
        params.push((vec![VOCABULARY, WIDTH], draw.floats(&[VOCABULARY, WIDTH], 0.02)?));
        let count = batch * CONTEXT;
        Ok(Self {
            kind: Kind::Gpt,
            params,
            input: Vec::new(),
            tokens: draw.classes(count, VOCABULARY)?,
            shape: vec![batch, CONTEXT],
            targets: draw.classes(count, VOCABULARY)?,
        })
    }
}
