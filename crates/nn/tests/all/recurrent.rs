//! Recurrent layers, beyond the recorded vectors from PyTorch.

use crate::common::randn;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Error, ErrorKind, Result, Tensor, manual_seed};

on_backends!(
    names_are_pytorchs,
    parameters_begin_within_the_bound,
    every_parameter_gets_a_gradient,
    dropout_lies_between_layers_in_training,
    full_lengths_change_nothing,
    padding_has_no_influence,
    parts_and_cells_give_what_the_whole_gives,
    an_empty_batch_has_empty_answers,
    errors_say_what_is_wrong,
);

fn values<B: Backend>(x: &Tensor<B>) -> Vec<f64> {
    x.to_f64_vec().unwrap()
}

#[track_caller]
fn near<B: Backend>(a: &Tensor<B>, b: &Tensor<B>, bound: f64) {
    assert_eq!(a.dims(), b.dims());
    for (i, (a, b)) in values(a).into_iter().zip(values(b)).enumerate() {
        assert!((a - b).abs() <= bound * b.abs().max(1.0), "[{i}]: {a}, not {b}");
    }
}

/// The tensors of a state.
fn parts<B: Backend, S: RecurrentState<B>>(state: &S) -> Vec<Tensor<B>> {
    let mut all = Vec::new();
    S::merge(&[state], |parts| {
        all.push(parts[0].clone());
        Ok(parts[0].clone())
    })
    .unwrap();
    all
}

fn names<B: Backend>(module: &impl Module<B>) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

fn names_are_pytorchs<B: Backend>(device: &Device<B>) {
    let lstm = LSTMConfig::new(3, 4)
        .num_layers(2)
        .bidirectional(true)
        .build(device)
        .unwrap();
    let expected = ["_l0", "_l0_reverse", "_l1", "_l1_reverse"]
        .iter()
        .flat_map(|place| ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map(|name| format!("{name}{place}")));
    assert_eq!(names(&lstm), expected.collect::<Vec<_>>());
    let shape = |layer, reverse| {
        lstm.weights(layer, reverse)
            .map(|w| w.weight_ih.shape().dims().to_vec())
    };
    assert_eq!(shape(0, true), Some(vec![16, 3]));
    assert_eq!(shape(1, false), Some(vec![16, 8]));
    assert_eq!(shape(2, false), None);
    let gru = GRUConfig::new(3, 4).bias(false).build(device).unwrap();
    assert_eq!(names(&gru), ["weight_ih_l0", "weight_hh_l0"]);
    assert!(gru.weights(0, true).is_none());
    let cell = RNNCell::new(3, 4, device).unwrap();
    assert_eq!(names(&cell), ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]);
    let min = MinGRUConfig::new(3, 4).bias(false).build(device).unwrap();
    assert_eq!(names(&min), ["linear_z.weight", "linear_h.weight"]);

    // Summaries also show the names of the layers.
    let x = Tensor::ones([5, 2, 3], device).unwrap();
    let text = lstm.summary(|| lstm.forward(&x, None)).unwrap().to_string();
    assert!(text.contains("LSTM") && text.contains("[5, 2, 8]"), "{text}");
    let text = cell
        .summary(|| cell.forward(&x.select(0, 0)?, None))
        .unwrap()
        .to_string();
    assert!(text.contains("RNNCell") && text.contains("[2, 4]"), "{text}");
}

fn parameters_begin_within_the_bound<B: Backend>(device: &Device<B>) {
    manual_seed(1);
    let gru = GRUConfig::new(64, 16).num_layers(2).build(device).unwrap();
    for (name, param) in gru.named_parameters() {
        let values = values(&param.tensor());
        let largest = values.iter().fold(0f64, |m, v| m.max(v.abs()));
        assert!((0.2..=0.25).contains(&largest), "{name}: {largest}");
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.1, "{name}: {mean}");
    }
    let cell = LSTMCellConfig::new(3, 4)
        .init(Init::orthogonal(1.0))
        .bias_init(Init::ONES)
        .build(device)
        .unwrap();
    assert_eq!(values(&cell.weights.bias_hh.as_ref().unwrap().tensor()), [1.0; 16]);
    let weight = cell.weights.weight_ih.tensor();
    near(
        &weight.t().unwrap().matmul(&weight).unwrap(),
        &Tensor::eye(3, device).unwrap(),
        1e-6,
    );
}

