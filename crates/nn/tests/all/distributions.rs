//! Distributions compared with PyTorch's: scripts/make_distribution_values.py recorded the results of
//! torch.distributions.

use polygrad_nn::distributions::*;
use polygrad_tensor::{Backend, DType, Device, ErrorKind, Result, Tensor, manual_seed};
use serde_json::Value;

use crate::common::{crate_folder, f64_of, json};

on_backends!(
    values_and_gradients_are_pytorchs,
    draws_have_their_moments,
    what_is_masked_is_never_drawn,
    squashed_draws_are_finite_far_out,
    what_does_not_fit_is_said,
);

/// All numbers of a nested list, and its shape.
fn numbers(value: &Value) -> (Vec<f64>, Vec<usize>) {
    match value {
        Value::Array(parts) => {
            let parts: Vec<_> = parts.iter().map(numbers).collect();
            let inner = parts.first().map_or(&[][..], |(_, dims)| dims);
            let dims = [&[parts.len()], inner].concat();
            (parts.iter().flat_map(|(values, _)| values.clone()).collect(), dims)
        }
        Value::Bool(yes) => (vec![f64::from(u8::from(*yes))], Vec::new()),
        Value::String(infinity) => (vec![infinity.parse().unwrap()], Vec::new()),
        number => (vec![number.as_f64().unwrap()], Vec::new()),
    }
}

fn tensor<B: Backend>(value: &Value, device: &Device<B>) -> Tensor<B> {
    let (values, dims) = numbers(value);
    f64_of(values, &dims, device)
}

fn is_near<B: Backend>(found: &Tensor<B>, expected: &Value, what: &str) {
    let (expected, dims) = numbers(expected);
    assert_eq!(found.dims(), dims, "{what}");
    for (found, expected) in found.to_f64_vec().unwrap().into_iter().zip(expected) {
        let near = (found - expected).abs() <= 1e-12 * (1.0 + expected.abs());
        assert!(found == expected || near, "{what}: {found} for {expected}");
    }
}

/// Checks a case's values; returns the sum of the finite ones.
fn checked<B: Backend, D: Distribution<B>>(case: &Value, p: &D, q: Option<&D>, value: &Tensor<B>) -> Tensor<B> {
    let what = case["kind"].as_str().unwrap();
    let mut found = vec![("log_prob", p.log_prob(value).unwrap())];
    match case.get("entropy") {
        Some(_) => found.push(("entropy", p.entropy().unwrap())),
        None => assert_eq!(p.entropy().err().unwrap().kind(), ErrorKind::Unsupported),
    }
    found.extend(q.map(|q| ("kl_divergence", p.kl_divergence(q).unwrap())));
    is_near(&p.mode().unwrap(), &case["mode"], &format!("mode of {what}"));
    let mut sum = f64_of(vec![0.0], &[], &value.device());
    for (name, found) in found {
        is_near(&found, &case[name], &format!("{name} of {what}"));
        let finite = found.masked_fill(&found.isfinite().unwrap().logical_not().unwrap(), 0.0);
        sum = sum.add(finite.unwrap().sum_all().unwrap()).unwrap();
    }
    sum
}

fn values_and_gradients_are_pytorchs<B: Backend>(device: &Device<B>) {
    let cases = json(&crate_folder().join("tests/data/distributions.json"));
    for case in cases.as_array().unwrap() {
        let all = |name: &str| -> Vec<Tensor<B>> {
            let list = case.get(name).and_then(Value::as_array);
            list.into_iter().flatten().map(|x| tensor(x, device)).collect()
        };
        let parameters: Vec<Tensor<B>> = all("parameters")
            .into_iter()
            .map(|x| Tensor::var("parameter", x).unwrap())
            .collect();
        let (p, others) = (&parameters[..], all("others"));
        let q = (!others.is_empty()).then_some(&others[..]);
        let value = tensor(&case["value"], device);
        let sum = match case["kind"].as_str().unwrap() {
            "categorical" => {
                let make = |x: &[Tensor<B>]| match case.get("mask") {
                    Some(mask) => {
                        let mask = tensor(mask, device).to_dtype(DType::Bool).unwrap();
                        Categorical::masked(&x[0], &mask).unwrap()
                    }
                    None => Categorical::new(&x[0]).unwrap(),
                };
                let classes = value.to_dtype(DType::I64).unwrap();
                checked(case, &make(p), q.map(make).as_ref(), &classes)
            }
            "bernoulli" => {
                let make = |x: &[Tensor<B>]| Bernoulli::new(&x[0]).unwrap();
                checked(case, &make(p), q.map(make).as_ref(), &value)
            }
            "normal" => {
                let make = |x: &[Tensor<B>]| Normal::new(&x[0], &x[1]).unwrap();
                checked(case, &make(p), q.map(make).as_ref(), &value)
            }
            _ => {
                let make = |x: &[Tensor<B>]| TanhNormal::new(Normal::new(&x[0], &x[1]).unwrap());
                checked(case, &make(p), q.map(make).as_ref(), &value)
            }
        };
        let gradients = sum.backward().unwrap();
        for (parameter, expected) in parameters.iter().zip(case["gradients"].as_array().unwrap()) {
            let gradient = gradients.require(parameter).unwrap();
            is_near(gradient, expected, &format!("gradient of {}", case["kind"]));
        }
    }
}

