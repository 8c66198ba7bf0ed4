//! Models of `polygrad-nn`, exported as files.

use std::path::Path;

use polygrad_core::{AnyBackend, AnyTensor, Error, ErrorKind, Result, Shape};
use polygrad_nn::{Evaluation, Module, StateDict, watch};
use polygrad_reference::ReferenceDevice;
use polygrad_tensor::{Device, Tensor, no_grad};

use super::finish::{self, About};
use super::symbols::{LARGEST, Symbols};
use super::verify::verify;
use super::{Export, ForwardOutputs, Onnx, OnnxTensor, Recording};
use crate::graph::{Dim, Graph, SaveOptions};

/// Upper bounds on the numbers that stand for symbols without a bound. The first that the model accepts is used, since
/// many models accept only a limited number of tokens.
const CAPS: [usize; 5] = [LARGEST, 1000, 500, 250, 120];

/// Writing a model as an ONNX file.
///
/// ```
/// use polygrad_nn::{Linear, ReLU, Sequential};
/// use polygrad_onnx::{Export, ExportOnnx, Input, OnnxModel};
/// # use polygrad_cpu::Cpu;
/// use polygrad_tensor::{DType, Device, Tensor};
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.onnx");
/// # let device = Device::<Cpu>::default().into_any();
/// let model = Sequential::new().push(Linear::new(4, 8, &device)?).push(ReLU).push(Linear::new(8, 3, &device)?);
/// // One file for batches of every size.
/// let input = Input::new("x", DType::F32, ("batch", 4));
/// model.export_onnx(&path, &Export::new([input]).outputs(["logits"]), |x| model.forward(&x[0]))?;
///
/// let again = OnnxModel::load(&path, &device)?;
/// let x = Tensor::ones([5, 4], &device)?;
/// let difference = (again.forward(&[x.clone()])?.named("logits")? - model.forward(&x)?)?;
/// assert!(difference.abs()?.mean_all()?.item()? < 1e-6);
/// # Ok(())
/// # }
/// ```
pub trait ExportOnnx: Module<AnyBackend> {
    /// Writes what `forward` computes from its inputs with this model, in evaluation, as an ONNX file. Parameters and
    /// buffers keep their names.
    ///
    /// The model is moved to a [`Recording`], `forward` is run on it, and the model is moved back, even after a
    /// failure. Then the written graph is compared with the model at two sizes of each named extent
    /// ([`Export::check`]). Other threads must not use the model meanwhile. A model that was
    /// [settled](Module::settle) has to be settled again afterwards.
    ///
    /// # Errors
    /// Those of [`ExportOnnx::record_onnx`], and if the file cannot be written.
    fn export_onnx<O: ForwardOutputs>(
        &self,
        path: impl AsRef<Path>,
        export: &Export,
        forward: impl Fn(&[Tensor]) -> Result<O>,
    ) -> Result<()> {
        let options = SaveOptions {
            external_data: export.external_data,
            ..SaveOptions::default()
        };
        self.record_onnx(export, forward)?.save_with(path, options)
    }

    /// [`ExportOnnx::export_onnx`] without a file: the graph.
    ///
    /// # Errors
    /// If `forward` cannot be recorded because of a host read, random numbers, an op that ONNX lacks, or an extent that
    /// cannot be expressed in the named ones. Also if the graph's results differ from the model's.
    fn record_onnx<O: ForwardOutputs>(
        &self,
        export: &Export,
        forward: impl Fn(&[Tensor]) -> Result<O>,
    ) -> Result<Graph> {
        let run = |inputs: &[Tensor]| forward(inputs).map(ForwardOutputs::into_tensors);
        record(&self, export, &run)
    }
}

impl<M: Module<AnyBackend> + ?Sized> ExportOnnx for M {}

