//! Models: values with parameters, buffers and a mode, which can be visited by name.

mod average;
mod buffer;
pub mod derive;
mod evaluation;
mod fields;
mod load;
mod mode;
mod names;
mod param;
mod served;
mod state;
mod summary;
mod trained;
mod visit;
mod walk;

use std::path::Path;

use polygrad_tensor::{AnyBackend, Backend, DType, Device, Result, Tensor};

pub use buffer::Buffer;
pub(crate) use buffer::deinterleaved;
pub use evaluation::Evaluation;
pub use load::LoadReport;
pub(crate) use load::Target;
pub use mode::Mode;
pub(crate) use names::{Names, fits};
pub use param::Param;
pub use served::Served;
pub use state::StateDict;
pub use summary::{Summary, SummaryRow};
pub use trained::Trained;
pub use visit::{Item, ModuleId, Visit, Visitor};

/// A layer or a model: parameters, buffers and inner modules, each under a name.
///
/// `#[derive(Module)]` implements [`Visit`] and `Module` for a struct whose fields are [`Param`]s, [`Buffer`]s, modules
/// (also in `Option`, `Vec`, `Box`, arrays and tuples) and plain data, and for an enum whose variants hold one module
/// each. Names are PyTorch's: field names joined by dots, and indices for the elements of a `Vec`, an array or a tuple,
/// as in `layers.0.weight`. The module runs on the backend given by the type parameter with the bound `Backend`; if
/// there is none, on `AnyBackend`. Attributes:
///
/// - `#[module(skip)]` on a field: it contains nothing to visit. Needed for types that do not implement [`Visit`].
/// - `#[module(rename = "name")]` on a field: a name other than the field's.
/// - `#[module(unused = "name")]` on the type: a tensor that files of other libraries have here but that is not needed;
///   loading ignores it.
/// - `#[module(forward)]` on the type: also implements [`Forward`], by the type's own method `forward` from one tensor
///   to one tensor.
/// - `#[module(backend = Type)]` on the type: the backend, if no type parameter gives it.
/// - `#[module(crate = path)]` on the type: the path of this crate, if it is neither `polygrad_nn` nor `polygrad::nn`.
///
/// ```
/// use polygrad_nn::{Linear, Module};
/// use polygrad_tensor::{Device, Result, Tensor};
///
/// #[derive(Module)]
/// #[module(forward)]
/// struct Mlp {
///     fc1: Linear,
///     fc2: Linear,
/// }
///
/// impl Mlp {
///     fn new(device: &Device) -> Result<Self> {
///         Ok(Self { fc1: Linear::new(784, 128, device)?, fc2: Linear::new(128, 10, device)? })
///     }
///
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.fc2.forward(&self.fc1.forward(x)?.relu()?)
///     }
/// }
/// ```
///
/// With a type parameter, `struct Mlp<B: Backend> { fc1: Linear<B>, … }`, the backend is chosen at compile time.
///
/// A field with nothing to visit and without `skip` is a compile error that says how to fix it:
///
/// ```compile_fail,E0277
/// #[derive(polygrad_nn::Module)]
/// struct Model {
///     file: std::fs::File,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module on the backend `{B}`",
    label = "does not implement `Module<{B}>`",
    note = "put #[derive(Module)] on it"
)]
pub trait Module<B: Backend = AnyBackend>: Visit<B> {
    /// All parameters, including frozen ones, each once even if two modules share it.
    ///
    /// This also names them: a parameter without a name gets its name here, or all of its names if it is at several
    /// places. So call this on the whole model first.
    fn parameters(&self) -> Vec<Param<B>> {
        self.named_parameters().into_iter().map(|(_, param)| param).collect()
    }

    /// [`Module::parameters`] with names.
    fn named_parameters(&self) -> Vec<(String, Param<B>)> {
        walk::named_parameters(&self)
    }

    /// All buffers with names.
    fn named_buffers(&self) -> Vec<(String, Buffer<B>)> {
        walk::named_buffers(&self)
    }

    /// Total number of elements of all parameters; shared ones count once.
    fn num_parameters(&self) -> usize {
        walk::num_parameters(&self)
    }

    /// Switches the module and all inner modules to training: dropout drops, batch normalisation uses the batch's
    /// statistics.
    fn train(&self) {
        walk::set_mode(&self, true);
    }

    /// Switches the module and all inner modules to evaluation.
    fn eval(&self) {
        walk::set_mode(&self, false);
    }

    /// Makes all parameters trainable, or freezes them: frozen parameters get no gradient, and optimizers skip them.
    fn requires_grad(&self, trainable: bool) {
        walk::set_trainable(&self, trainable);
    }

