//! Models of single ops, several in each model.

use polygrad_core::{
    Activation, AnyBackend, Backend, BinaryOp, CompareOp, ConvParams, PoolParams, ReduceOp, SliceRange, UnaryOp,
};
use polygrad_nn::Linear;
use polygrad_tensor::{Attention, DType, InterpolateMode, Resize, Result, Tensor};

/// A model's forward pass on `x` and `y` `[batch, seq, 6]`, images `[batch, 4, 12, 12]` and integers below 4
/// `[batch, seq, 6]`.
type Family = fn(&Linear, &[Tensor]) -> Result<Vec<Tensor>>;

pub(crate) const ALL: [(&str, Family); 9] = [
    ("ops_unary", unary),
    ("ops_binary", binary),
    ("ops_activation", activation),
    ("ops_reduce", reduce),
    ("ops_movement", movement),
    ("ops_index", index),
    ("ops_window", window),
    ("ops_attention", attention),
    ("ops_sequence", sequence),
];

fn unary(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, ids) = (&x[0], &x[3]);
    let positive = (x.abs()? + 0.1)?;
    let mut all = Vec::new();
    for op in UnaryOp::ALL {
        let of = match op {
            UnaryOp::Log | UnaryOp::Log1p | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Reciprocal => &positive,
            _ => x,
        };
        all.push(of.unary(*op)?);
    }
    all.extend([
        ids.neg()?,
        ids.abs()?,
        ids.unary(UnaryOp::Floor)?,
        ids.unary(UnaryOp::IsFinite)?,
    ]);
    all.extend([
        x.to_dtype(DType::I64)?,
        ids.to_dtype(DType::F32)?,
        ids.to_dtype(DType::Bool)?,
        x.to_dtype(DType::F64)?,
    ]);
    Ok(all)
}

fn binary(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, y, ids) = (&x[0], &x[1], &x[3]);
    let mut all = Vec::new();
    for op in [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Maximum,
        BinaryOp::Minimum,
    ] {
        all.push(x.binary(op, y)?);
        all.push(x.binary_scalar(op, 0.5, true)?);
    }
    all.push((x.abs()? + 0.1)?.binary(BinaryOp::Pow, y)?);
    all.push(x.binary_scalar(BinaryOp::Remainder, 0.7, false)?);
    all.push((ids - 5i64)?.binary_scalar(BinaryOp::Remainder, 3i64, false)?);
    let (a, b) = (x.gt(0.0)?, y.gt(0.0)?);
    all.extend([
        a.logical_and(&b)?,
        a.logical_or(&b)?,
        a.logical_xor(&b)?,
        a.logical_not()?,
    ]);
    for op in CompareOp::ALL {
        all.extend([x.compare(*op, y)?, ids.compare_scalar(*op, 2i64)?, a.compare(*op, &b)?]);
    }
    all.extend([
        Tensor::where_(&a, x, y)?,
        Tensor::where_(&a, &b, &a)?,
        x.clamp(Some(-0.5), Some(0.5))?,
    ]);
    all.push(x.select(1, 0)?.unsqueeze(1)?.add(y)?);
    Ok(all)
}

fn activation(model: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let x = &x[0];
    let mut all = vec![
        model.forward(x)?,
        x.softmax(1)?,
        x.log_softmax(-1)?,
        x.select(1, 0)?.linear(&model.weight.tensor(), None)?,
    ];
    for op in [
        Activation::Relu,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Softplus {
            beta: 1.0,
            threshold: 20.0,
        },
        Activation::Softplus {
            beta: 2.0,
            threshold: 3.0,
        },
        Activation::Elu { alpha: 0.7 },
        Activation::LeakyRelu { slope: 0.1 },
    ] {
        all.push(x.activation(op)?);
    }
    let far = (x * 4.0)?;
    all.extend([
        far.mish()?,
        far.relu6()?,
        far.hardsigmoid()?,
        far.hardswish()?,
        far.hardtanh(-2.0, 3.0)?,
        far.selu()?,
        far.celu(0.5)?,
        far.logsigmoid()?,
        far.softsign()?,
        far.glu(-1)?,
        far.transpose(1, 2)?
            .prelu(&model.weight.tensor().narrow(0, 0, 1)?.flatten(0, 1)?)?,
    ]);
    all.extend([
        x.layer_norm(None, None, 1, 1e-5)?,
        x.layer_norm(None, None, 2, 1e-5)?,
        x.rms_norm(None, 1, 1e-5)?,
    ]);
    all.extend([
        x.transpose(1, 2)?.group_norm(3, None, None, 1e-5)?,
        x.transpose(1, 2)?.instance_norm(None, None, 1e-5)?,
    ]);
    Ok(all)
}

