//! Compiled models compared with the original ones.

use polygrad_core::ErrorKind;
use polygrad_cpu::Cpu;
use polygrad_nn::models::{LeNet, LeNetConfig, Mlp, MlpConfig, ResNet, ResNetConfig};
use polygrad_nn::optim::{Optimizer, SGD};
use polygrad_nn::{
    BatchNorm2d, Compile, CompiledModel, Conv2dConfig, Dropout, Flatten, Forward, Linear, MaxPool2d, Module, ReLU,
    Sequential, Tanh,
};
use polygrad_reference::Reference;
use polygrad_tensor::{Device, Result, Tensor, manual_seed, no_grad};

fn cpu() -> Device {
    Device::<Cpu>::default().into_any()
}

fn reference() -> Device {
    Device::<Reference>::default().into_any()
}

fn largest(x: &Tensor) -> f64 {
    x.to_f64_vec()
        .unwrap()
        .into_iter()
        .fold(0.0, |largest, v| v.abs().max(largest))
}

/// Compiles a model, and compares its results with the model's in evaluation.
fn compiled(model: &impl Forward, x: &Tensor) -> CompiledModel {
    let compiled = model.compile(x).unwrap();
    model.eval();
    let wanted = no_grad(|| model.forward(x)).unwrap();
    for _ in 0..2 {
        let y = compiled.forward(x).unwrap();
        assert_eq!((y.shape(), y.dtype()), (wanted.shape(), wanted.dtype()));
        let difference = largest(&(&y - &wanted).unwrap());
        let scale = largest(&wanted);
        assert!(difference <= 1e-5 * scale.max(1.0), "{difference} of {scale}");
    }
    compiled
}

#[test]
fn products_and_activations_become_one() {
    for device in [cpu(), reference()] {
        manual_seed(1);
        let model = Sequential::new()
            .push(Linear::new(4, 16, &device).unwrap())
            .push(Tanh)
            .push(Dropout::new(0.5).unwrap())
            .push(Linear::new(16, 2, &device).unwrap());
        let x = Tensor::randn([3, 4], &device).unwrap();
        assert_eq!(compiled(&model, &x).ops(), ["linear", "linear"]);
    }
}

#[test]
fn normalization_and_activations_become_part_of_convolutions() {
    for device in [cpu(), reference()] {
        manual_seed(2);
        let conv = |from, to, bias| {
            Conv2dConfig::new(from, to, 3)
                .padding(1)
                .bias(bias)
                .build(&device)
                .unwrap()
        };
        let model = Sequential::new()
            .push(conv(2, 4, false))
            .push(BatchNorm2d::new(4, &device).unwrap())
            .push(ReLU)
            .push(MaxPool2d::new(2))
            .push(conv(4, 3, true))
            .push(BatchNorm2d::new(3, &device).unwrap())
            .push(Flatten::default());
        let x = Tensor::randn([2, 2, 6, 6], &device).unwrap();
        // Statistics other than those of a new layer.
        model.train();
        for _ in 0..3 {
            model.forward(&(&x * 3.0).unwrap()).unwrap();
        }
        let compiled = compiled(&model, &x);
        assert_eq!(compiled.ops(), ["conv", "max_pool", "conv", "reshape"]);
    }
}

#[test]
fn residuals_become_part_of_convolutions() {
    manual_seed(3);
    let device = cpu();
    let model = ResNet::new(&ResNetConfig::resnet18(10), &device).unwrap();
    let x = Tensor::randn([1, 3, 32, 32], &device).unwrap();
    let compiled = compiled(&model, &x);
    let names = compiled.ops();
    assert_eq!(names.iter().filter(|name| **name == "conv").count(), 20);
    assert!(!names.contains(&"batch_norm_running") && !names.contains(&"add") && !names.contains(&"relu"));
}