impl Export {
    /// Records a model whose backend is chosen at compile time: `build` makes the same model on [`Onnx`], and its
    /// parameters get the values of `state`. The result is not compared with the model.
    ///
    /// ```
    /// use polygrad_nn::{Linear, Module};
    /// use polygrad_onnx::{Export, Input};
    /// # use polygrad_cpu::Cpu;
    /// use polygrad_tensor::{DType, Device};
    ///
    /// # fn main() -> polygrad_tensor::Result<()> {
    /// let model = Linear::new(4, 2, &Device::<Cpu>::default())?;
    /// let export = Export::new([Input::new("x", DType::F32, ("batch", 4))]);
    /// let graph = export.record_typed(
    ///     &model.state_dict()?,
    ///     |device| Linear::new(4, 2, device),
    ///     |model, x| model.forward(&x[0]),
    /// )?;
    /// assert_eq!(graph.body.nodes[0].op_type, "Gemm");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ExportOnnx::record_onnx`], and if the state does not fit the model.
    pub fn record_typed<M: Module<Onnx>, O: ForwardOutputs<Onnx>>(
        &self,
        state: &StateDict,
        build: impl FnOnce(&Device<Onnx>) -> Result<M>,
        forward: impl FnOnce(&M, &[Tensor<Onnx>]) -> Result<O>,
    ) -> Result<Graph> {
        self.verify()?;
        let shapes: Vec<Shape> = state.iter().map(|(_, host)| *host.shape()).collect();
        let recording = begin(self, &shapes, LARGEST)?;
        let model = build(&Device::from_inner(recording.clone()))?;
        model.load_state_dict(state, true)?;
        let _mode = Evaluation::of(&model);
        for (name, param) in model.named_parameters() {
            recording.state().set_name(param.tensor().inner().id, &name);
        }
        for (name, buffer) in model.named_buffers() {
            recording.state().set_name(buffer.tensor().inner().id, &name);
        }
        let inputs = enter(self, &recording)?;
        let tensors: Vec<_> = inputs.into_iter().map(Tensor::from_inner).collect();
        let outputs = no_grad(|| forward(&model, &tensors)).map_err(|e| explained(e, &recording))?;
        let outputs: Vec<OnnxTensor> = outputs.into_tensors().iter().map(|x| x.inner().clone()).collect();
        leave(self, &recording, &outputs)
    }
}

/// A forward pass.
type Run<'a> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'a;

