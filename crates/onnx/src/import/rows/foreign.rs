//! Rules for ops of other domains than ONNX's.

use super::Found;
use super::rules::{OVER_ROWS, Seen, UNKNOWN};
use super::state::{Reason, State};
use crate::import::call::Call;
use crate::import::ops::{CLASSICAL, MICROSOFT};

impl Seen<'_> {
    pub(super) fn foreign(&self, c: &Call<'_>) -> Found<Vec<State>> {
        match c.node.domain.as_str() {
            MICROSOFT => self.microsoft(c),
            // Each row of features is a row of the batch.
            CLASSICAL if self.op() == "FeatureVectorizer" => {
                let all: Vec<usize> = (0..self.states.len()).collect();
                self.by_first_axis(c, &all)
            }
            CLASSICAL => {
                self.only(&[0])?;
                match self.rank(0)? {
                    0 | 1 => Err(OVER_ROWS),
                    _ => self.by_first_axis(c, &[0]),
                }
            }
            _ => Err(UNKNOWN),
        }
    }

    fn microsoft(&self, c: &Call<'_>) -> Found<Vec<State>> {
        match self.op() {
            "Gelu" | "QuickGelu" | "FastGelu" | "BiasGelu" | "QLinearAdd" | "QLinearMul" => {
                Ok(vec![self.by_element()?])
            }
            "QLinearSigmoid" | "QLinearLeakyRelu" | "QuantizeLinear" | "DequantizeLinear" => {
                self.only(&[0])?;
                self.beside(&[])
            }
            "QLinearSoftmax" if c.int("opset", 13)? >= 13 => {
                self.only(&[0])?;
                self.beside(&[c.axis("axis", -1, self.rank(0)?)?])
            }
            "FusedConv" => self.by_first_axis(c, &[0, 3]),
            "QLinearConv" | "NhwcMaxPool" | "QLinearAveragePool" | "QLinearGlobalAveragePool" => {
                self.by_first_axis(c, &[0])
            }
            "FusedGemm" => Ok(vec![self.gemm(c)?]),
            "FusedMatMul" => {
                let turns = ["transA", "transB", "transBatchA", "transBatchB"];
                match turns.into_iter().any(|name| c.flag(name, false).unwrap_or(true)) {
                    true => Err(UNKNOWN),
                    false => Ok(vec![self.product(0, 1)?]),
                }
            }
            "MatMulIntegerToFloat" => {
                self.only(&[0, 1])?;
                Ok(vec![self.product(0, 1)?])
            }
            "DynamicQuantizeMatMul" | "DynamicQuantizeLSTM" => Err(Reason::Here("takes one scale for all rows")),
            "MatMulBnb4" | "MatMulNBits" | "SimplifiedLayerNormalization" => {
                self.only(&[0])?;
                self.beside(&[self.rank(0)?.saturating_sub(1)])
            }
            "QGemm" if !c.flag("transA", false)? => {
                self.only(&[0])?;
                self.beside(&[1])
            }
            "Attention" => self.by_first_axis(c, &[0, 3]),
            "QAttention" => self.by_first_axis(c, &[0, 5]),
            "EmbedLayerNormalization" => self.by_first_axis(c, &[0, 1, 7, 8]),
            "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" if self.rank(0)? == self.rank(1)? => {
                self.by_first_axis(c, &[0, 1])
            }
            _ => Err(UNKNOWN),
        }
    }
}