fn reduce(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, ids) = (&x[0], &x[3]);
    let mut all = Vec::new();
    for op in [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
    ] {
        all.extend([
            x.reduce(op, [1], false)?,
            x.reduce(op, [0, 2], true)?,
            x.reduce(op, [0, 1, 2], false)?,
        ]);
    }
    let mask = x.gt(1.0)?;
    all.extend([
        mask.reduce(ReduceOp::Any, [1], false)?,
        mask.reduce(ReduceOp::All, [2], true)?,
    ]);
    all.extend([
        ids.reduce(ReduceOp::Sum, [1], false)?,
        ids.reduce(ReduceOp::Max, [2], false)?,
    ]);
    all.extend([x.argmax(1)?, x.argmin_keepdim(2)?, x.cumsum(1)?, x.logsumexp([1])?]);
    let (sorted, places) = x.sort(1, true)?;
    all.extend([sorted, places, x.variance([1], 1.0)?]);
    Ok(all)
}

fn movement(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, y) = (&x[0], &x[1]);
    let (b, s) = (x.dims()[0], x.dims()[1]);
    let full = |dim: usize| SliceRange::full(dim);
    let mut all = vec![
        x.reshape([b * s, 6])?,
        x.reshape([b, s * 6])?,
        x.reshape([s, b, 2, 3])?,
        x.reshape([b * s * 6])?,
        x.reshape([1, b, s, 3, 2])?,
        x.flatten(0, 1)?.reshape([b, s, 6])?,
        x.permute([2, 0, 1])?,
        x.unsqueeze(0)?.expand([3, b, s, 6])?,
        x.select(1, -1)?,
        x.narrow(1, 1, s - 2)?,
        x.narrow(1, s - 2, 2)?,
        x.flip([1, 2])?,
        x.slice(&[full(b), SliceRange::new(0, s.div_ceil(2), 2), full(6)])?,
        x.pad(&[(0, 0), (1, 2), (0, 1)], 0.5)?,
        Tensor::cat(&[x, y, x], 1)?,
        Tensor::stack(&[x, y], 0)?,
        x.repeat(&[2, 1, 1])?,
        x.repeat(&[1, 3, 2])?,
        x.roll(&[1], &[1])?,
        x.repeat_interleave(2, 1)?,
        Tensor::arange(0i64, s as i64, 1, &x.device())?
            .unsqueeze(1)?
            .to_dtype(DType::F32)?
            .add(x)?,
        Tensor::arange(0.5, 0.5 + 0.25 * s as f64, 0.25, &x.device())?,
        Tensor::full([b, s], 2.5, (&x.device(), DType::F32))?,
        (x.sum([1])? / s as f64)?,
        (x.sum([0, 1])? * (b * s) as f64)?,
        x.matmul(&y.transpose(1, 2)?)?,
    ];
    // A token before the first, like a class token.
    let class = x.narrow(1, 0, 1)?;
    let longer = Tensor::cat(&[&class, x], 1)?;
    all.extend([
        longer.reshape([b * (s + 1), 6])?,
        longer.reshape([b, (s + 1) * 6])?.reshape([b, s + 1, 6])?,
    ]);
    Ok(all)
}

fn index(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let (x, y, ids) = (&x[0], &x[1], &x[3]);
    let rows = Tensor::from_vec(vec![5i64, 0, 2], [3], &x.device())?;
    let table = y.narrow(1, 0, 1)?.squeeze(1)?.t()?;
    Ok(vec![
        x.gather(2, ids)?,
        x.scatter(2, ids, y).map(|_| x.clone())?,
        x.scatter_add(2, ids, y)?,
        x.index_select(2, &rows)?,
        x.index_add(2, &rows, &y.narrow(2, 0, 3)?)?,
        ids.embedding(&table.narrow(1, 0, 2)?, None)?,
        ids.one_hot(4)?,
        x.masked_fill(&ids.eq(1i64)?, -1.0)?,
    ])
}

