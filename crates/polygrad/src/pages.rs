//! Tests the examples in the book.

/// A type for each page, with the page as its documentation.
macro_rules! pages {
    ($($page:ident $path:literal)*) => {$(
        #[doc = include_str!(concat!("../../../docs/", $path))]
        struct $page;
    )*};
}

pages! {
    Start "tour/start.md"
    Tensors "tour/tensors.md"
    Gradients "tour/gradients.md"
    Model "tour/model.md"
    Training "tour/training.md"
    Saving "tour/saving.md"
    OtherBackends "tour/backends.md"
    Service "tour/service.md"
    Data "how-to/data.md"
    Runs "how-to/runs.md"
    Tabular "how-to/tabular.md"
    Images "how-to/images.md"
    Text "how-to/text.md"
    Sequences "how-to/sequences.md"
    Generative "how-to/generative.md"
    Serving "how-to/serving.md"
    ServingModels "how-to/serving/models.md"
    ServingLimits "how-to/serving/limits.md"
    ServingObservability "how-to/serving/observability.md"
    ServingSecurity "how-to/serving/security.md"
    ServingContainers "how-to/serving/containers.md"
    ServingLibrary "how-to/serving/library.md"
    Extending "how-to/extending.md"
    Debugging "how-to/debugging.md"
    WebAssembly "how-to/webassembly.md"
    Comparison "comparison.md"
    Models "models.md"
    Engines "engines.md"
}

#[cfg(feature = "formats")]
pages! {
    Checkpoints "how-to/checkpoints.md"
}

#[cfg(feature = "rl")]
pages! {
    Environments "how-to/environments.md"
    ReinforcementLearning "how-to/reinforcement-learning.md"
}

#[cfg(feature = "text")]
pages! {
    Tokenizers "how-to/tokenizers.md"
}

#[cfg(feature = "onnx")]
pages! {
    OnnxTour "tour/onnx.md"
    Onnx "onnx.md"
}
