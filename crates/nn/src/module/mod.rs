//! Models: values with parameters, buffers and a mode, that can be visited by name.

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

/// A layer or a model: parameters, buffers and modules inside it, each under a name.
///
/// `#[derive(Module)]` writes [`Visit`] and `Module` for a struct whose fields are [`Param`]s, [`Buffer`]s, modules
/// (also in `Option`, `Vec`, `Box`, arrays and tuples) and plain data, and for an enum whose variants hold one module
/// each. Names are PyTorch's: field names joined by dots, indices for the elements of a `Vec`, an array or a tuple, as
/// in `layers.0.weight`. The module runs on the backend that one of its type parameters names by the bound `Backend`;
/// without one, on `AnyBackend`. Attributes:
///
/// - `#[module(skip)]` on a field: it holds nothing to visit. Needed for types that do not implement [`Visit`].
/// - `#[module(rename = "name")]` on a field: another name than the field's.
/// - `#[module(unused = "name")]` on the type: a tensor that files of others have here and nobody needs, which loading
///   passes over.
/// - `#[module(forward)]` on the type: writes [`Forward`], too, by the type's own method `forward` from one tensor to
///   one tensor.
/// - `#[module(backend = Type)]` on the type: the backend, where no parameter says it.
/// - `#[module(crate = path)]` on the type: where this crate is found, where it is neither `polygrad_nn` nor
///   `polygrad::nn`.
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
/// With a type parameter, `struct Mlp<B: Backend> { fc1: Linear<B>, … }`, the backend is chosen when the program is
/// compiled.
///
/// What has nothing to visit and does not say so is an error of the compiler, which names the way out:
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
    /// All parameters, frozen ones too, each once even where two modules share it.
    ///
    /// This names them: a parameter that has no name yet takes the one that it has here, or all of them where it stands
    /// at several places, so call it on the whole model first.
    fn parameters(&self) -> Vec<Param<B>> {
        self.named_parameters().into_iter().map(|(_, param)| param).collect()
    }

    /// [`Module::parameters`] with their names.
    fn named_parameters(&self) -> Vec<(String, Param<B>)> {
        walk::named_parameters(&self)
    }

    /// All buffers with their names.
    fn named_buffers(&self) -> Vec<(String, Buffer<B>)> {
        walk::named_buffers(&self)
    }

    /// Number of elements of all parameters together; shared ones count once.
    fn num_parameters(&self) -> usize {
        walk::num_parameters(&self)
    }

    /// Switches the module and all in it to training: dropout drops, batch normalisation uses the batch's statistics.
    fn train(&self) {
        walk::set_mode(&self, true);
    }

    /// Switches the module and all in it to evaluation.
    fn eval(&self) {
        walk::set_mode(&self, false);
    }

    /// Makes all parameters trainable, or freezes them: no gradient flows into a frozen one, and optimizers leave it
    /// alone.
    fn requires_grad(&self, trainable: bool) {
        walk::set_trainable(&self, trainable);
    }

    /// Freezes parameters by name; gives how many. A name is that of a parameter, or of a module, all of whose
    /// parameters it stands for: whole, as in `encoder.layers.0`, or its end, as in `layers.0` or `bias`, and a `*` in
    /// it stands for any characters.
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
    /// When a name fits nothing; nothing has changed then.
    fn freeze<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Result<usize>
    where
        Self: Sized,
    {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        names::set_trainable_of(&self, &names, false)
    }

    /// Makes parameters trainable that have these names, as for [`Module::freeze`]; gives how many.
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

    /// The values of all parameters and buffers by name, as they are now: a later step does not change them.
    ///
    /// # Errors
    /// When a device fails.
    fn state_dict(&self) -> Result<StateDict> {
        walk::state_dict(&self)
    }

    /// Sets parameters and buffers to the values of a state dict: all, or none when there is an error. Values take the
    /// dtype that the module has. Where `strict` is false, names that only one side has are left alone and reported. Of
    /// the names of a shared parameter one is enough, as files that store it once have it. Buffers that the module's
    /// counterpart in PyTorch writes and nobody needs, such as BERT's `position_ids`, are passed over;
    /// `LayerNorm.gamma` and `LayerNorm.beta`, in BERT's first files, are weight and bias.
    ///
    /// Each parameter changes as a whole, but one after the other: a forward pass on another thread may meanwhile see
    /// some that are new and some that are old. A model in service is replaced as a whole by [`Served`].
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`](polygrad_tensor::ErrorKind::StateDict), which lists all missing and unexpected names
    /// (if `strict`), all of another shape or kind of dtype, and all of one shared parameter with different values.
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

    /// Loads a safetensors file into the module, which must fit it exactly. Other threads must leave the model alone
    /// meanwhile, or hold it as
    /// [`Served`]: see [`Module::load_state_dict`].
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

    /// What the model consists of: its modules with the shapes of their outputs, parameters and floating-point
    /// operations, found by running `forward` once, without gradients and in evaluation; each module's mode is put back
    /// afterwards.
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

    /// Converts all parameters and floating-point buffers to a dtype: all, or none when there is an error. Make
    /// optimizers afterwards. Other threads must leave the model alone meanwhile.
    ///
    /// # Errors
    /// When the dtype is no float, or the backend does not have it.
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        load::to_dtype(&self, dtype)
    }

    /// Moves all parameters and buffers to another device: all, or none when there is an error. With `AnyBackend`, as
    /// without type parameters, it may be one of another backend. An optimizer made before goes along: what it
    /// remembers follows its parameters. Other threads must leave the model alone meanwhile.
    ///
    /// # Errors
    /// When a device fails, or does not have a dtype of the module.
    fn to_device(&self, device: &Device<B>) -> Result<()> {
        load::to_device(&self, device)
    }
}

/// A module from one tensor to one tensor: what [`Sequential`](crate::Sequential) holds.
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
