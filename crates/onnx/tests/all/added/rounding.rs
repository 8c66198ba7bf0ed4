//! MatMulNBits with an `accuracy_level` of 4, at which its operand is rounded to int8: values of ONNX Runtime 1.32 on
//! a processor with AVX-512 VNNI.

use super::*;

struct Case {
    bits: usize,
    size: usize,
    /// Features in and out, and rows.
    k: usize,
    n: usize,
    rows: usize,
    /// Whether there are zero points, and of which type.
    zeros: Option<DType>,
    /// Whether the operand is rounded: not where ONNX Runtime multiplies floats.
    rounds: bool,
    expected: &'static [f64],
}

/// Numbers without a pattern, as the recorded cases have them.
fn bytes(count: usize, step: usize, first: usize) -> Vec<u8> {
    (0..count).map(|i| ((i * step + first) % 256) as u8).collect()
}

impl Case {
    fn operands(&self) -> Vec<Option<Value>> {
        let Self {
            bits, size, k, n, rows, ..
        } = *self;
        let blocks = k.div_ceil(size);
        let x = (0..rows * k).map(|i| ((i * 29 % 31) as f32 - 15.0) / 8.0).collect();
        let scales = (0..n * blocks).map(|i| (i % 5 + 1) as f32 / 64.0).collect();
        let mut operands = vec![
            host::<f32>(x, &[rows, k]),
            host(
                bytes(n * blocks * size * bits / 8, 37, 11),
                &[n, blocks, size * bits / 8],
            ),
            host::<f32>(scales, &[n * blocks]),
        ];
        let zeros = n * (blocks * bits).div_ceil(8);
        operands.extend(self.zeros.map(|dtype| match dtype {
            DType::U8 => host(bytes(zeros, 53, 7), &[zeros]),
            _ => host((0..n * blocks).map(|i| (i % 7) as f32 + 0.5).collect(), &[n * blocks]),
        }));
        operands
    }

    /// The product at a level, whose weight is a constant or an input.
    fn product(&self, level: i64, constant: bool) -> Result<Vec<f64>> {
        let sizes = [
            ("K", self.k),
            ("N", self.n),
            ("bits", self.bits),
            ("block_size", self.size),
        ];
        let mut attributes: Attributes = sizes.into_iter().map(|(name, size)| int(name, size as i64)).collect();
        attributes.push(int("accuracy_level", level));
        let operands = self.operands();
        let mut graph = graph(MS, "MatMulNBits", &operands, &attributes, 1);
        let mut given: Vec<Value> = operands.into_iter().flatten().collect();
        if constant {
            let body = &mut graph.body;
            for (value, tensor) in body.inputs.split_off(1).into_iter().zip(given.split_off(1)) {
                let tensor = tensor.host()?.into();
                body.initializers.push(Initializer { value, tensor });
            }
        }
        let model = OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), Options::default())?;
        let made = model.run_ordered(given.into_iter())?;
        let y = made.iter().next().map(|(_, value)| value.host()).transpose()?;
        Ok(y.map(|host| host.to_f64_vec()).unwrap_or_default())
    }
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let bytes = Some(DType::U8);
    vec![
        Case { bits: 4, size: 32, k: 50, n: 3, rows: 2, zeros: None, rounds: true,
            expected: &[-1.42078316, -2.48562098, 0.174396753, -1.40463531, 2.04685974, -1.51536369] },
        Case { bits: 4, size: 16, k: 48, n: 3, rows: 1, zeros: bytes, rounds: true,
            expected: &[-1.74697042, 1.38871765, -1.26091921] },
        Case { bits: 8, size: 32, k: 64, n: 3, rows: 2, zeros: bytes, rounds: true,
            expected: &[13.3676872, -28.4991703, 19.5920048, -0.334724426, -14.7211094, -0.583169937] },
        Case { bits: 8, size: 64, k: 64, n: 2, rows: 2, zeros: None, rounds: true,
            expected: &[9.25619984, -8.77106285, -9.24812412, -2.93522167] },
        Case { bits: 2, size: 32, k: 64, n: 3, rows: 2, zeros: bytes, rounds: true,
            expected: &[-0.0555948764, -0.215920299, -0.072665453, -0.140717328, -0.261364967, -0.239450067] },
        Case { bits: 2, size: 16, k: 32, n: 3, rows: 2, zeros: None, rounds: false,
            expected: &[-0.017578125, -0.037109375, -0.517578125, -0.166015625, -0.10546875, 0.24609375] },
        Case { bits: 4, size: 32, k: 64, n: 3, rows: 1, zeros: Some(DType::F32), rounds: false,
            expected: &[-0.399414062, -2.26855469, 0.0908203125] },
    ]
}

#[test]
fn products_of_a_rounded_operand_are_those_of_onnx_runtime() -> Result<()> {
    for case in cases() {
        let name = format!("{} bits in {}, {:?}", case.bits, case.size, case.zeros);
        let largest = case.expected.iter().fold(0f64, |most, y| most.max(y.abs()));
        let off = |found: &[f64]| {
            assert_eq!(found.len(), case.expected.len(), "{name}");
            let apart = found.iter().zip(case.expected).map(|(a, b)| (a - b).abs());
            apart.fold(0f64, f64::max) / largest
        };
        for constant in [false, true] {
            let rounded = off(&case.product(4, constant)?);
            assert!(rounded < 3e-6, "{name}, constant {constant}: {rounded:.1e}");
            // The cases tell: without rounding the products are others.
            for level in [0, 1, 5] {
                let exact = off(&case.product(level, constant)?);
                assert!((exact > 1e-3) == case.rounds, "{name}, level {level}: {exact:.1e}");
            }
        }
    }
    Ok(())
}