#[test]
fn a_model_is_compiled_in_evaluation_and_stays_in_its_mode() {
    let device = cpu();
    let model = Sequential::new()
        .push(Linear::new(4, 64, &device).unwrap())
        .push(Dropout::new(0.5).unwrap());
    model.train();
    let x = Tensor::ones([2, 4], &device).unwrap();
    let first = model.compile(&x).unwrap();
    let values = |y: Tensor| y.to_vec::<f32>().unwrap();
    // Dropout of the original model still draws.
    let drawn = [(); 2].map(|()| values(model.forward(&x).unwrap()));
    assert_ne!(drawn[0], drawn[1]);
    assert_eq!(values(first.forward(&x).unwrap()), values(first.forward(&x).unwrap()));
}

/// Weights that were trained or loaded after compiling must give an error, never a silent old answer.
#[test]
fn a_model_that_has_changed_must_be_compiled_again() {
    for device in [cpu(), reference()] {
        let model = Mlp::new(&MlpConfig::new([4, 8, 2]), &device).unwrap();
        let x = Tensor::ones([2, 4], &device).unwrap();
        let before = model.compile(&x).unwrap();
        before.forward(&x).unwrap();
        let mut optimizer = SGD::new(model.parameters(), 0.1).unwrap();
        let loss = model.forward(&x).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        drop(loss);
        optimizer.step(&gradients).unwrap();
        let error = before.forward(&x).unwrap_err().to_string();
        assert!(
            error.contains("0.weight has changed") && error.contains("compile it again"),
            "{error}"
        );
        compiled(&model, &x);
        let state = model.state_dict().unwrap();
        let after = model.compile(&x).unwrap();
        model.load_state_dict(&state, true).unwrap();
        after.forward(&x).unwrap_err();
    }
}

#[test]
fn what_a_compiled_model_cannot_take_is_an_error() {
    let device = cpu();
    let model = LeNet::new(&LeNetConfig::default(), &device).unwrap();
    let x = Tensor::zeros([2, 1, 28, 28], &device).unwrap();
    let compiled = model.compile(&x).unwrap();
    let other = Tensor::zeros([3, 1, 28, 28], &device).unwrap();
    let error = compiled.forward(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.to_string().contains("[2, 1, 28, 28]"), "{error}");
    let tracked = x.requires_grad().unwrap();
    assert_eq!(compiled.forward(&tracked).unwrap_err().kind(), ErrorKind::NoGradient);
    no_grad(|| compiled.forward(&tracked)).unwrap();
    let foreign = Tensor::zeros([2, 1, 28, 28], &reference()).unwrap();
    compiled.forward(&foreign).unwrap_err();
}

/// A layer that reads its values on the host.
#[derive(Module)]
struct Peeking {
    inner: Linear,
}

impl Forward for Peeking {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let scale = x.sum_all()?.item()?;
        self.inner.forward(x)? * scale
    }
}

#[test]
fn what_depends_on_values_on_the_host_is_not_compiled() {
    let device = cpu();
    let model = Peeking {
        inner: Linear::new(4, 2, &device).unwrap(),
    };
    let error = model.compile(&Tensor::ones([1, 4], &device).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("reads values on the host"), "{error}");
}

#[test]
fn threads_share_a_compiled_model() {
    let device = cpu();
    let model = LeNet::new(&LeNetConfig::default(), &device).unwrap();
    let image =
        |i: usize| Tensor::full([1, 1, 28, 28], i as f64 / 8.0, (&device, polygrad_tensor::DType::F32)).unwrap();
    let compiled = model.compile(&image(0)).unwrap();
    let alone: Vec<Vec<f32>> = (0..4)
        .map(|i| compiled.forward(&image(i)).unwrap().to_vec().unwrap())
        .collect();
    std::thread::scope(|scope| {
        for (i, wanted) in alone.iter().enumerate() {
            let (compiled, x) = (&compiled, image(i));
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(&compiled.forward(&x).unwrap().to_vec::<f32>().unwrap(), wanted);
                }
            });
        }
    });
}
