"""Models for training and inference."""

from __future__ import annotations

from . import _data
from ._interrupt import Interruptible
from ._polygrad import Model as _Core
from ._polygrad import Server

# Importing `typing` would take as long as everything else; type checkers know this name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Any

    import numpy as np

    from ._polygrad import Communicator


def _names(names: str | Sequence[str]) -> list[str]:
    """Several names, or a single one."""
    return [names] if isinstance(names, str) else list(names)


class History:
    """The summary of a training, returned by :meth:`Model.fit`.

    Attributes:
        epochs: The arguments of callbacks after each epoch, in order.
        rows: Every measurement, oldest first: ``split`` (``"train"`` or ``"validation"``), ``step``, ``epoch``,
            ``loss``, the metrics, ``learning_rate`` and ``seconds``. A resumed run includes all earlier measurements.
        ended: ``"done"``, ``"early_stopping"``, or ``"stopped"`` by a callback.
        steps: Steps of the optimizer, including those before a resume.
        seconds: Elapsed seconds, including those before a resume.
        best: The lowest loss on the validation data; None without such data.
    """

    def __init__(self, epochs: list[dict[str, Any]], told: dict[str, Any]) -> None:
        self.epochs = epochs
        self.rows: list[dict[str, Any]] = told["rows"]
        self.ended: str = told["ended"]
        self.steps: int = told["steps"]
        self.seconds: float = told["seconds"]
        self.best: float | None = told["best"]

    def __repr__(self) -> str:
        return f"polygrad.History({self.ended} after {self.steps} steps, {self.seconds:.1f} s)"


class Quantized:
    """The result of :meth:`Model.quantize`.

    Attributes:
        model: The model in 8 bits.
        layers: The layers that can be quantized, in order: ``name`` and ``op`` of the node, ``snr``, the
            signal-to-noise ratio of its result in decibels (20 is an error of a tenth, 40 of a hundredth), and
            ``left_out``, the reason why it stayed in float32, or None.
    """

    def __init__(self, model: Model, layers: list[dict[str, Any]]) -> None:
        self.model, self.layers = model, layers

    def __repr__(self) -> str:
        count = [layer["left_out"] for layer in self.layers].count(None)
        return f"polygrad.Quantized({count} of {len(self.layers)} layers, {self.model!r})"