/// Runs one function on layers of all three kinds, of two layers in both directions.
macro_rules! on_all_kinds {
    ($device:expr, $function:ident) => {
        $function($device, LSTMConfig::new(3, 4).num_layers(2).bidirectional(true));
        $function($device, GRUConfig::new(3, 4).num_layers(2).bidirectional(true));
        for nonlinearity in [Nonlinearity::Tanh, Nonlinearity::ReLU] {
            let rnn = RNNConfig::new(3, 4).nonlinearity(nonlinearity);
            $function($device, rnn.num_layers(2).bidirectional(true));
        }
    };
}

fn built<K: Recurrence, B: Backend>(config: RecurrentConfig<K>, device: &Device<B>) -> Recurrent<K, B> {
    let layer = config.build(device).unwrap();
    layer.to_dtype(DType::F64).unwrap();
    layer
}

fn every_parameter_gets_a_gradient<B: Backend>(device: &Device<B>) {
    fn check<K: Recurrence, B: Backend>(device: &Device<B>, config: RecurrentConfig<K>) {
        let layer = built(config, device);
        let x = randn(&[3, 2, 3], device);
        for lengths in [None, Some([1, 3])] {
            let (y, state) = match &lengths {
                None => layer.forward(&x, None),
                Some(lengths) => layer.forward_packed(&x, lengths, None),
            }
            .unwrap();
            let of_state = parts(&state)
                .iter()
                .map(|p| p.square()?.sum_all())
                .reduce(|a, b| a?.add(&b?));
            let loss = y
                .square()
                .unwrap()
                .sum_all()
                .unwrap()
                .add(of_state.unwrap().unwrap())
                .unwrap();
            let gradients = loss.backward().unwrap();
            let params = layer.named_parameters();
            assert_eq!(params.len(), 16);
            for (name, param) in params {
                let gradient = values(gradients.require(&param).unwrap());
                assert!(gradient.iter().any(|&g| g != 0.0), "{name}");
            }
        }
    }
    on_all_kinds!(device, check);
}

fn dropout_lies_between_layers_in_training<B: Backend>(device: &Device<B>) {
    fn check<K: Recurrence, B: Backend>(device: &Device<B>, config: RecurrentConfig<K>) {
        let layer = built(config.dropout(0.5), device);
        let (x, other) = (randn(&[4, 3, 3], device), randn(&[4, 3, 3], device));
        let run = |x: &Tensor<B>| {
            let (y, state) = layer.forward(x, None).unwrap();
            let below = parts(&state)[0].narrow(0, 0, 2).unwrap();
            (values(&y), values(&below))
        };
        layer.eval();
        let exact = run(&x);
        assert_eq!(run(&x), exact);
        layer.train();
        let dropped = run(&x);
        // The first layer's states come before any dropout; the second layer's outputs come after it, and are not
        // dropped themselves.
        assert_eq!(dropped.1, exact.1);
        assert_ne!(dropped.0, exact.0);
        assert_ne!(run(&x).0, dropped.0);

        // With dropout 1 the second layer does not see the input.
        let layer = built(config.dropout(1.0), device);
        let output = |x: &Tensor<B>| values(&layer.forward(x, None).unwrap().0);
        assert_eq!(output(&x), output(&other));
        layer.eval();
        assert_ne!(output(&x), output(&other));

        // A single layer has no dropout.
        let layer = built(config.num_layers(1).dropout(1.0), device);
        let output = |x: &Tensor<B>| values(&layer.forward(x, None).unwrap().0);
        let trained = output(&x);
        layer.eval();
        assert_eq!(output(&x), trained);
    }
    on_all_kinds!(device, check);
}

