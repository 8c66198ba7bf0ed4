"""Models that learn and answer."""

from __future__ import annotations

from . import _data
from ._interrupt import Interruptible
from ._polygrad import Model as _Core
from ._polygrad import Server

# `typing` takes as long to import as all else, and type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Any

    import numpy as np

    from ._polygrad import Communicator


def _plain(value: Any) -> Any:
    """A number of NumPy as JSON has it."""
    return value.item() if hasattr(value, "item") else float(value)


class History:
    """How a training went: what :meth:`Model.fit` gives.

    Attributes:
        epochs: What callbacks were told after each epoch, in order.
        rows: Every measurement, oldest first: ``split`` (``"train"`` or ``"validation"``), ``step``, ``epoch``,
            ``loss``, the metrics, ``learning_rate`` and ``seconds``. Of a run that was resumed with all of its past.
        ended: ``"done"``, ``"early_stopping"``, or ``"stopped"`` by a callback.
        steps: Steps of the optimizer, those of before a run was resumed too.
        seconds: Seconds on the clock, in the same way.
        best: The lowest loss on the validation data, if there were some.
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
    """What :meth:`Model.quantize` gives.

    Attributes:
        model: The model in 8 bits.
        layers: The layers that can be quantized, in order: ``name`` and ``op`` of the node, ``snr``, the
            signal-to-noise ratio of its result in decibels (20 is an error of a tenth, 40 of a hundredth), and
            ``left_out``, why it stayed in float32, or None.
    """

    def __init__(self, model: Model, layers: list[dict[str, Any]]) -> None:
        self.model, self.layers = model, layers

    def __repr__(self) -> str:
        count = [layer["left_out"] for layer in self.layers].count(None)
        return f"polygrad.Quantized({count} of {len(self.layers)} layers, {self.model!r})"


class Model:
    """A model that learns and answers.

    :meth:`load` reads one, :meth:`mlp`, :meth:`lenet`, :meth:`resnet` and :meth:`vit` make new ones. It is used by
    several threads at once; one of them may train it, and the others see its new weights when training is over.
    """

    __slots__ = ("_core",)

    _core: _Core

    @staticmethod
    def _of(core: _Core) -> Model:
        made = Model.__new__(Model)
        made._core = core
        return made

    def __init__(self) -> None:
        raise TypeError("a model is made by Model.load, Model.mlp, Model.lenet, Model.resnet or Model.vit")

    def __repr__(self) -> str:
        return repr(self._core)

    # Making one.

    @staticmethod
    def load(path: str | PathLike[str], /) -> Model:
        """Loads an ONNX file, the folder that ``fit(out=…)`` or the command ``polygrad train`` has left, or a folder as
        the Hub has it, with ``config.json``, weights and for texts ``tokenizer.json``.

        Of the Hub there may be BERT (with ``1_Pooling``, as sentence-transformers has it, :meth:`embed` is for it),
        GPT-2, Llama, Mistral and Qwen2 (:meth:`generate` is for them), T5, and torchvision's ResNet and ViT. These
        answer, and do not learn here. What ``polygrad.rl.train`` has left is loaded by ``polygrad.rl.Policy.load``.
        """
        return Model._of(_Core.load(path))

    @staticmethod
    def _built(kind: str, config: Any, seed: int) -> Model:
        import json

        return Model._of(_Core.build(json.dumps({kind: config}), seed))

    @staticmethod
    def mlp(
        inputs: int, outputs: int, *, hidden: Sequence[int] = (64, 64), activation: str = "relu", seed: int = 0
    ) -> Model:
        """A new network of linear layers: ``[n, inputs]`` to ``[n, outputs]``, float32.

        Its weights are drawn as PyTorch's are, by ``seed``, and have the names that they have in PyTorch's
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
        float32, to ``[n, outputs]``. ``layers`` are blocks in each of the four stages, ``width`` the channels of the
        first; ``small_images`` is for such as CIFAR's, of 32×32."""
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
        ``mlp`` that between the two linear layers of a layer."""
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

    # What it is.

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs that :meth:`run` needs, in order."""
        return self._core.input_names

    @property
    def optional_input_names(self) -> list[str]:
        """Names of the inputs that may be left out."""
        return self._core.optional_input_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return self._core.output_names

    @property
    def metadata(self) -> dict[str, str]:
        """What the file says of itself, texts by name."""
        return self._core.metadata

    def state_dict(self) -> dict[str, np.ndarray]:
        """The weights and statistics by PyTorch's names, or of an ONNX file those by which training changes it;
        copies."""
        return self._core.state_dict()

    def load_state_dict(self, weights: Mapping[str, Any]) -> None:
        """Sets all that :meth:`state_dict` gives, to arrays of NumPy or tensors of PyTorch."""
        self._core.load_state_dict(dict(weights))

    # Using it.

    def run(self, inputs: Mapping[str, Any] | Sequence[Any] | Any, /) -> dict[str, np.ndarray]:
        """Runs the model, and gives arrays of NumPy by the names of the outputs.

        ``inputs`` are arrays by name, or a tuple or list of them in the order of ``input_names``, or for a model of one
        input the array. An array is whatever has ``__dlpack__`` in the memory of the CPU, or NumPy makes one of; it is
        read where it lies, while other threads of Python go on, and must not be written to meanwhile. Its dtype is that
        which the model says. A model of texts takes and gives lists of ``str``.
        """
        return self._core.run(inputs)

    def embed(self, texts: Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """A vector for each text, ``[n, width]``, float32, of a model as sentence-transformers has it."""
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
        """What a language model writes behind a text, or as its answer in a chat.

        Args:
            prompt: The text, or the messages of a chat, each with ``role`` and ``content``.
            max_tokens: The most tokens that are written.
            temperature: What logits are divided by; 0 takes the likeliest token each time.
            top_p: Draws from the likeliest tokens whose probabilities add up to this.
            top_k: Draws from this many of the likeliest tokens. Default: all.
            min_p: Draws from tokens whose probability is at least this share of the highest one.
            repetition_penalty: Above 1, tokens that are there already become rarer.
            seed: Where chance begins. Default: anew each time.
            stop: The text ends before any of these.
            stream: Is called with each piece of the text as it is written; ``False`` ends the text.
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
        """Writes an ONNX file, or to a file that ends in ``.safetensors`` what :meth:`state_dict` gives."""
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
        """The model with its products on integers of 8 bits, and what each layer lost.

        Args:
            x: Some hundred rows of inputs, as :meth:`fit` takes them: ranges follow from them, and the losses.
            int8: ``"static"``, with ranges from ``x``, or ``"dynamic"``, with ranges that are found in each run.
            calibration: How static ranges follow from what was seen: ``"minmax"``, ``"percentile"`` or ``"mse"``.
            percentile: How much of it, of ``"percentile"``. Default: 99.99.
            per_channel: Whether weights have a scale for each output channel.
            skip: Layers that stay in float32: names of nodes, with ``*`` for any text.
            min_snr: Layers stay in float32, too, whose result has a signal-to-noise ratio below this, in decibels.
            batch_size: Rows that are computed at once.
        """
        import json

        settings = {
            "int8": int8,
            "calibration": calibration,
            "percentile": percentile,
            "per_channel": per_channel,
            "skip": list(skip),
            "min_snr": min_snr,
            "batch_size": batch_size,
        }
        inputs = [] if x is None else _data.inputs(x, self.input_names)
        core, layers = self._core.quantize(json.dumps(settings, default=_plain), inputs)
        return Quantized(Model._of(core), layers)

    def serve(
        self, *, name: str = "model", host: str = "127.0.0.1", port: int = 0, threads: int | None = None
    ) -> Server:
        """Answers over HTTP and gRPC in threads of this process, by the Open Inference Protocol and, of texts, for
        clients of OpenAI's API, with the weights that the model has now.

        It ends by ``stop()`` of what is returned, or at the end of a ``with`` block, and with the process.

        Args:
            name: What the model is called in requests: ``POST {url}/v2/models/{name}/infer``.
            host: An IP address of this machine. Default: requests come from this machine alone.
            port: Default: one that is free.
            threads: Requests that are computed at the same time. Default: one for each core.
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
        """Trains the model, and gives how that went. Steps are taken in Rust, while other threads of Python go on.

        Dropout and batch normalization of a network that was made here are those of training; an ONNX file is trained
        as it is, its statistics of batch normalization as constants, and by its first output.

        Args:
            x: An array whose rows are examples: of NumPy, or whatever has ``__dlpack__`` on the CPU; a tuple or a dict
                of such for several inputs; a table of pandas or Arrow. Or, without ``y``, an iterable of
                batches, each of them ``(x, y)``, that begins anew in each epoch, such as a ``DataLoader`` of PyTorch.
                Inputs get the dtype that the model takes, and must not be written to meanwhile.
            y: The targets, row by row; or the name of a column of the table ``x``, or of the tables that ``x`` gives:
                all other columns are the inputs.
            epochs: How often all examples are seen; those of before a run was resumed count.
            learning_rate: That of the first step.
            optimizer: ``"adamw"``, ``"adam"``, ``"sgd"``, ``"rmsprop"``, ``"adagrad"`` or ``"lion"``, with PyTorch's
                defaults.
            loss: ``"cross_entropy"`` of logits and class numbers or probabilities, ``"bce_with_logits"``, ``"mse"``,
                ``"l1"``, ``"smooth_l1"`` or ``"huber"``, as PyTorch has them: means over the batch. Of outputs
                ``[n, 1]``, targets may be ``[n]``.
            metrics: What is measured, too: ``"accuracy"``, ``"f1"``, ``"precision"``, ``"recall"``, ``"auroc"``,
                ``"mae"``, ``"mse"``, ``"rmse"`` or ``"r2"``.
            validation: What the model is judged by after each epoch: a tuple of ``x`` and ``y``, an iterable of
                batches, or a table if ``y`` names a column.
            batch_size: Examples in a batch, if ``x`` gives none.
            shuffle: Whether each epoch has an order of its own, if ``x`` gives no batches.
            seed: Where all chance begins.
            schedule: ``"constant"``, or a rate that falls to 0 at the end, ``"linear"`` or by half a ``"cosine"``.
            weight_decay: That of the optimizer. Default: PyTorch's, 0.01 for adamw and 0 for others.
            momentum: That of sgd or rmsprop. Default: 0.
            clip_grad_norm: The largest norm of all gradients together. Default: any.
            accumulate: Batches whose gradients make a step.
            early_stopping: Epochs without a better validation loss before training ends. Default: it goes on.
            restore_best: Whether the model gets the weights with which the validation loss was lowest.
            freeze: Weights that stay as they are: names, or those of modules, with ``*`` for any text.
            callbacks: Each is called after each epoch with what is known: ``epoch``, ``epochs``, ``steps``,
                ``total_steps``, ``seconds``, ``learning_rate``, ``loss`` and the metrics over the epoch, and of the
                validation data ``validation_loss`` and so on. ``False`` stops the training.
            log_every: Steps between two training rows of :class:`History`. Default: a tenth of an epoch.
            progress: Whether to print a line for each epoch.
            out: A folder for the model, a checkpoint and all measurements, which must not hold a run yet;
                :meth:`load` reads it. Default: nothing is written.
            resume: Go on from the checkpoint in ``out``, with the same data and settings: as if it had never stopped.
            communicator: That of processes that train together, as of ``polygrad.communicator.mpi()``: each of them
                gives the same model, arrays and settings, and takes a part of every batch, so that a step sees
                ``batch_size`` examples of each. The first one keeps ``out`` and prints.

        Raises:
            polygrad.Error: Data or settings that do not fit, a loss that is not finite, a folder that cannot be
                written. The model then is as before.
            KeyboardInterrupt: After Ctrl-C, once the running step is over; the model has learnt so far, and with
                ``out`` there is a checkpoint. A second Ctrl-C ends at once.
            Exception: Whatever callbacks and iterables raise, as it is.
        """
        import json

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
            "metrics": list(metrics),
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "clip_grad_norm": clip_grad_norm,
            "accumulate": accumulate,
            "early_stopping": early_stopping,
            "restore_best": restore_best,
            "log_every": log_every,
            "freeze": list(freeze),
        }
        train = _data.given(x, y, self.input_names)
        callbacks, seen = list(callbacks), []
        with Interruptible() as interrupt:

            def told(known: dict[str, Any] | None) -> bool:
                stops = False
                if known is not None:
                    seen.append(known)
                    stops = any([callback(dict(known)) is False for callback in callbacks])
                return interrupt.asked or stops

            order = {
                "settings": json.dumps(settings, default=_plain),
                "train": train,
                "validation": None if validation is None else self._judging(validation, y),
                "batches": train.length() if isinstance(train, _data.Batches) else None,
                "out": out,
                "resume": resume,
                "progress": progress,
                "communicator": communicator,
                "told": told,
            }
            history = History(seen, self._core.fit(order))
            interrupt.stopped(out)
        return history

    def _judging(self, data: Any, y: Any) -> Any:
        if isinstance(y, str):
            return _data.given(data, y, self.input_names)
        if isinstance(data, tuple) and len(data) == 2:
            return _data.given(*data, self.input_names)
        return _data.given(data, None, self.input_names)

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        *,
        loss: str = "cross_entropy",
        metrics: Sequence[str] = (),
        batch_size: int = 32,
    ) -> dict[str, float]:
        """The mean loss over all examples and the metrics, by name; ``x``, ``y``, ``loss`` and ``metrics`` are as
        :meth:`fit` has them."""
        import json

        settings = {"loss": loss, "metrics": list(metrics), "batch_size": batch_size}
        return self._core.evaluate(json.dumps(settings), _data.given(x, y, self.input_names))