fn draws_have_their_moments<B: Backend>(device: &Device<B>) {
    manual_seed(5);
    let n = 20_000;
    let row = |values: &[f64]| {
        f64_of(values.to_vec(), &[1, values.len()], device)
            .expand([n, values.len()])
            .unwrap()
    };
    let mean = |x: Tensor<B>| -> Vec<f64> {
        let x = x.to_dtype(DType::F64).unwrap().reshape([n, x.numel() / n]).unwrap();
        let ones = Tensor::full([1, n], 1.0 / n as f64, (device, DType::F64)).unwrap();
        ones.matmul(&x).unwrap().to_f64_vec().unwrap()
    };
    let close = |found: Vec<f64>, expected: &[f64]| {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 0.04, "{found} for {expected}");
        }
    };
    let logits = row(&[0.7_f64.ln(), 0.1_f64.ln(), 0.2_f64.ln(), 0.5_f64.ln(), 0.5_f64.ln()]);
    let classes = Categorical::new(&logits.narrow(1, 0, 3).unwrap())
        .unwrap()
        .sample()
        .unwrap();
    for (class, share) in [0.7, 0.1, 0.2].into_iter().enumerate() {
        close(mean(classes.eq(class as i64).unwrap()), &[share]);
    }
    let both = MultiDiscrete::new(&logits, &[3, 2]).unwrap();
    let drawn = both.sample().unwrap();
    assert_eq!(drawn.dims(), [n, 2]);
    close(mean(drawn), &[0.5, 0.5]);
    let expected = -(0.7 * 0.7_f64.ln() + 0.1 * 0.1_f64.ln() + 0.2 * 0.2_f64.ln()) + 2.0_f64.ln();
    close(
        both.entropy().unwrap().narrow(0, 0, 1).unwrap().to_f64_vec().unwrap(),
        &[expected],
    );
    let bits = Bernoulli::new(&row(&[(0.3_f64 / 0.7).ln(), 0.0])).unwrap();
    close(mean(bits.sample().unwrap()), &[0.3, 0.5]);
    let normal = Normal::from_log_std(&row(&[1.0, -2.0]), &row(&[0.0, -1.0])).unwrap();
    let drawn = normal.sample().unwrap();
    close(mean(drawn.clone()), &[1.0, -2.0]);
    close(
        mean(drawn.sub(normal.loc()).unwrap().square().unwrap()),
        &[1.0, (-2.0_f64).exp()],
    );
    // The log probability of a draw is minus the entropy, on average.
    let of_all = Independent::new(normal, 1);
    let apart = of_all.log_prob(&drawn).unwrap().add(of_all.entropy().unwrap()).unwrap();
    close(mean(apart), &[0.0]);
}

fn what_is_masked_is_never_drawn<B: Backend>(device: &Device<B>) {
    manual_seed(6);
    let logits = f64_of(vec![5.0, 0.0, 5.0, 1.0], &[1, 4], device)
        .expand([1000, 4])
        .unwrap();
    let mask = Tensor::new([[false, true, false, true]], device)
        .unwrap()
        .expand([1000, 4])
        .unwrap();
    let policy = Categorical::masked(&logits, &mask).unwrap();
    let drawn = policy.sample().unwrap().to_vec::<i64>().unwrap();
    assert!(drawn.iter().all(|class| [1, 3].contains(class)) && drawn.contains(&1) && drawn.contains(&3));
    let refused = policy
        .log_prob(&Tensor::zeros([1000], (device, DType::I64)).unwrap())
        .unwrap();
    assert!(refused.to_f64_vec().unwrap().iter().all(|&x| x == f64::NEG_INFINITY));
    let free = Categorical::new(&logits).unwrap();
    let apart = |p: &Categorical<B>, q: &Categorical<B>| p.kl_divergence(q).unwrap().to_f64_vec().unwrap()[0];
    assert_eq!(apart(&free, &policy), f64::INFINITY);
    assert!(apart(&policy, &free).is_finite() && apart(&policy, &policy) == 0.0);
    // A handmade mask, and a mask that excludes everything.
    let by_hand = logits
        .masked_fill(&mask.logical_not().unwrap(), f64::NEG_INFINITY)
        .unwrap();
    let by_hand = Categorical::new(&by_hand).unwrap();
    let entropy = |policy: &Categorical<B>| policy.entropy().unwrap().to_f64_vec().unwrap()[0];
    assert_eq!(entropy(&by_hand), entropy(&policy));
    assert_eq!(apart(&by_hand, &policy), 0.0);
    let nothing = mask.logical_and(&mask.logical_not().unwrap()).unwrap();
    assert!(entropy(&Categorical::masked(&logits, &nothing).unwrap()).is_nan());
    let bits = Bernoulli::masked(&logits, &mask).unwrap();
    let free = Bernoulli::new(&logits).unwrap();
    assert_eq!(
        free.kl_divergence(&bits).unwrap().to_f64_vec().unwrap()[0],
        f64::INFINITY
    );
    assert_eq!(bits.kl_divergence(&bits).unwrap().to_f64_vec().unwrap()[..2], [0.0; 2]);
    let drawn = bits.sample().unwrap().to_f64_vec().unwrap();
    assert!(drawn.chunks(4).all(|row| row[0] == 0.0 && row[2] == 0.0));
    assert_eq!(bits.entropy().unwrap().to_f64_vec().unwrap()[0], 0.0);
    // The largest f16 logits can still be told from masked ones.
    let half = logits.to_dtype(DType::F16).unwrap().mul(10_000.0).unwrap();
    assert_eq!(
        Categorical::masked(&half, &mask)
            .unwrap()
            .mode()
            .unwrap()
            .to_vec::<i64>()
            .unwrap()[0],
        3
    );
}