fn full_lengths_change_nothing<B: Backend>(device: &Device<B>) {
    fn check<K: Recurrence, B: Backend>(device: &Device<B>, config: RecurrentConfig<K>) {
        for batch_first in [false, true] {
            let layer = built(config.batch_first(batch_first), device);
            let x = randn(&[4, 4, 3], device);
            let state = K::State::filled(&randn(&[4, 4, 4], device));
            let (y, last) = layer.forward(&x, Some(state.clone())).unwrap();
            let (packed, packed_last) = layer.forward_packed(&x, &[4; 4], Some(state)).unwrap();
            assert_eq!(values(&packed), values(&y));
            for (packed, whole) in parts(&packed_last).iter().zip(parts(&last)) {
                assert_eq!(values(packed), values(&whole));
            }
        }
    }
    on_all_kinds!(device, check);
}

/// Each sequence of a padded batch gives what it gives alone, whatever the padding holds.
fn padding_has_no_influence<B: Backend>(device: &Device<B>) {
    fn check<K: Recurrence, B: Backend>(device: &Device<B>, config: RecurrentConfig<K>) {
        let layer = built(config.batch_first(true), device);
        let (lengths, steps) = ([2, 5, 1, 3], 6);
        let state = K::State::filled(&randn(&[4, 4, 4], device));
        let sequences: Vec<_> = lengths.map(|length| randn(&[length, 3], device)).into();
        let padded = |value: f64| {
            let fill = |x: &Tensor<B>| x.pad(&[(0, steps - x.dims()[0]), (0, 0)], value);
            let rows: Vec<_> = sequences.iter().map(|x| fill(x).unwrap()).collect();
            Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0)
                .unwrap()
                .requires_grad()
                .unwrap()
        };
        let x = padded(f64::NAN);
        let (y, last) = layer.forward_packed(&x, &lengths, Some(state.clone())).unwrap();
        for (i, (sequence, length)) in sequences.iter().zip(lengths).enumerate() {
            let own = K::State::merge(&[&state], |p| p[0].narrow(1, i, 1)?.squeeze(1)).unwrap();
            let (alone, alone_last) = layer.forward(sequence, Some(own)).unwrap();
            let row = y.narrow(0, i, 1).unwrap().squeeze(0).unwrap();
            near(&row.narrow(0, 0, length).unwrap(), &alone, 1e-12);
            let beyond = row.narrow(0, length, steps - length).unwrap();
            assert!(values(&beyond).iter().all(|&v| v == 0.0));
            for (last, alone) in parts(&last).iter().zip(parts(&alone_last)) {
                near(&last.narrow(1, i, 1).unwrap().squeeze(1).unwrap(), &alone, 1e-12);
            }
        }
        let gradients = y.sum_all().unwrap().backward().unwrap();
        for (name, param) in layer.named_parameters() {
            assert!(
                values(gradients.require(&param).unwrap()).iter().all(|g| g.is_finite()),
                "{name}"
            );
        }
        let of_x = gradients.require(&x).unwrap();
        let beyond = of_x.narrow(0, 2, 1).unwrap().narrow(1, 1, steps - 1).unwrap();
        assert!(values(&beyond).iter().all(|&g| g == 0.0));
    }
    on_all_kinds!(device, check);
}