class Model:
    """A model for training and inference.

    :meth:`load` reads one; :meth:`mlp`, :meth:`lenet`, :meth:`resnet` and :meth:`vit` create new ones. Several threads
    may use it at once; one of them may train it, and the others see its new weights after the training.
    """

    __slots__ = ("_columns", "_core")

    _core: _Core
    _columns: _data.Columns

    @staticmethod
    def _of(core: _Core, columns: list[Any] | None = None) -> Model:
        made = Model.__new__(Model)
        made._core, made._columns = core, _data.Columns(columns)
        return made

    def __init__(self) -> None:
        raise TypeError("a model is made by Model.load, Model.mlp, Model.lenet, Model.resnet or Model.vit")

    def __repr__(self) -> str:
        return repr(self._core)

    def __copy__(self) -> Model:
        import copy

        # Its own weights, since a training changes them in place.
        return copy.deepcopy(self)

    # Creation.

    @staticmethod
    def load(path: str | PathLike[str], /) -> Model:
        """Loads an ONNX file, a folder written by ``fit(out=…)`` or the command ``polygrad train``, or a folder in the
        Hub's format, with ``config.json``, weights and for texts ``tokenizer.json``.

        The Hub's models may be BERT (with ``1_Pooling`` of sentence-transformers, it supports :meth:`embed`), GPT-2,
        Llama, Mistral and Qwen2 (which support :meth:`generate`), T5, and torchvision's ResNet and ViT. These cannot
        be trained here. Use ``polygrad.rl.Policy.load`` for folders of ``polygrad.rl.train``.
        """
        return Model._of(_Core.load(path))

    @staticmethod
    def _built(kind: str, config: Any, seed: int) -> Model:
        import json

        return Model._of(_Core.build(json.dumps({kind: config}, default=_data.plain), seed))

    @staticmethod
    def mlp(
        inputs: int, outputs: int, *, hidden: Sequence[int] = (64, 64), activation: str = "relu", seed: int = 0
    ) -> Model:
        """A new network of linear layers: ``[n, inputs]`` to ``[n, outputs]``, float32.

        Its weights are initialized like PyTorch's, with ``seed``, and have the names of PyTorch's
        ``nn.Sequential(Linear, ReLU, …)``. ``activation`` is ``"relu"``, ``"leaky_relu"``, ``"elu"``, ``"gelu"``,
        ``"gelu_new"``, ``"silu"``, ``"tanh"`` or ``"sigmoid"``.
        """
        sizes = [inputs, *hidden, outputs]
        return Model._built("mlp", {"sizes": sizes, "activation": activation}, seed)

    @staticmethod
    def lenet(outputs: int, *, channels: int = 1, image_size: Sequence[int] = (28, 28), seed: int = 0) -> Model:
        """A new small convolutional network: images ``[n, channels, height, width]``, float32, to ``[n, outputs]``."""
        config = {"in_channels": channels, "image_size": list(image_size), "num_classes": outputs}
        return Model._built("lenet", config, seed)

    @staticmethod
    def resnet(
        outputs: int,
        *,
        layers: Sequence[int] = (2, 2, 2, 2),
        channels: int = 3,
        width: int = 64,
        image_size: Sequence[int] = (224, 224),
        small_images: bool = False,
        seed: int = 0,
    ) -> Model:
        """A new ResNet, by default ResNet-18, with torchvision's names: images ``[n, channels, height, width]``,
        float32, to ``[n, outputs]``. ``layers`` are the blocks of the four stages, ``width`` the channels of the first;
        ``small_images`` is for images such as CIFAR's, of 32×32."""
        config = {
            "layers": list(layers),
            "in_channels": channels,
            "num_classes": outputs,
            "width": width,
            "small_images": small_images,
            "zero_init_residual": False,
        }
        return Model._built("resnet", {"config": config, "image_size": list(image_size)}, seed)

    @staticmethod
    def vit(
        outputs: int,
        *,
        image_size: int = 224,
        patch_size: int = 16,
        channels: int = 3,
        layers: int = 12,
        heads: int = 12,
        hidden: int = 768,
        mlp: int = 3072,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> Model:
        """A new vision transformer, by default ViT-B/16, with torchvision's names: images
        ``[n, channels, image_size, image_size]``, float32, to ``[n, outputs]``. ``hidden`` is the width of the vectors,
        ``mlp`` the width between the two linear layers of an MLP block."""
        config = {
            "image_size": image_size,
            "patch_size": patch_size,
            "in_channels": channels,
            "num_layers": layers,
            "num_heads": heads,
            "hidden_dim": hidden,
            "mlp_dim": mlp,
            "dropout": dropout,
            "num_classes": outputs,
        }
        return Model._built("vit", config, seed)

    # Properties.

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs that :meth:`run` needs, in order."""
        return self._core.input_names

    @property
    def optional_input_names(self) -> list[str]:
        """Names of the inputs that may be omitted."""
        return self._core.optional_input_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return self._core.output_names

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata, texts by name."""
        return self._core.metadata

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the weights and statistics by PyTorch's names; for an ONNX file, of those that training changes."""
        return self._core.state_dict()

    def load_state_dict(self, weights: Mapping[str, Any]) -> None:
        """Sets all values of :meth:`state_dict`, from NumPy arrays or PyTorch tensors."""
        self._core.load_state_dict(dict(weights))

    # Use.

    def run(self, inputs: Mapping[str, Any] | Sequence[Any] | Any, /) -> dict[str, np.ndarray]:
        """Runs the model, and returns NumPy arrays by the names of the outputs.

        ``inputs`` are arrays by name, or a tuple or list of them in the order of ``input_names``, or for a model of one
        input the array. An array is any object that has ``__dlpack__`` in the memory of the CPU, or that NumPy converts
        to an array. It is read without a copy, while other threads of Python continue, and must not be written to
        meanwhile. Its dtype must be the model's. A model of texts takes and returns lists of ``str``.
        """
        return self._core.run(self._arranged(inputs))

    def embed(self, texts: Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """A vector for each text, ``[n, width]``, float32, from a model in the format of sentence-transformers."""
        if isinstance(texts, str):
            raise TypeError("embed takes a list of texts, and this is one: give [text]")
        return self._core.embed(list(texts), batch_size)

    def generate(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        stream: Callable[[str], Any] | None = None,
    ) -> str:
        """The text that a language model writes after a text, or as its answer in a chat.

        Args:
            prompt: The text, or the messages of a chat, each with ``role`` and ``content``.
            max_tokens: The most tokens that are written.
            temperature: The divisor of logits; 0 always takes the likeliest token.
            top_p: Samples from the likeliest tokens whose probabilities add up to this.
            top_k: Samples from this many of the likeliest tokens. Default: all.
            min_p: Samples from tokens whose probability is at least this share of the highest one.
            repetition_penalty: Above 1, tokens that already occur become less likely.
            seed: Seed of the random numbers. Default: a different one each time.
            stop: The text ends before any of these.
            stream: Called with each piece of the text as it is written; returning ``False`` ends the text.
        """
        import json

        order = {
            "prompt": prompt if isinstance(prompt, str) else json.dumps([dict(message) for message in prompt]),
            "is_chat": not isinstance(prompt, str),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "seed": seed,
            "stop": [stop] if isinstance(stop, str) else list(stop),
            "piece": stream,
        }
        text, _ = self._core.generate(order)
        return text

    def export(self, path: str | PathLike[str], /) -> None:
        """Writes an ONNX file, or the :meth:`state_dict` if the path ends in ``.safetensors``."""
        self._core.export(path)

    def quantize(
        self,
        x: Any = None,
        *,
        int8: str = "static",
        calibration: str = "minmax",
        percentile: float | None = None,
        per_channel: bool = False,
        skip: Sequence[str] = (),
        min_snr: float | None = None,
        batch_size: int = 64,
    ) -> Quantized:
        """The model with 8-bit integer products, and the loss of accuracy of each layer.

        Args:
            x: A few hundred rows of inputs, in the form of :meth:`fit`, from which ranges and losses are computed.
            int8: ``"static"``, with ranges from ``x``, or ``"dynamic"``, with ranges that are computed in each run.
            calibration: How static ranges are computed from ``x``: ``"minmax"``, ``"percentile"`` or ``"mse"``.
            percentile: The percentile for ``"percentile"``. Default: 99.99.
            per_channel: Whether weights have a scale for each output channel.
            skip: Layers that stay in float32: names of nodes, with ``*`` for any text.
            min_snr: Layers also stay in float32 if their result has a signal-to-noise ratio below this, in decibels.
            batch_size: Rows computed at a time.
        """
        import json

        settings = {
            "int8": int8,
            "calibration": calibration,
            "percentile": percentile,
            "per_channel": per_channel,
            "skip": _names(skip),
            "min_snr": min_snr,
            "batch_size": batch_size,
        }
        inputs = [] if x is None else _data.inputs(x, self.input_names, self._known())
        core, layers = self._core.quantize(json.dumps(settings, default=_data.plain), inputs)
        return Quantized(Model._of(core, self._columns.names), layers)

    def serve(
        self, *, name: str = "model", host: str = "127.0.0.1", port: int = 0, threads: int | None = None
    ) -> Server:
        """Serves the model with its current weights over HTTP and gRPC in threads of this process, by the Open
        Inference Protocol and, for texts, by OpenAI's API.

        The server ends with ``stop()`` of the returned object, at the end of its ``with`` block, or with the process.

        Args:
            name: The model's name in requests: ``POST {url}/v2/models/{name}/infer``.
            host: An IP address of this machine. Default: only accepts requests from this machine.
            port: Default: a free one.
            threads: Requests that are computed at the same time. Default: one per core.
        """
        import os

        return self._core.serve(name, host, port, threads or os.cpu_count() or 1)

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        learning_rate: float = 1e-3,
        optimizer: str = "adamw",
        loss: str = "cross_entropy",
        metrics: Sequence[str] = (),
        validation: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        schedule: str = "constant",
        weight_decay: float | None = None,
        momentum: float | None = None,
        clip_grad_norm: float | None = None,
        accumulate: int = 1,
        early_stopping: int | None = None,
        restore_best: bool = False,
        freeze: Sequence[str] = (),
        callbacks: Iterable[Callable[[dict[str, Any]], bool | None]] = (),
        log_every: int | None = None,
        progress: bool = False,
        out: str | PathLike[str] | None = None,
        resume: bool = False,
        communicator: Communicator | None = None,
    ) -> History:
        """Trains the model, and returns a summary. Steps run in Rust, while other threads of Python continue.

        A network created here uses dropout and batch normalization in training mode. An ONNX file is trained unchanged,
        with its batch normalization statistics as constants, on its first output.

        Args:
            x: An array whose rows are examples: of NumPy, or any object that has ``__dlpack__`` on the CPU; a tuple or
                a dict of arrays for several inputs; a table of pandas or Arrow. Or, without ``y``, an iterable of
                batches ``(x, y)`` that restarts in each epoch, such as a ``DataLoader`` of PyTorch. Inputs are
                converted to the model's dtypes, and must not be written to meanwhile.
            y: The targets, row by row; or the name of a column of the table ``x``, or of the tables in the iterable
                ``x``, which is a number if columns have no names; all other columns are the inputs.
            epochs: Passes over all examples, including those before a resume.
            learning_rate: The learning rate of the first step.
            optimizer: ``"adamw"``, ``"adam"``, ``"sgd"``, ``"rmsprop"``, ``"adagrad"`` or ``"lion"``, with PyTorch's
                defaults.
            loss: ``"cross_entropy"`` of logits and class indices or probabilities, ``"bce_with_logits"``, ``"mse"``,
                ``"l1"``, ``"smooth_l1"`` or ``"huber"``, as in PyTorch: means over the batch. For outputs
                ``[n, 1]``, targets may be ``[n]``.
            metrics: Further measurements: ``"accuracy"``, ``"f1"``, ``"precision"``, ``"recall"``, ``"auroc"``,
                ``"mae"``, ``"mse"``, ``"rmse"`` or ``"r2"``.
            validation: The data for an evaluation after each epoch: a tuple of ``x`` and ``y``, an iterable of
                batches, or a table if ``y`` names a column.
            batch_size: Examples in a batch, if ``x`` is not batches.
            shuffle: Whether each epoch has a new random order, if ``x`` is not batches.
            seed: Seed of all randomness.
            schedule: ``"constant"``, or a rate that falls to 0 at the end: ``"linear"``, or half a ``"cosine"``.
            weight_decay: The optimizer's weight decay. Default: PyTorch's, 0.01 for adamw and 0 for others.
            momentum: The momentum of sgd or rmsprop. Default: 0.
            clip_grad_norm: The largest norm of all gradients together. Default: no limit.
            accumulate: Batches whose gradients are accumulated for a step.
            early_stopping: Epochs without a better validation loss that end the training. Default: no limit.
            restore_best: Whether the model gets the weights of the lowest validation loss.
            freeze: Weights that are not trained: their names, or those of modules, with ``*`` for any text.
            callbacks: Each is called after each epoch with a dict of ``epoch``, ``epochs``, ``steps``, ``total_steps``,
                ``seconds``, ``learning_rate``, ``loss`` and the metrics over the epoch, and for validation data
                ``validation_loss`` and so on. Returning ``False`` stops the training.
            log_every: Steps between two training rows of :class:`History`. Default: a tenth of an epoch.
            progress: Whether to print a line for each epoch.
            out: A folder for the model, a checkpoint and all measurements, which must not hold a run yet;
                :meth:`load` reads it. Default: nothing is written.
            resume: Continue from the checkpoint in ``out``, with the same data and settings, as if it had not stopped.
            communicator: The group of processes that train together, such as ``polygrad.communicator.mpi()``. Each
                passes the same model, arrays and settings, and takes a part of every batch, so that a step sees
                ``batch_size`` examples of each. The first one keeps ``out`` and prints.

        Raises:
            polygrad.Error: If data or settings do not fit, a loss is not finite, or a folder cannot be written. The
                model is then unchanged.
            KeyboardInterrupt: After Ctrl-C, once the running step is over; the model keeps what it has learned so
                far, and with ``out`` there is a checkpoint. A second Ctrl-C ends at once.
            Exception: Exceptions of callbacks and iterables, unchanged.
        """
        import json
        import os

        if resume and out is None:
            raise ValueError("resume=True goes on from the checkpoint in out: give the folder")
        settings = {
            "epochs": epochs,
            "learning_rate": learning_rate,
            "schedule": schedule,
            "optimizer": optimizer,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "loss": loss,
            "metrics": _names(metrics),
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "clip_grad_norm": clip_grad_norm,
            "accumulate": accumulate,
            "early_stopping": early_stopping,
            "restore_best": restore_best,
            "log_every": log_every,
            "freeze": _names(freeze),
        }
        columns = self._known()
        train = _data.given(x, y, self.input_names, columns)
        callbacks, seen = list(callbacks), []
        with Interruptible() as interrupt:

            def told(known: dict[str, Any] | None) -> bool:
                stops = False
                if known is not None:
                    seen.append(known)
                    stops = any([callback(dict(known)) is False for callback in callbacks])
                return interrupt.asked or stops

            order = {
                "settings": json.dumps(settings, default=_data.plain),
                "train": train,
                "validation": None if validation is None else self._judging(validation, y, columns),
                "batches": train.length() if isinstance(train, _data.Batches) else None,
                "out": None if out is None else os.fspath(out),
                "resume": bool(resume),
                "progress": bool(progress),
                "communicator": communicator,
                "told": told,
            }
            history = History(seen, self._core.fit(order))
            self._columns = columns
            interrupt.stopped(out)
        return history

    def _judging(self, data: Any, y: Any, columns: _data.Columns) -> Any:
        if _data.is_column(y):
            return _data.given(data, y, self.input_names, columns)
        if isinstance(data, tuple) and len(data) == 2:
            return _data.given(*data, self.input_names, columns)
        return _data.given(data, None, self.input_names, columns)

    def _arranged(self, inputs: Any) -> Any:
        """Inputs with the columns of tables in the order in which they were learnt from."""
        if not self._columns.names:
            return inputs
        if _data.column_names(inputs):
            return self._known().numbers(inputs)
        if isinstance(inputs, dict):
            return {name: self._arranged(value) for name, value in inputs.items()}
        return inputs

    def _known(self) -> _data.Columns:
        """The columns of the last training, which only a training changes."""
        return _data.Columns(self._columns.names)

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        *,
        loss: str = "cross_entropy",
        metrics: Sequence[str] = (),
        batch_size: int = 32,
    ) -> dict[str, float]:
        """The mean loss over all examples and the metrics, by name; ``x``, ``y``, ``loss`` and ``metrics`` are those
        of :meth:`fit`."""
        import json

        settings = {"loss": loss, "metrics": _names(metrics), "batch_size": batch_size}
        return self._core.evaluate(json.dumps(settings), _data.given(x, y, self.input_names, self._known()))
