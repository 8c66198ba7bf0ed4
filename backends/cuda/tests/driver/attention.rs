//! The gradient of attention, compared with the reference's in f64.

use polygrad_core::compute::{Attention, AttentionBackward, ComputeBackend, DevicePtr, Kernel};
use polygrad_core::{Backend, DType, ErrorKind, Shape};
use polygrad_cuda::CudaDriver;
use polygrad_reference::Reference;

use crate::support::{close, each, empty, filled, host, numbers, read, reference};

/// The most that gradients may differ beside one rounding, relative to the largest: sums of products with two numbers
/// of 8 bits each.
const SLACK: f64 = 5e-6;

/// A gradient of attention over one batch: `[heads, seq_q, seq_kv, head_dim, value_dim]`.
struct Case {
    dims: [usize; 5],
    causal: bool,
    /// Queries, keys, values and the output's gradient.
    inputs: [Vec<f64>; 4],
}

impl Case {
    fn new(dtype: DType, dims: [usize; 5], causal: bool) -> Self {
        let inputs = [0, 1, 2, 3].map(|i| {
            let by = [37, 53, 29, 71][i];
            let all = (0..Self::lens(dims)[i]).map(|at| ((at * by + at / 7) % 101) as f64 / 50.0 - 1.0);
            all.map(|x| host(dtype, Shape::SCALAR, &[x]).to_f64_vec()[0]).collect()
        });
        Self { dims, causal, inputs }
    }

    fn lens([heads, seq_q, seq_kv, head, value]: [usize; 5]) -> [usize; 4] {
        [seq_q * head, seq_kv * head, seq_kv * value, seq_q * value].map(|len| len * heads)
    }

    fn call(&self, dtype: DType, inputs: [DevicePtr; 4], to: [DevicePtr; 3]) -> AttentionBackward {
        let [heads, seq_q, seq_kv, head_dim, value_dim] = self.dims;
        AttentionBackward {
            forward: Attention {
                dtype,
                batch: 1,
                heads,
                seq_q,
                seq_kv,
                head_dim,
                value_dim,
                scale: 0.7,
                causal: self.causal,
                q: inputs[0],
                k: inputs[1],
                v: inputs[2],
                output: DevicePtr::NULL,
            },
            grad: inputs[3],
            to_q: to[0],
            to_k: to[1],
            to_v: to[2],
        }
    }

    fn gradients(&self, driver: &CudaDriver, dtype: DType) -> [Vec<f64>; 3] {
        let lens = Self::lens(self.dims);
        let inputs = [0, 1, 2, 3].map(|i| filled(driver, dtype, &self.inputs[i]));
        let to = [0, 1, 2].map(|i| empty(driver, dtype, lens[i]));
        driver.attention_backward(&self.call(dtype, inputs, to)).unwrap();
        let got = [0, 1, 2].map(|i| read(driver, dtype, to[i], lens[i]));
        inputs.into_iter().chain(to).for_each(|ptr| driver.free(ptr).unwrap());
        got
    }

    fn wanted(&self) -> [Vec<f64>; 3] {
        let [heads, seq_q, seq_kv, head, value] = self.dims;
        let shapes = [[seq_q, head], [seq_kv, head], [seq_kv, value], [seq_q, value]];
        let [q, k, v, grad] = [0, 1, 2, 3].map(|i| {
            let [rows, columns] = shapes[i];
            reference(DType::F64, Shape::from([heads, rows, columns]), &self.inputs[i])
        });
        let all = Reference::attention_backward(&grad, &q, &k, &v, None, 0.7, self.causal).unwrap();
        [&all.0, &all.1, &all.2].map(numbers)
    }
}

/// Runs a test over an emulator with matrix instructions and every dtype that they multiply.
fn each_half(test: impl Fn(&CudaDriver, DType)) {
    each(|driver| {
        for dtype in [DType::F16, DType::BF16] {
            if driver.supports(Kernel::AttentionBackward, dtype) {
                test(driver, dtype);
            }
        }
    });
}