fn parts_and_cells_give_what_the_whole_gives<B: Backend>(device: &Device<B>) {
    let lstm = built(LSTMConfig::new(3, 4), device);
    let x = randn(&[5, 2, 3], device);
    let state = lstm.initial_state(2).unwrap();
    assert_eq!((state.0.dims(), values(&state.1)), (vec![1, 2, 4], vec![0.0; 8]));
    let (y, last) = lstm.forward(&x, None).unwrap();
    let (_, between) = lstm.forward(&x.narrow(0, 0, 2).unwrap(), Some(state)).unwrap();
    let (rest, end) = lstm.forward(&x.narrow(0, 2, 3).unwrap(), Some(between)).unwrap();
    near(&rest, &y.narrow(0, 2, 3).unwrap(), 1e-12);
    near(&end.0, &last.0, 1e-12);
    near(&end.1, &last.1, 1e-12);

    let cell = LSTMCell::new(3, 4, device).unwrap();
    cell.to_dtype(DType::F64).unwrap();
    let own = lstm.state_dict().unwrap();
    let renamed = own
        .iter()
        .map(|(name, value)| (name.trim_end_matches("_l0").to_owned(), value.clone()));
    cell.load_state_dict(&renamed.collect(), true).unwrap();
    let mut state = None;
    for x in x.unbind(0).unwrap() {
        state = Some(cell.forward(&x, state).unwrap());
    }
    let (h, c) = state.unwrap();
    near(&h.unsqueeze(0).unwrap(), &last.0, 1e-12);
    near(&c.unsqueeze(0).unwrap(), &last.1, 1e-12);
}

fn an_empty_batch_has_empty_answers<B: Backend>(device: &Device<B>) {
    let gru = GRUConfig::new(3, 4).bidirectional(true).build(device).unwrap();
    let x = Tensor::ones([2, 0, 3], device).unwrap();
    for run in [gru.forward(&x, None), gru.forward_packed(&x, &[], None)] {
        let (y, h) = run.unwrap();
        assert_eq!((y.dims(), h.dims()), (vec![2, 0, 8], vec![2, 0, 4]));
    }
}

#[track_caller]
fn fails<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) -> Error {
    let Err(error) = result else {
        panic!("no error, but {kind:?} with {parts:?} was expected");
    };
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
    error
}

