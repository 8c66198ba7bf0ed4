//! Errors name the module, and the line of the program, in which they arose.

use std::process::Command;

use polygrad_nn::optim::SGD;
use polygrad_nn::{Forward, Linear, Module, Sequential, Tanh, TrainStep, loss::mse_loss, watch};
use polygrad_reference::Reference;
use polygrad_tensor::{AnyBackend, Device, Error, Result, Tensor};

fn device() -> Device {
    Device::<Reference>::default().into_any()
}

/// A model with its own forward, whose parameters have not been requested yet.
#[derive(Module)]
#[module(forward)]
struct Net {
    fc1: Linear,
    rest: Vec<Linear>,
}

impl Net {
    fn new() -> Result<Self> {
        let device = device();
        let fc1 = Linear::new(3, 4, &device)?;
        let rest = vec![Linear::new(4, 4, &device)?, Linear::new(5, 2, &device)?];
        Ok(Self { fc1, rest })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.fc1.forward(x)?;
        for layer in &self.rest {
            x = layer.forward(&x.relu()?)?;
        }
        Ok(x)
    }
}

fn ones() -> Tensor {
    Tensor::ones([2, 3], &device()).unwrap()
}

fn path(error: &Error) -> String {
    error.module_path().unwrap_or_default()
}

#[test]
fn the_path_is_known_where_the_whole_model_is() {
    let net = || Net::new().unwrap();
    let error = |result: Result<Tensor>| result.unwrap_err();
    let whole = net();
    assert_eq!(path(&watch::locate(&whole, error(whole.forward(&ones())))), "rest.1");
    assert_eq!(path(&error(Forward::forward(&net(), &ones()))), "rest.1");
    assert_eq!(path(&net().summary(|| net().forward(&ones())).unwrap_err()), "");
    let whole = net();
    assert_eq!(path(&whole.summary(|| whole.forward(&ones())).unwrap_err()), "rest.1");
    let chain = Sequential::<AnyBackend>::new().push(Tanh).push(net());
    assert_eq!(path(&error(chain.forward(&ones()))), "1.rest.1");
    #[derive(Module)]
    struct Outer {
        body: Sequential,
    }
    let outer = Outer { body: chain };
    let found = watch::locate(&outer, error(outer.body.forward(&ones())));
    assert_eq!(path(&found), "body.1.rest.1");

    // Without parameters it is the optimizer that has names in its hands.
    let sgd = SGD::new(vec![net().fc1.weight.clone()], 0.1).unwrap();
    let loss = |net: &Net, batch: &[Tensor]| mse_loss(&net.forward(&batch[0])?, &batch[0]);
    let step = TrainStep::new(net(), sgd, loss).step(&[ones()]);
    assert_eq!(path(&step.unwrap_err()), "rest.1");

    // Parameters keep their names, also in a part of the model.
    whole.parameters();
    assert_eq!(path(&error(whole.forward(&ones()))), "rest.1");
    assert_eq!(
        path(&watch::locate(&whole.rest[1], error(whole.forward(&ones())))),
        "rest.1"
    );
}

#[test]
fn a_layer_says_where_it_was_made_until_its_path_is_known() {
    let net = Net::new().unwrap();
    let error = net.forward(&ones()).unwrap_err();
    assert_eq!(error.module_path(), None);
    let text = error.to_string();
    // The line of the second layer of `rest`.
    assert!(
        text.contains("in the Linear made at ") && text.contains("errors.rs:26:"),
        "{text}"
    );
    net.parameters();
    let text = net.forward(&ones()).unwrap_err().to_string();
    assert!(text.contains("in module rest.1") && !text.contains("made at"), "{text}");
}

/// The rest runs in a separate process, since backtraces are enabled or disabled only once per process.
#[test]
fn a_backtrace_shows_the_lines_of_the_program() {
    const NAME: &str = "errors::a_backtrace_shows_the_lines_of_the_program";
    let error = Net::new().unwrap().forward(&ones()).unwrap_err();
    if std::env::var_os("POLYGRAD_TEST_BACKTRACE").is_none() {
        if std::env::var_os("RUST_BACKTRACE").is_none() && std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
            assert!(error.frames().is_empty());
            assert_eq!(format!("{error:#}"), format!("{error}"));
        }
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", NAME, "--nocapture"]);
        command.env("POLYGRAD_TEST_BACKTRACE", "1").env("RUST_BACKTRACE", "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let frames = error.frames();
    // The line of `layer.forward`, and this one's; after these come the frames of the test harness.
    assert!(frames[0].function.contains("forward"), "{frames:?}");
    assert!(
        frames[0].place.as_ref().unwrap().contains("errors.rs:33:"),
        "{frames:?}"
    );
    assert!(frames[1].function.contains("a_backtrace_shows"), "{frames:?}");
    let text = format!("{error:?}");
    assert!(
        text.contains("[shape mismatch]\n  at ") && text.contains("errors.rs:33:"),
        "{text}"
    );
    assert!(!format!("{error}").contains("errors.rs:33:"), "{error}");
    assert!(format!("{error:#}").contains("errors.rs:33:"), "{error:#}");
    assert!(error.backtrace().to_string().contains("polygrad_core"));
}