fn squashed_draws_are_finite_far_out<B: Backend>(device: &Device<B>) {
    for dtype in [DType::F32, DType::F64] {
        let place = (device, dtype);
        let at = |value: f64| Tensor::full([4], value, place).unwrap();
        let loc = Tensor::var("loc", at(30.0)).unwrap();
        let policy = TanhNormal::new(Normal::new(&loc, &at(0.1)).unwrap());
        let (value, log_prob) = policy.rsample_with_log_prob().unwrap();
        let far = log_prob.to_f64_vec().unwrap();
        // The density is that before tanh, times e^(2 x) / 4.
        assert!(far.iter().all(|x| (55.0..65.0).contains(x)), "{far:?}");
        let gradients = log_prob.sum_all().unwrap().backward().unwrap();
        let gradient = gradients.require(&loc).unwrap().to_f64_vec().unwrap();
        assert!(gradient.iter().all(|x| (x - 2.0).abs() < 1e-3), "{gradient:?}");
        assert_eq!(value.to_f64_vec().unwrap(), [1.0; 4]);
        let of_one = policy.log_prob(&value).unwrap().to_f64_vec().unwrap();
        assert!(of_one.iter().all(|x| x.is_finite()), "{of_one:?}");
    }
}

fn what_does_not_fit_is_said<B: Backend>(device: &Device<B>) {
    let fails = |result: Result<Tensor<B>>, kind, words: &str| {
        let error = result.err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let logits = f64_of(vec![0.0; 6], &[2, 3], device);
    let policy = Categorical::new(&logits).unwrap();
    fails(
        policy.log_prob(&f64_of(vec![1.0, 2.0], &[2], device)),
        ErrorKind::DType,
        "classes are i64",
    );
    let mask = Tensor::new([true, false, true], device).unwrap();
    fails(
        Categorical::masked(&logits, &mask).and_then(|policy| policy.logits()),
        ErrorKind::Shape,
        "a mask is bool[2, 3]",
    );
    fails(
        MultiDiscrete::new(&logits, &[2, 2]).and_then(|policy| policy.entropy()),
        ErrorKind::Shape,
        "logits for choices of [2, 2] classes are […, 4], not [2, 3]",
    );
    let one_of_two = Tensor::zeros([1], (device, DType::I64)).unwrap();
    fails(
        policy.log_prob(&one_of_two),
        ErrorKind::Shape,
        "values for a batch [2] have its shape, not [1]",
    );
    let bits = Bernoulli::new(&logits).unwrap();
    fails(
        bits.log_prob(&f64_of(vec![1.0], &[1], device)),
        ErrorKind::Shape,
        "values for a batch [2, 3]",
    );
    let whole = Tensor::zeros([2], (device, DType::I64)).unwrap();
    fails(
        Normal::new(&whole, &f64_of(vec![1.0; 2], &[2], device)).and_then(|normal| normal.sample()),
        ErrorKind::DType,
        "means are floats, not i64",
    );
    fails(
        Bernoulli::new(&whole).and_then(|bits| bits.probs()),
        ErrorKind::DType,
        "logits are floats",
    );
    let two = MultiDiscrete::new(&logits, &[2, 1]).unwrap();
    let one = Tensor::zeros([2, 1], (device, DType::I64)).unwrap();
    fails(two.log_prob(&one), ErrorKind::Shape, "values of 2 choices are […, 2]");
    let other = MultiDiscrete::new(&logits, &[1, 2]).unwrap();
    fails(
        two.kl_divergence(&other),
        ErrorKind::Shape,
        "choices of [2, 1] classes and of [1, 2]",
    );
    let scalar = f64_of(vec![0.0], &[], device);
    fails(
        Categorical::new(&scalar).and_then(|policy| policy.probs()),
        ErrorKind::Shape,
        "at least one class",
    );
    let deep = Independent::new(policy, 2);
    fails(deep.entropy(), ErrorKind::Shape, "has no 2 axes");
}
