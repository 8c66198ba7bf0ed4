//! The opsets. All differences between them are in this file.

use polygrad_core::{DType, Error, Result};

/// The version of ONNX's ops that a model is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Opset {
    /// Of ONNX 1.12: the first with LayerNormalization.
    V17,
    /// Of ONNX 1.13.
    V18,
    /// Of ONNX 1.15: the first with Gelu.
    #[default]
    V20,
    /// Of ONNX 1.18: the first with Attention and RMSNormalization.
    V23,
}

impl Opset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::V17, Self::V18, Self::V20, Self::V23];

    /// The opset of this number.
    ///
    /// # Errors
    /// When models are not written for this version.
    pub fn from_version(version: i64) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|opset| opset.version() == version);
        found.ok_or_else(|| {
            Error::unsupported(format!("models are not written for opset {version}")).with_hint("take 17, 18, 20 or 23")
        })
    }

    /// Its number.
    pub const fn version(self) -> i64 {
        match self {
            Self::V17 => 17,
            Self::V18 => 18,
            Self::V20 => 20,
            Self::V23 => 23,
        }
    }

    /// The version of the file format: the first that allows the opset, or the one that PyTorch writes with it.
    pub const fn ir_version(self) -> i64 {
        match self {
            Self::V17 | Self::V18 => 8,
            Self::V20 | Self::V23 => 10,
        }
    }

    /// Whether a reduction takes its axes as an input rather than as an attribute.
    pub(super) fn takes_axes_as_input(self, reduction: &str) -> bool {
        self >= Self::V18 || reduction == "ReduceSum"
    }

    /// Whether the opset has Gelu.
    pub(super) fn has_gelu(self) -> bool {
        self >= Self::V20
    }

    /// Whether an op accepts a float dtype, of those that are written.
    pub(super) fn has_dtype(self, op: &str, dtype: DType) -> bool {
        match (op, dtype) {
            (
                "AveragePool" | "Conv" | "ConvTranspose" | "Cos" | "Elu" | "GRU" | "GlobalAveragePool" | "LSTM"
                | "MaxPool" | "RNN" | "Round" | "Sin" | "Softplus" | "Tan",
                DType::BF16,
            ) => self >= Self::V23,
            ("IsInf", DType::F16 | DType::BF16) => self >= Self::V20,
            ("TopK", DType::BF16) | ("Range", DType::F16 | DType::BF16) => false,
            _ => true,
        }
    }

    /// Whether the opset has BitwiseAnd, BitwiseOr and BitwiseXor.
    pub(super) fn has_bitwise(self) -> bool {
        self >= Self::V18
    }

    /// Whether Pad has the mode `wrap`.
    pub(super) fn has_wrapping_pad(self) -> bool {
        self >= Self::V20
    }

    /// Whether the opset has Attention and RMSNormalization.
    pub(super) fn has_attention(self) -> bool {
        self >= Self::V23
    }
}
