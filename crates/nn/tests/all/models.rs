//! Models of images: names, initial values, configs. The conformance suite compares their results with PyTorch's.

use polygrad_nn::models::*;
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Tensor, manual_seed};

on_backends!(
    a_resnet_has_torchvisions_names,
    a_resnet_begins_as_torchvisions,
    small_models_learn,
    bad_sizes_are_told,
);

fn small() -> ResNetConfig {
    ResNetConfig {
        width: 4,
        small_images: true,
        ..ResNetConfig::resnet18(3)
    }
}

fn a_resnet_has_torchvisions_names<B: Backend>(device: &Device<B>) {
    let model = ResNet::new(&small(), device).unwrap();
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 62);
    for name in [
        "conv1.weight",
        "bn1.bias",
        "layer1.1.conv2.weight",
        "layer2.0.downsample.0.weight",
        "layer4.0.downsample.1.bias",
        "fc.bias",
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    assert!(
        model
            .named_buffers()
            .iter()
            .any(|(name, _)| name == "layer3.0.downsample.1.num_batches_tracked")
    );
    let deeper = ResNet::new(
        &ResNetConfig {
            width: 4,
            ..ResNetConfig::resnet34(3)
        },
        device,
    )
    .unwrap();
    assert_eq!(deeper.named_parameters().len(), 110);
}

fn a_resnet_begins_as_torchvisions<B: Backend>(device: &Device<B>) {
    manual_seed(1);
    let config = ResNetConfig {
        zero_init_residual: true,
        ..small()
    };
    let model = ResNet::new(&config, device).unwrap();
    // Kaiming over the outputs: a variance of 2 / (32 · 9).
    let weight = model.layer4[1].conv2.weight.tensor().to_f64_vec().unwrap();
    let variance = weight.iter().map(|w| w * w).sum::<f64>() / weight.len() as f64;
    assert!((variance / (2.0 / 288.0) - 1.0).abs() < 0.1, "{variance}");
    let of = |norm: &BatchNorm2d<B>| norm.weight.as_ref().unwrap().tensor().to_f64_vec().unwrap();
    for block in model.layer1.iter().chain(&model.layer4) {
        assert!(of(&block.bn2).iter().all(|&w| w == 0.0) && of(&block.bn1).iter().all(|&w| w == 1.0));
    }
}

fn small_models_learn<B: Backend>(device: &Device<B>) {
    manual_seed(5);
    let lenet = LeNetConfig {
        image_size: [12, 12],
        num_classes: 3,
        ..LeNetConfig::default()
    };
    let resnet = ResNetConfig {
        layers: [1, 1, 1, 1],
        in_channels: 1,
        ..small()
    };
    let models: [Box<dyn Forward<B>>; 2] = [
        Box::new(LeNet::new(&lenet, device).unwrap()),
        Box::new(ResNet::new(&resnet, device).unwrap()),
    ];
    let x = Tensor::randn([6, 1, 12, 12], device).unwrap();
    let y = Tensor::from_vec(vec![0i64, 1, 2, 0, 1, 2], [6], device).unwrap();
    for model in models {
        let mut optimizer = AdamConfig::new(1e-2).build(model.parameters()).unwrap();
        let mut losses = Vec::new();
        for _ in 0..12 {
            let loss = loss::cross_entropy(&model.forward(&x).unwrap(), &y).unwrap();
            losses.push(loss.item().unwrap());
            optimizer.step(&loss.backward().unwrap()).unwrap();
        }
        assert!(losses[11] < 0.5 * losses[0], "{losses:?}");
    }
}

fn bad_sizes_are_told<B: Backend>(device: &Device<B>) {
    let told = |error: Option<polygrad_tensor::Error>, part: &str| {
        let error = error.unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    told(Mlp::<B>::new(&MlpConfig::new([3]), device).err(), "sizes = [3]");
    let config = LeNetConfig {
        image_size: [28, 11],
        ..LeNetConfig::default()
    };
    told(LeNet::<B>::new(&config, device).err(), "28×11");
    for width in [0, usize::MAX] {
        let config = ResNetConfig { width, ..small() };
        told(ResNet::<B>::new(&config, device).err(), "width");
    }
    let model = ResNet::new(&small(), device).unwrap();
    model.to_dtype(DType::F64).unwrap();
    // From here on the layers have names.
    assert_eq!(model.parameters().len(), 62);
    told(
        model.forward(&Tensor::ones([1, 3, 8, 8], device).unwrap()).err(),
        "conv1",
    );
}

#[test]
fn configs_are_json() {
    let config: ResNetConfig = serde_json::from_str(r#"{"num_classes": 10, "layers": [3, 4, 6, 3]}"#).unwrap();
    assert_eq!(config, ResNetConfig::resnet34(10));
    let config: MlpConfig = serde_json::from_str(r#"{"sizes": [2, 3], "activation": "gelu_tanh"}"#).unwrap();
    assert_eq!(config.activation, ActivationFn::GeluTanh);
    assert_eq!(
        serde_json::from_str::<LeNetConfig>("{}").unwrap(),
        LeNetConfig::default()
    );
    let text = serde_json::to_string(&ResNetConfig::resnet18(10)).unwrap();
    assert_eq!(
        serde_json::from_str::<ResNetConfig>(&text).unwrap(),
        ResNetConfig::resnet18(10)
    );
}
