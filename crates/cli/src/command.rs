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

/// Train, evaluate and use models of images, texts and tables, and policies in environments, on any backend
#[derive(Debug, Parser)]
#[command(name = "polygrad", version, arg_required_else_help = true, after_help = absent::help())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model and leave it, its checkpoints and its curves in a run folder
    #[command(
        disable_help_flag = true,
        override_usage = "polygrad train DATASET [OPTIONS]",
        after_help = "`polygrad train --help` tells what there is to train, and with which options."
    )]
    Train(train::line::Line),
    /// Go on training a language model that others trained, or an adapter for it (LoRA), with prompts and completions
    /// or chats
    #[command(
        disable_help_flag = true,
        override_usage = "polygrad finetune MODEL_DIR|FILE.gguf --data FILE.jsonl [OPTIONS]"
    )]
    #[cfg(feature = "text")]
    Finetune(train::line::Line),
    /// Write a model that `finetune` trained with its adapter in its weights
    #[cfg(feature = "text")]
    Merge(Merge),
    /// Search for settings: train again and again, each time with others, and say which were the best
    #[cfg(feature = "sweep")]
    Sweep(Sweep),
    /// Measure a trained model on data that it was not trained on, or in episodes of its environment
    Eval(Eval),
    /// Show how a trained policy plays, in the terminal or as a film
    #[cfg(feature = "rl")]
    Play(Play),
    /// Say what a trained model sees in a PNG file, or predicts for the rows of a CSV file
    Predict(Predict),
    /// Write a text, or an answer, with a model that learnt from texts
    Generate(Generate),
    /// Run a model from an ONNX file
    #[cfg(feature = "onnx")]
    Run(Run),
    /// Answer requests with models, over HTTP and gRPC
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Say what an ONNX file, a safetensors file or a run folder holds: graph, tensors, shapes, FLOPs
    #[cfg(feature = "onnx")]
    Show(Show),
    /// Write a trained model as an ONNX file
    #[cfg(feature = "onnx")]
    Export(ExportRun),
    /// Write a model as an ONNX file whose products are on integers of 8 bits, and say what it lost by that
    #[cfg(feature = "onnx")]
    Quantize(QuantizeFile),
    /// Write the tensors of a checkpoint that others wrote in another format
    #[cfg(feature = "formats")]
    Convert(Convert),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab::Command),
    /// List the environments for policies to learn in
    #[cfg(feature = "rl")]
    List,
    /// List the backends, their devices, and why others are missing
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