/// Asserts that gradients are those of the reference, as if rounded once: `slack` is relative to the largest.
fn close_gradients(dtype: DType, got: &[Vec<f64>; 3], wanted: &[Vec<f64>; 3], what: &str) {
    for (i, name) in ["q", "k", "v"].iter().enumerate() {
        let largest = wanted[i].iter().fold(0.0, |top: f64, x| top.max(x.abs()));
        close(
            dtype,
            &got[i],
            &wanted[i],
            1.0,
            SLACK * largest,
            &format!("{what}, of {name}"),
        );
    }
}

#[test]
fn gradients_of_attention_of_all_shapes() {
    each_half(|driver, dtype| {
        for (dims, causal) in [
            ([2, 5, 70, 8, 3], false),
            ([2, 1, 1, 8, 3], false),
            ([2, 5, 70, 8, 3], true),
            // The first queries see nothing.
            ([1, 70, 3, 8, 3], true),
            ([1, 67, 75, 32, 40], true),
            ([1, 17, 20, 100, 36], false),
            ([1, 40, 35, 128, 128], true),
        ] {
            let case = Case::new(dtype, dims, causal);
            let what = format!("{dims:?} causal {causal}");
            close_gradients(dtype, &case.gradients(driver, dtype), &case.wanted(), &what);
        }
    });
}

/// Gradients of no queries are 0, and those without keys have no elements.
#[test]
fn gradients_of_attention_to_nothing() {
    each_half(|driver, dtype| {
        for (dims, causal) in [
            ([2, 0, 3, 8, 3], false),
            ([2, 3, 0, 8, 3], true),
            ([1, 3, 2, 0, 2], true),
        ] {
            let case = Case::new(dtype, dims, causal);
            let got = case.gradients(driver, dtype);
            let zero = |all: &[f64]| all.iter().all(|&x| x == 0.0);
            assert!(
                zero(&got[0]) && zero(&got[1]) && (dims[3] == 0 || zero(&got[2])),
                "{dims:?}: {got:?}"
            );
        }
        let call = Case::new(dtype, [1, 2, 2, 129, 8], false).call(dtype, [DevicePtr::NULL; 4], [DevicePtr::NULL; 3]);
        assert_eq!(
            driver.attention_backward(&call).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    });
}

/// With products of values and gradients beyond f16, whose results f16 holds.
#[test]
fn gradients_of_attention_may_be_large() {
    each_half(|driver, dtype| {
        let mut case = Case::new(dtype, [1, 20, 70, 8, 3], false);
        for (i, by) in [(1, 1e-3), (2, 200.0), (3, 300.0)] {
            let scaled: Vec<f64> = case.inputs[i].iter().map(|x| x * by).collect();
            case.inputs[i] = host(dtype, Shape::from([scaled.len()]), &scaled).to_f64_vec();
        }
        close_gradients(dtype, &case.gradients(driver, dtype), &case.wanted(), "large values");
    });
}

/// Of a key that a query does not see, and whose value is infinite, only its own gradients are affected.
#[test]
fn an_infinite_value_changes_no_gradient_of_queries_that_do_not_see_it() {
    each_half(|driver, dtype| {
        let mut case = Case::new(dtype, [1, 70, 70, 8, 3], true);
        let plain = case.gradients(driver, dtype);
        case.inputs[2][67 * 3 + 2] = f64::INFINITY;
        let got = case.gradients(driver, dtype);
        assert_eq!(got[0][..67 * 8], plain[0][..67 * 8], "{dtype}");
        assert!(
            got[0][67 * 8..].iter().all(|x| x.is_nan()),
            "{dtype}: {:?}",
            &got[0][67 * 8..]
        );
        assert_eq!(got[2], plain[2], "{dtype}: values do not matter to their own gradient");
    });
}

#[test]
fn gradients_of_attention_are_refused_at_addresses_without_memory() {
    each_half(|driver, dtype| {
        let case = Case::new(dtype, [1, 5, 6, 8, 3], false);
        let there = driver.alloc(1 << 10).unwrap();
        for wrong in 0..7 {
            let all: [DevicePtr; 7] = std::array::from_fn(|i| if i == wrong { DevicePtr::new(2) } else { there });
            let [q, k, v, grad, to @ ..] = all;
            let error = driver
                .attention_backward(&case.call(dtype, [q, k, v, grad], to))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "operand {wrong}: {error}");
        }
        driver.free(there).unwrap();
    });
}
