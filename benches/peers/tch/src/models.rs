//! The models except ResNet.

use polygrad_peer::data::INPUT;
use polygrad_peer::{Result, Step};
use tch::Tensor;

use crate::training::{Layer, Params, input, tokens, training};

fn layers(sizes: &[usize], params: &mut Params) -> Vec<Layer> {
    sizes.windows(2).map(|pair| params.linear(pair[0], pair[1])).collect()
}

fn forward(layers: &[Layer], x: &Tensor, activation: fn(&Tensor) -> Tensor) -> Tensor {
    let mut x = layers[0].linear(x);
    for layer in &layers[1..] {
        x = layer.linear(&activation(&x));
    }
    x
}

pub fn act() -> Step {
    let layers = layers(&[4, 64, 64, 2], &mut Params::new());
    let x = input(&[1, 4]);
    Box::new(move || {
        let _ = tch::no_grad(|| std::hint::black_box(forward(&layers, &x, Tensor::tanh)));
        Ok(None)
    })
}

pub fn mlp(sizes: &[usize], batch: usize, optimizer: &str) -> Result<Step> {
    let mut params = Params::new();
    let layers = layers(sizes, &mut params);
    let targets = (batch, sizes[sizes.len() - 1]);
    training(params, optimizer, input(&[batch, sizes[0]]), targets, move |x| {
        forward(&layers, x, Tensor::relu)
    })
}

pub fn cnn() -> Result<Step> {
    let mut params = Params::new();
    let conv = |inputs: usize, outputs: usize, params: &mut Params| {
        Layer(
            params.take(&[outputs, inputs, 3, 3], false),
            params.take(&[outputs], false),
        )
    };
    let (conv1, conv2) = (conv(1, 32, &mut params), conv(32, 64, &mut params));
    let layers = layers(&[3136, 128, 10], &mut params);
    let stage = |layer: &Layer, x: &Tensor| {
        let x = x.conv2d(&layer.0, Some(&layer.1), [1, 1], [1, 1], [1, 1], 1).relu();
        x.max_pool2d([2, 2], [2, 2], [0, 0], [1, 1], false)
    };
    training(params, "adam", input(&[64, 1, 28, 28]), (64, 10), move |x| {
        let x = stage(&conv2, &stage(&conv1, x)).flatten(1, -1);
        forward(&layers, &x, Tensor::relu)
    })
}

struct Block {
    ln1: Layer,
    qkv: Layer,
    proj: Layer,
    ln2: Layer,
    fc1: Layer,
    fc2: Layer,
}

fn norm(layer: &Layer, x: &Tensor) -> Tensor {
    x.layer_norm([128], Some(&layer.0), Some(&layer.1), 1e-5, false)
}

impl Block {
    fn new(params: &mut Params) -> Self {
        Self {
            ln1: params.norm(128),
            qkv: params.linear(128, 384),
            proj: params.linear(128, 128),
            ln2: params.norm(128),
            fc1: params.linear(128, 512),
            fc2: params.linear(512, 128),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let qkv = self.qkv.linear(&norm(&self.ln1, x)).chunk(3, -1);
        let heads = |x: &Tensor| x.reshape([16, 64, 4, 32]).transpose(1, 2);
        let (q, k, v) = (heads(&qkv[0]), heads(&qkv[1]), heads(&qkv[2]));
        let mixed = Tensor::scaled_dot_product_attention::<Tensor>(&q, &k, &v, None, 0.0, true, None, false);
        let x = x + self.proj.linear(&mixed.transpose(1, 2).reshape([16, 64, 128]));
        let wide = self.fc1.linear(&norm(&self.ln2, &x)).gelu("none");
        x + self.fc2.linear(&wide)
    }
}

pub fn gpt() -> Result<Step> {
    let mut params = Params::new();
    let embedding = params.take(&[1024, 128], false);
    let positions = params.take(&[64, 128], false);
    let blocks: Vec<Block> = (0..4).map(|_| Block::new(&mut params)).collect();
    let (ln, head) = (params.norm(128), params.linear(128, 1024));
    let texts = tokens(16 * 64, 1024, INPUT).reshape([16, 64]);
    training(params, "adamw", texts, (1024, 1024), move |x| {
        let mut x = Tensor::embedding(&embedding, x, -1, false, false) + &positions;
        for block in &blocks {
            x = block.forward(&x);
        }
        head.linear(&norm(&ln, &x)).reshape([1024, 1024])
    })
}

pub fn lstm() -> Result<Step> {
    let mut params = Params::new();
    let weights = [
        params.take(&[512, 64], false),
        params.take(&[512, 128], false),
        params.take(&[512], false),
        params.take(&[512], false),
    ];
    let head = params.linear(128, 10);
    let zeros = || Tensor::zeros([1, 32, 128], (tch::Kind::Float, tch::Device::Cpu));
    let state = [zeros(), zeros()];
    training(params, "adam", input(&[64, 32, 64]), (32, 10), move |x| {
        let (outputs, _, _) = x.lstm(&state, &weights, true, 1, 0.0, true, false, false);
        head.linear(&outputs.select(0, -1))
    })
}