fn record(model: &dyn Module<AnyBackend>, export: &Export, forward: &Run<'_>) -> Result<Graph> {
    export.verify()?;
    let _mode = Evaluation::of(model);
    let run = |inputs: &[Tensor]| no_grad(|| forward(inputs));
    let home = home(model)?;
    let mut first = None;
    for cap in CAPS {
        let outcome = match &home {
            Some(home) => {
                let away = Away { model, home };
                let graph = trace(model, export, cap, &run);
                away.back().and(graph)
            }
            None => trace(model, export, cap, &run),
        };
        match outcome {
            Ok(graph) => {
                if export.check {
                    let nowhere = || Device::from_inner(ReferenceDevice::erased());
                    verify(export, &graph, &home.unwrap_or_else(nowhere), run)?;
                }
                return Ok(graph);
            }
            // The number may be too large for the model; a smaller one is tried if there is a choice.
            Err(error) if error.kind() == ErrorKind::OutOfRange && has_choice(export) => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(first.unwrap_or_else(|| Error::invalid("the model was not recorded")))
}

/// Whether a symbol without a bound may stand for another number.
fn has_choice(export: &Export) -> bool {
    export
        .symbols()
        .iter()
        .any(|name| *export.range(name).end() == usize::MAX)
}

/// The device of a model; `None` if it has no parameters and buffers.
fn home(model: &dyn Module<AnyBackend>) -> Result<Option<Device>> {
    let params = model.named_parameters();
    let buffers = model.named_buffers();
    let devices = params.iter().map(|(_, param)| param.tensor().device());
    let mut devices = devices.chain(buffers.iter().map(|(_, buffer)| buffer.tensor().device()));
    let first = devices.next();
    if let Some(first) = &first
        && let Some(other) = devices.find(|device| device != first)
    {
        return Err(
            Error::new(ErrorKind::Device, format!("the model is on {first} and on {other}"))
                .with_hint("move it to one device with to_device before the export"),
        );
    }
    Ok(first)
}

/// Records one forward pass. The caller moves the model back.
fn trace(model: &dyn Module<AnyBackend>, export: &Export, cap: usize, run: &Run<'_>) -> Result<Graph> {
    let params = model.named_parameters();
    let buffers = model.named_buffers();
    let tensors = || {
        let params = params.iter().map(|(name, param)| (name, param.tensor()));
        params.chain(buffers.iter().map(|(name, buffer)| (name, buffer.tensor())))
    };
    // The shapes that `to_device` records: settled parts of a model have others.
    let shapes = params.iter().map(|(_, param)| param.shape());
    let shapes: Vec<Shape> = shapes.chain(buffers.iter().map(|(_, buffer)| buffer.shape())).collect();
    let recording = begin(export, &shapes, cap)?;
    model.to_device(&Device::<Onnx>::from_inner(recording.clone()).into_any())?;
    for (name, tensor) in tensors() {
        recording.state().set_name(recorded(&tensor)?.id, name);
    }
    let inputs = enter(export, &recording)?;
    let inputs: Vec<Tensor> = inputs
        .into_iter()
        .map(|x| Tensor::from_inner(AnyTensor::new::<Onnx>(x)))
        .collect();
    let hook = {
        let recording = recording.clone();
        move |layer: &watch::Activation| {
            if let (false, Ok(input)) = (layer.is_method, recorded(&layer.input)) {
                recording.state().place_since(input.id, &layer.path);
            }
        }
    };
    let outputs = watch::with_hook(model, hook, || run(&inputs));
    let outputs = outputs.map_err(|e| explained(watch::locate(model, e), &recording))?;
    let outputs: Vec<OnnxTensor> = outputs.iter().map(|x| recorded(x).cloned()).collect::<Result<_>>()?;
    leave(export, &recording, &outputs)
}

/// A tensor of the recording.
fn recorded(x: &Tensor) -> Result<&OnnxTensor> {
    x.inner().downcast_ref::<Onnx>().ok_or_else(|| {
        Error::new(
            ErrorKind::Device,
            format!("the forward pass gives a tensor on {}", x.device()),
        )
        .with_hint("compute it from the inputs and the parameters, on their device")
    })
}

/// A recording that is ready for parameters of these shapes.
fn begin(export: &Export, shapes: &[Shape], cap: usize) -> Result<Recording> {
    // A tensor may have one axis of each symbol and two of one of them, beside the model's own axes.
    let cap = cap.min(1 << (56 / (export.symbols().len() + 1)));
    let bounds = export.symbols().into_iter().map(|name| {
        let bound = match *export.range(&name).end() {
            usize::MAX => cap,
            bound => bound,
        };
        (name, bound)
    });
    let bounds: Vec<_> = bounds.collect();
    let fixed = export.inputs.iter().map(|input| {
        let fixed = input.dims.iter().filter_map(|dim| match dim {
            Dim::Fixed(extent) => Some(*extent),
            _ => None,
        });
        Shape::new(&fixed.collect::<Vec<_>>())
    });
    let mut shapes = shapes.to_vec();
    for shape in fixed {
        shapes.push(shape?);
    }
    let symbols = Symbols::choose(&bounds, &shapes)?;
    Ok(Recording::new(export.opset, symbols))
}

/// Creates the inputs. From then on calls are recorded.
fn enter(export: &Export, recording: &Recording) -> Result<Vec<OnnxTensor>> {
    let mut state = recording.state();
    state.loading = false;
    let mut ids = Vec::with_capacity(export.inputs.len());
    for input in &export.inputs {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Named(name) => state.symbols.value(name).unwrap_or(1),
            Dim::Unknown => 1,
        };
        let shape = Shape::new(&input.dims.iter().map(extent).collect::<Vec<_>>())?;
        ids.push(state.input(&input.name, input.dtype, shape)?);
    }
    drop(state);
    Ok(ids.into_iter().map(|id| recording.tensor(id)).collect())
}

/// The graph of the outputs.
fn leave(export: &Export, recording: &Recording, outputs: &[OnnxTensor]) -> Result<Graph> {
    let ids: Vec<_> = outputs.iter().map(|output| output.id).collect();
    let about = About {
        name: "polygrad",
        doc_string: &export.doc_string,
        outputs: &export.output_names(ids.len())?,
        fold_batch_norm: export.fold_batch_norm,
    };
    finish::graph(&mut recording.state(), &ids, &about)
}

/// An error of a forward pass, with the numbers that stood for symbols added.
fn explained(error: Error, recording: &Recording) -> Error {
    let legend = recording.state().symbols.legend();
    if legend.is_empty() {
        return error;
    }
    error.with_hint(format!(
        "while the model was recorded, {legend}; Export::bound says how large they may be"
    ))
}

/// A model that is moved off its device; dropping this moves it back in any case.
struct Away<'a> {
    model: &'a dyn Module<AnyBackend>,
    home: &'a Device,
}

impl Away<'_> {
    fn back(self) -> Result<()> {
        let moved = self.model.to_device(self.home);
        std::mem::forget(self);
        moved
    }
}

impl Drop for Away<'_> {
    /// Reached only if the forward pass panicked.
    fn drop(&mut self) {
        let _ = self.model.to_device(self.home);
    }
}