fn errors_say_what_is_wrong<B: Backend>(device: &Device<B>) {
    use ErrorKind::{DType as WrongDType, InvalidArgument, OutOfRange, Shape};
    let ones = |shape: &[usize]| Tensor::ones(shape, device).unwrap();
    let config = LSTMConfig::new(3, 4).num_layers(2);
    fails(
        config.num_layers(0).build(device),
        InvalidArgument,
        &["LSTM", "num_layers"],
    );
    fails(
        config.dropout(1.5).build(device),
        InvalidArgument,
        &["LSTM", "1.5 is no probability"],
    );
    fails(GRU::new(0, 4, device), InvalidArgument, &["GRU", "input_size = 0"]);
    fails(
        RNNCell::new(3, 0, device),
        InvalidArgument,
        &["RNNCell", "hidden_size = 0"],
    );
    fails(
        GRU::new(3, usize::MAX, device),
        InvalidArgument,
        &["GRU", "hidden_size"],
    );
    fails(
        MinGRU::new(3, 0, device),
        InvalidArgument,
        &["MinGRU", "hidden_size = 0"],
    );

    let lstm = config.build(device).unwrap();
    let run = |x: &Tensor<B>, state| lstm.forward(x, state);
    let wide = ones(&[5, 2, 7]);
    fails(
        run(&ones(&[3]), None),
        Shape,
        &["LSTM", "[T, N, C], or [T, C]", "f32[3]"],
    );
    fails(
        run(&wide, None),
        Shape,
        &["LSTM", "7 features, input_size is 3", "f32[5, 2, 7]"],
    );
    fails(run(&ones(&[0, 2, 3]), None), Shape, &["LSTM", "no steps"]);
    let x = ones(&[5, 2, 3]);
    let good = || ones(&[2, 2, 4]);
    let wanted = "[layers · directions, N, hidden_size] = [2, 2, 4]";
    fails(
        run(&x, Some((ones(&[1, 2, 4]), good()))),
        Shape,
        &["LSTM", "[1, 2, 4]", wanted],
    );
    fails(
        run(&x, Some((good(), ones(&[2, 2, 5])))),
        Shape,
        &["LSTM", "[2, 2, 5]", wanted],
    );
    fails(run(&ones(&[5, 3]), Some((good(), good()))), Shape, &["= [2, 4]"]);
    let double = |x: &Tensor<B>| x.to_dtype(DType::F64).unwrap();
    fails(
        run(&double(&x), None),
        WrongDType,
        &["LSTM", "the input is f64, the parameters are f32", "to_dtype"],
    );
    let state = (good(), double(&good()));
    fails(
        run(&x, Some(state)),
        WrongDType,
        &["LSTM", "a state is f64, the parameters are f32"],
    );
    let packed = |x: &Tensor<B>, lengths: &[usize]| lstm.forward_packed(x, lengths, None);
    fails(
        packed(&ones(&[5, 3]), &[5]),
        Shape,
        &["LSTM", "takes [T, N, C] where there are lengths"],
    );
    fails(packed(&x, &[5]), Shape, &["LSTM", "1 lengths for a batch of 2"]);
    fails(
        packed(&x, &[5, 0]),
        OutOfRange,
        &["LSTM", "sequence 1 has length 0", "1..=5"],
    );
    fails(
        packed(&x, &[6, 2]),
        OutOfRange,
        &["LSTM", "sequence 0 has length 6", "1..=5"],
    );
    let gru = GRUConfig::new(3, 4).batch_first(true).build(device).unwrap();
    fails(gru.forward(&ones(&[2, 0, 3]), None), Shape, &["GRU", "no steps"]);
    fails(gru.forward(&ones(&[1, 2, 2, 3]), None), Shape, &["GRU", "[N, T, C]"]);

    let cell = GRUCell::new(3, 4, device).unwrap();
    fails(
        cell.forward(&x, None),
        Shape,
        &["GRUCell", "takes [N, 3], or [3]", "f32[5, 2, 3]"],
    );
    fails(
        cell.forward(&ones(&[2, 3]), Some(ones(&[4]))),
        Shape,
        &["GRUCell", "[4], it must be [2, 4]"],
    );
    fails(
        cell.forward(&double(&ones(&[2, 3])), None),
        WrongDType,
        &["GRUCell", "f64"],
    );

    let min = MinGRU::new(3, 4, device).unwrap();
    fails(
        min.forward(&ones(&[5, 3]), None),
        Shape,
        &["MinGRU", "[N, T, C] with 3 features"],
    );
    fails(min.forward(&ones(&[2, 0, 3]), None), Shape, &["MinGRU", "no steps"]);
    fails(
        min.forward(&x, Some(&ones(&[2, 4]))),
        Shape,
        &["MinGRU", "[2, 4], it must be [5, 4]"],
    );
    fails(min.step(&x, &ones(&[2, 4])), Shape, &["MinGRU", "[N, C]"]);
    fails(
        min.step(&ones(&[2, 3]), &double(&ones(&[2, 4]))),
        WrongDType,
        &["MinGRU", "the state is f64"],
    );

    // In a model the error contains the path.
    #[derive(Module)]
    struct Model<B: Backend> {
        encoder: LSTM<B>,
        cells: Vec<GRUCell<B>>,
    }
    let model = Model {
        encoder: lstm,
        cells: vec![cell],
    };
    assert_eq!(names(&model)[0], "encoder.weight_ih_l0");
    let error = fails(model.encoder.forward(&wide, None), Shape, &["LSTM"]);
    assert_eq!(error.module_path().as_deref(), Some("encoder"));
    let error = fails(model.cells[0].forward(&wide, None), Shape, &["GRUCell"]);
    assert_eq!(error.module_path().as_deref(), Some("cells.0"));
}
