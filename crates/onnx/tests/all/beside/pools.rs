//! Pools.

use super::*;

/// Each kind over kernels, strides, padding, dilations and extents, with and without ceil mode.
#[test]
fn windows_of_all_kinds_are_as_there() {
    let kinds: [(&str, Attributes<'_>); 4] = [
        ("MaxPool", &[]),
        ("AveragePool", &[]),
        ("AveragePool", &[("count_include_pad", Attribute::Int(1))]),
        ("LpPool", &[]),
    ];
    for (op, own) in kinds {
        for (kernel, stride) in [2usize, 3, 5]
            .into_iter()
            .flat_map(|kernel| [1usize, 3].map(|stride| (kernel, stride)))
        {
            for (before, after) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                if before.max(after) >= kernel {
                    continue;
                }
                for (dilation, ceil) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                    let numbers = |name, values: &[usize]| {
                        (
                            name,
                            Attribute::Ints(values.iter().map(|&value| value as i64).collect()),
                        )
                    };
                    let mut attributes = own.to_vec();
                    attributes.extend([
                        numbers("kernel_shape", &[kernel]),
                        numbers("strides", &[stride]),
                        numbers("pads", &[before, after]),
                        numbers("dilations", &[dilation]),
                        ("ceil_mode", Attribute::Int(ceil)),
                    ]);
                    let inputs = [input(ElementType::F32, &[0, 0, 0])];
                    let Some(pair) = Pair::new(op, 22, &inputs, &attributes) else {
                        return;
                    };
                    let reach = (kernel - 1) * dilation + 1;
                    for extent in 1..=6 {
                        let what = || format!("{op} of {extent} with {attributes:?}");
                        let fits = reach < extent + before + after + if ceil == 1 { stride } else { 1 };
                        let x = tensor(&[1, 1, extent], mixed(extent));
                        if fits {
                            close(pair.first(&[x]), what);
                        } else {
                            // ONNX Runtime returns nothing, or the visible part.
                            let error = pair.ours(&[x]).unwrap_err();
                            assert!(error.to_string().contains("does not fit"), "{}: {error}", what());
                        }
                    }
                }
            }
        }
    }
}