fn window(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let images = &x[2];
    let kernel = images.narrow(0, 0, 1)?.narrow(2, 0, 3)?.narrow(3, 0, 3)?;
    let conv = |stride: usize, padding: usize, dilation: usize| ConvParams {
        stride: [stride; 3],
        padding: [padding; 3],
        dilation: [dilation; 3],
        groups: 1,
    };
    let mut all = vec![
        images.conv(&kernel, None, &conv(1, 0, 1))?,
        images.conv(&kernel, None, &conv(2, 1, 2))?,
        images
            .narrow(1, 0, 1)?
            .conv_transpose(&kernel, &conv(2, 1, 1), [1, 0, 0])?,
        images.adaptive_avg_pool(&[1, 1])?,
        images.adaptive_avg_pool(&[5, 4])?,
        images.interpolate(Resize::Size(&[7, 20]), InterpolateMode::Linear, false)?,
        images.interpolate(Resize::Scale(&[2.0, 2.0]), InterpolateMode::Nearest, false)?,
    ];
    for (padding, ceil_mode) in [(0, false), (1, false), (1, true)] {
        let mut params = PoolParams::new([3; 3]);
        params.stride = [2; 3];
        params.padding = [padding; 3];
        params.ceil_mode = ceil_mode;
        let (pooled, places) = images.max_pool(&params)?;
        all.extend([pooled, places]);
        if !ceil_mode {
            all.push(images.avg_pool(&params)?);
            params.count_include_pad = false;
            all.push(images.avg_pool(&params)?);
        }
    }
    Ok(all)
}

fn attention(_: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let heads = |x: &Tensor| x.reshape([x.dims()[0], x.dims()[1], 2, 3])?.transpose(1, 2);
    let (q, k, s) = (heads(&x[0])?, heads(&x[1])?, x[0].dims()[1]);
    let few = q.narrow(2, s - 2, 2)?;
    let seen = x[3].select(2, 0)?.gt(0i64)?;
    let rows = seen.unsqueeze(1)?.unsqueeze(1)?;
    let added = x[0].matmul(&x[1].transpose(1, 2)?)?.unsqueeze(1)?;
    let sdpa = |q: &Tensor, k: &Tensor, mask: Option<&Tensor>, causal: bool| {
        q.scaled_dot_product_attention(k, k, Attention::new().mask(mask).causal(causal))
    };
    // Fewer keys than queries, so that a causal query sees no key.
    let blind = k.narrow(2, 0, 2)?;
    Ok(vec![
        sdpa(&q, &k, None, false)?,
        sdpa(&q, &k, None, true)?,
        sdpa(&few, &k, None, true)?,
        sdpa(&q, &blind, None, true)?,
        sdpa(&q, &k, Some(&rows), false)?,
        sdpa(&q, &k, Some(&rows), true)?,
        sdpa(&q, &k, Some(&added), false)?,
        sdpa(&q, &k, Some(&added), true)?,
        sdpa(&q.select(1, 0)?, &k.select(1, 0)?, None, true)?,
        q.scaled_dot_product_attention(&k.narrow(1, 0, 1)?, &k.narrow(1, 0, 1)?, Attention::new().scale(0.7))?,
        sdpa(&q.repeat(&[1, 2, 1, 1])?, &k, None, true)?,
        q.attention_weights(&k, Attention::new().causal(true))?,
    ])
}

/// Recurrent layers whose weights are computed.
fn sequence(model: &Linear, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let x = x[0].transpose(0, 1)?;
    let (weight, bias) = (
        (model.weight.tensor() * 0.5)?,
        model.weight.tensor().narrow(1, 0, 1)?.flatten(0, 1)?,
    );
    let rows = |gates: usize| -> Result<(Tensor, Tensor, Tensor)> {
        let weight = Tensor::cat(&[&weight, &model.weight.tensor()], 0)?.narrow(0, 0, 3 * gates)?;
        let bias = Tensor::cat(&[&bias, &bias], 0)?.narrow(0, 0, 3 * gates)?;
        Ok((weight.clone(), weight.narrow(1, 0, 3)?, bias))
    };
    let state = x.select(0, 0)?.narrow(1, 0, 3)?;
    let mut all = Vec::new();
    for reverse in [false, true] {
        let (x, h) = (x.inner(), state.inner());
        let (input, own, bias) = rows(4)?;
        let (weights, biases) = ([input.inner(), own.inner()], Some([bias.inner(); 2]));
        let (y, hidden, cell) = AnyBackend::lstm(x, h, h, weights, biases, reverse)?;
        all.extend([y, hidden, cell]);
        let (input, own, bias) = rows(3)?;
        for reset_after in [true, false] {
            let (weights, biases) = ([input.inner(), own.inner()], Some([bias.inner(); 2]));
            let (y, hidden) = AnyBackend::gru(x, h, weights, biases, reset_after, reverse)?;
            all.extend([y, hidden]);
        }
        let (input, own, _) = rows(1)?;
        let weights = [input.inner(), own.inner()];
        let (y, hidden) = AnyBackend::rnn(x, h, weights, None, Activation::Relu, reverse)?;
        all.extend([y, hidden]);
    }
    Ok(all.into_iter().map(Tensor::from_inner).collect())
}