    /// Freezes parameters by name; returns how many. A name is that of a parameter, or of a module with all its
    /// parameters. It may be complete, as in `encoder.layers.0`, or the end of a name, as in `layers.0` or `bias`; `*`
    /// matches any characters.
    ///
    /// ```
    /// # use polygrad_nn::{Linear, Module, ReLU, Sequential};
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Result};
    /// # fn main() -> Result<()> {
    /// # let device = Device::<Reference>::default();
    /// let (body, head) = (Linear::new(4, 8, &device)?, Linear::new(8, 2, &device)?);
    /// let model = Sequential::new().push(body).push(ReLU).push(head);
    /// assert_eq!(model.freeze(["*"])?, 4);
    /// assert_eq!(model.unfreeze(["2", "0.bias"])?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a name matches nothing; nothing has changed then.
    fn freeze<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Result<usize>
    where
        Self: Sized,
    {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        names::set_trainable_of(&self, &names, false)
    }

    /// Makes the parameters with these names trainable, as in [`Module::freeze`]; returns how many.
    ///
    /// # Errors
    /// As [`Module::freeze`].
    fn unfreeze<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Result<usize>
    where
        Self: Sized,
    {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        names::set_trainable_of(&self, &names, true)
    }

    /// A copy of the values of all parameters and buffers by name; later steps do not change it.
    ///
    /// # Errors
    /// When a device fails.
    fn state_dict(&self) -> Result<StateDict> {
        walk::state_dict(&self)
    }

    /// Sets parameters and buffers to the values of a state dict: all, or none if there is an error. Values are
    /// converted to the module's dtype. If `strict` is false, names that only one side has are ignored and reported. A
    /// shared parameter needs only one of its names, since some files store it once. Buffers that the module's
    /// counterpart in PyTorch saves but that are not needed, such as BERT's `position_ids`, are ignored.
    /// `LayerNorm.gamma` and `LayerNorm.beta`, as in BERT's first files, are weight and bias.
    ///
    /// Each parameter changes as a whole, but they change one after another, so a forward pass on another thread may
    /// see a mixture of old and new ones. [`Served`] replaces a model in use as a whole.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`](polygrad_tensor::ErrorKind::StateDict), which lists all missing and unexpected names
    /// (if `strict`), all values of another shape or kind of dtype, and all shared parameters with contradictory
    /// values.
    fn load_state_dict(&self, state: &StateDict, strict: bool) -> Result<LoadReport> {
        load::load(&self, state, strict)
    }

    /// Writes the state dict to a safetensors file, as [`StateDict::save`] does.
    ///
    /// # Errors
    /// When a device fails, or the file cannot be written.
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        self.state_dict()?.save(path)
    }

    /// Loads a safetensors file into the module, which must fit it exactly. Other threads must not use the model
    /// meanwhile, or must hold it as [`Served`]: see [`Module::load_state_dict`].
    ///
    /// # Errors
    /// As [`StateDict::load`] and [`Module::load_state_dict`].
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        let path = path.as_ref();
        let state = StateDict::load(path)?;
        self.load_state_dict(&state, true)
            .map(|_| ())
            .map_err(|e| load::in_file(e, path))
    }

    /// A summary of the model: its modules with the shapes of their outputs, parameters and floating-point operations.
    /// It runs `forward` once, without gradients and in evaluation, and then restores each module's mode.
    ///
    /// ```
    /// use polygrad_nn::{Linear, Module, ReLU, Sequential};
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let device = Device::<Reference>::default();
    /// let (first, second) = (Linear::new(784, 128, &device)?, Linear::new(128, 10, &device)?);
    /// let model = Sequential::new().push(first).push(ReLU).push(second);
    /// let x = Tensor::zeros([1, 784], &device)?;
    /// let summary = model.summary(|| model.forward(&x))?;
    /// assert_eq!(summary.to_string(), "\
    /// module       output    parameters    FLOPs
    /// Sequential   [1, 10]      101,770  203,264
    ///   0: Linear  [1, 128]     100,480  200,704
    ///   1: ReLU    [1, 128]           0        0
    ///   2: Linear  [1, 10]        1,290    2,560
    /// 101,770 parameters (101,770 trainable), 407,080 bytes with buffers, 203,264 FLOPs forward");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `forward`.
    fn summary<R>(&self, forward: impl FnOnce() -> Result<R>) -> Result<Summary>
    where
        Self: Sized,
    {
        summary::summarize(self, forward)
    }

    /// Converts all parameters and floating-point buffers to a dtype: all, or none if there is an error. Create
    /// optimizers afterwards. Other threads must not use the model meanwhile.
    ///
    /// # Errors
    /// When the dtype is not a float, or the backend does not support it.
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        load::to_dtype(&self, dtype)
    }

    /// Moves all parameters and buffers to another device: all, or none if there is an error. With `AnyBackend`, the
    /// default without type parameters, it may be a device of another backend. The state of existing optimizers follows
    /// the parameters. Other threads must not use the model meanwhile.
    ///
    /// # Errors
    /// When a device fails, or does not support a dtype of the module.
    fn to_device(&self, device: &Device<B>) -> Result<()> {
        load::to_device(&self, device)
    }

    /// Moves parameters and buffers, one after another, to memory from which their device reads weights fastest: on
    /// `cpu`, huge pages, which moved weights share. Packed weights whose inputs are rounded are also
    /// [interleaved](polygrad_tensor::BlockScheme) there. For models that read all their weights for each row, such as
    /// language models that write, and are not trained any more. Values stay as they are. Other backends do nothing.
    ///
    /// [`Module::to_device`] and [`Module::to_dtype`] may undo this; the module can be settled again.
    ///
    /// # Errors
    /// When memory runs out; some weights may have moved then.
    fn settle(&self) -> Result<()> {
        load::settle(&self)
    }
}

/// A module from one tensor to one tensor: the elements of a [`Sequential`](crate::Sequential).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be called as a layer on the backend `{B}`",
    label = "does not implement `Forward<{B}>`",
    note = "a model: put #[module(forward)] below #[derive(Module)], which takes its own method `forward`",
    note = "a function: write `Lambda::new(|x| …)`"
)]
pub trait Forward<B: Backend = AnyBackend>: Module<B> + Send + Sync {
    /// The module's output for an input.
    ///
    /// # Errors
    /// When the input's shape, dtype or device does not fit the module.
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>>;
}
