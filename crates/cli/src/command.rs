//! The command line.

use clap::{Parser, Subcommand};

use crate::args::{Devices, Eval, Predict};
use crate::chargpt::generate::Generate;
#[cfg(feature = "formats")]
use crate::convert::Convert;
#[cfg(feature = "text")]
use crate::finetune::merge::Merge;
#[cfg(feature = "lab")]
use crate::lab;
#[cfg(feature = "onnx")]
use crate::onnx::{
    QuantizeFile,
    args::{ExportRun, Run, Show},
};
#[cfg(feature = "rl")]
use crate::rl::Play;
#[cfg(feature = "serve")]
use crate::serve::Serve;
#[cfg(feature = "sweep")]
use crate::sweep::Sweep;
use crate::{absent, train};

/// Train, evaluate and use models for images, text and tables, and policies for environments, on any backend
#[derive(Debug, Parser)]
#[command(name = "polygrad", version, arg_required_else_help = true, after_help = absent::help())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model and write it, its checkpoints and its curves to a run folder
    #[command(
        disable_help_flag = true,
        override_usage = "polygrad train DATASET [OPTIONS]",
        after_help = "`polygrad train --help` lists what can be trained, and the options."
    )]
    Train(train::line::Line),
    /// Fine-tune a pretrained language model, or an adapter for it (LoRA), on prompts and completions or chats
    #[command(
        disable_help_flag = true,
        override_usage = "polygrad finetune MODEL_DIR|FILE.gguf --data FILE.jsonl [OPTIONS]"
    )]
    #[cfg(feature = "text")]
    Finetune(train::line::Line),
    /// Write a fine-tuned model with its adapter merged into its weights
    #[cfg(feature = "text")]
    Merge(Merge),
    /// Search for the best settings by training repeatedly with different ones
    #[cfg(feature = "sweep")]
    Sweep(Sweep),
    /// Evaluate a trained model on held-out data, or in episodes of its environment
    Eval(Eval),
    /// Show how a trained policy plays, in the terminal or as an animation
    #[cfg(feature = "rl")]
    Play(Play),
    /// Predict the class of an image, or a value for each row of a CSV file, with a trained model
    Predict(Predict),
    /// Generate text, or an answer to a chat message, with a language model
    Generate(Generate),
    /// Run a model from an ONNX file
    #[cfg(feature = "onnx")]
    Run(Run),
    /// Serve models over HTTP and gRPC
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Show what an ONNX file, a safetensors file or a run folder contains: graph, tensors, shapes, FLOPs
    #[cfg(feature = "onnx")]
    Show(Show),
    /// Export a trained model as an ONNX file
    #[cfg(feature = "onnx")]
    Export(ExportRun),
    /// Quantize a model to 8-bit integers, write it as an ONNX file, and report the loss of accuracy
    #[cfg(feature = "onnx")]
    Quantize(QuantizeFile),
    /// Convert a checkpoint to another format
    #[cfg(feature = "formats")]
    Convert(Convert),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab::Command),
    /// List the environments in which policies can be trained
    #[cfg(feature = "rl")]
    List,
    /// List the backends and their devices, and why other backends are missing
    Devices(Devices),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (line, words) in [
            ("polygrad export x --onnx y --opset x", "17, 18, 20 or 23"),
            ("polygrad eval", "<RUN|FILE.onnx>"),
        ] {
            let text = Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(text.contains(words), "{line}: {text}\nshould contain {words}");
        }
    }
}
