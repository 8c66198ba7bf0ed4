//! Softmax, cross entropy and layer normalisation.

use polygrad_core::compute::{CrossEntropy, DevicePtr, Kernel, LayerNorm, Softmax};
use polygrad_core::{Backend, CrossEntropyParams, DType, ErrorKind, HostTensor, Shape};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, listed, precise, rounded};
use super::super::outcome::CaseResult;
use crate::tolerance::tolerance;

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        for log in [false, true] {
            let name = if log { "log_softmax" } else { "softmax" };
            all.add(format!("{name} {dtype}"), move |fixture| softmax(fixture, dtype, log));
            all.add(format!("{name}_backward {dtype}"), move |fixture| {
                backward(fixture, dtype, log)
            });
        }
        all.add(format!("layer_norm {dtype}"), move |fixture| layer_norm(fixture, dtype));
        for label_smoothing in [0.0, 0.2] {
            let of = format!("cross_entropy, smoothing {label_smoothing} {dtype}");
            all.add(of, move |fixture| cross_entropy(fixture, dtype, label_smoothing));
        }
    }
    all.add("cross_entropy: a class that is not there", no_class);
    all.add("softmax: large numbers", large);
    all.add("softmax: no rows, no columns", empty);
}

const SIZES: [[usize; 2]; 7] = [[1, 1], [3, 4], [5, 33], [129, 7], [2, 1000], [64, 64], [1, 5000]];

fn forward(x: &HostTensor, log: bool) -> CaseResult<HostTensor> {
    let x = precise(x)?;
    Ok(host(&match log {
        true => Reference::log_softmax(&x, 1)?,
        false => Reference::softmax(&x, 1)?,
    })?)
}

fn softmax(fixture: &Fixture<'_>, dtype: DType, log: bool) -> CaseResult {
    fixture.needs(Kernel::Softmax, dtype)?;
    for [rows, columns] in SIZES {
        let x = drawn(dtype, &[rows, columns], 1)?;
        let truth = forward(&x, log)?;
        let (from, to) = (fixture.put(&x)?, fixture.out(dtype, &[rows, columns])?);
        let (input, saved, output) = (from.ptr, DevicePtr::NULL, to.ptr);
        let call = Softmax {
            dtype,
            rows,
            columns,
            log,
            input,
            saved,
            output,
        };
        fixture.driver.softmax(&call)?;
        fixture.check_op("softmax", &to, &truth)?;
        let place = fixture.put_to_change(&x)?;
        fixture.driver.softmax(&Softmax {
            input: place.ptr,
            output: place.ptr,
            ..call
        })?;
        fixture.check("softmax in place", &place, &truth, tolerance(dtype, "softmax"))?;
    }
    Ok(())
}

fn backward(fixture: &Fixture<'_>, dtype: DType, log: bool) -> CaseResult {
    fixture.needs(Kernel::SoftmaxBackward, dtype)?;
    for [rows, columns] in SIZES {
        let output = forward(&drawn(dtype, &[rows, columns], 1)?, log)?.cast(dtype);
        let grad = drawn(dtype, &[rows, columns], 2)?;
        let (g, y) = (precise(&grad)?, precise(&output)?);
        let truth = host(&match log {
            true => Reference::log_softmax_backward(&g, &y, 1)?,
            false => Reference::softmax_backward(&g, &y, 1)?,
        })?;
        let (from, saved, to) = (
            fixture.put(&grad)?,
            fixture.put(&output)?,
            fixture.out(dtype, &[rows, columns])?,
        );
        let (input, saved, output) = (from.ptr, saved.ptr, to.ptr);
        let call = Softmax {
            dtype,
            rows,
            columns,
            log,
            input,
            saved,
            output,
        };
        fixture.driver.softmax_backward(&call)?;
        let mut bounds = tolerance(dtype, "softmax");
        bounds.of_largest = bounds.relative;
        fixture.check("softmax_backward", &to, &truth, bounds)?;
        let place = fixture.put_to_change(&grad)?;
        fixture.driver.softmax_backward(&Softmax {
            input: place.ptr,
            output: place.ptr,
            ..call
        })?;
        fixture.check("softmax_backward in place", &place, &truth, bounds)?;
    }
    Ok(())
}

fn cross_entropy(fixture: &Fixture<'_>, dtype: DType, label_smoothing: f64) -> CaseResult {
    fixture.needs(Kernel::CrossEntropy, dtype)?;
    fixture.needs(Kernel::CrossEntropyBackward, dtype)?;
    let params = CrossEntropyParams {
        label_smoothing,
        ..CrossEntropyParams::default()
    };
    for [rows, columns] in SIZES {
        let logits = drawn(dtype, &[rows, columns], 1)?;
        // Every third row is ignored.
        let class = |row: usize| if row % 3 == 2 { -100 } else { (row * 7 % columns) as i64 };
        let target = HostTensor::new(Shape::new(&[rows])?, (0..rows).map(class).collect())?;
        let grad = drawn(dtype, &[rows], 2)?;
        let (x, classes, g) = (precise(&logits)?, rounded(&target)?, precise(&grad)?);
        let (loss, logsumexp) = Reference::cross_entropy(&x, &classes, &params)?;
        let (loss, logsumexp) = (host(&loss)?, host(&logsumexp)?);
        let held = logsumexp.cast(dtype);
        let gradient = host(&Reference::cross_entropy_backward(
            &g,
            &x,
            &classes,
            &precise(&held)?,
            &params,
        )?)?;

        let (from, at) = (fixture.put(&logits)?, fixture.put(&target)?);
        let (to_loss, to_logsumexp) = (fixture.out(dtype, &[rows])?, fixture.out(dtype, &[rows])?);
        let call = CrossEntropy {
            dtype,
            rows,
            columns,
            params,
            logits: from.ptr,
            target: at.ptr,
            loss: to_loss.ptr,
            logsumexp: to_logsumexp.ptr,
            grad: DevicePtr::NULL,
        };
        fixture.driver.cross_entropy(&call)?;
        let bounds = tolerance(dtype, "cross_entropy");
        fixture.check("cross_entropy: losses", &to_loss, &loss, bounds)?;
        fixture.check("cross_entropy: ln Σ e^x", &to_logsumexp, &logsumexp, bounds)?;

        let (of_losses, saved) = (fixture.put(&grad)?, fixture.put(&held)?);
        let to = fixture.out(dtype, &[rows, columns])?;
        fixture.driver.cross_entropy_backward(&CrossEntropy {
            loss: of_losses.ptr,
            logsumexp: saved.ptr,
            grad: to.ptr,
            ..call
        })?;
        let mut bounds = bounds;
        bounds.of_largest = bounds.relative;
        fixture.check("cross_entropy_backward", &to, &gradient, bounds)?;
    }
    Ok(())
}

/// A class out of range: an error at once, or when waiting for the driver.
fn no_class(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::CrossEntropy, dtype)?;
    if !fixture.options.values {
        return Ok(());
    }
    for class in [3i64, -1, i64::MAX] {
        let logits = fixture.put(&drawn(dtype, &[2, 3], 1)?)?;
        let target = fixture.put(&HostTensor::new(Shape::from([2]), vec![0, class])?)?;
        let (loss, logsumexp, grad) = (
            fixture.out(dtype, &[2])?,
            fixture.out(dtype, &[2])?,
            fixture.out(dtype, &[2, 3])?,
        );
        let call = CrossEntropy {
            dtype,
            rows: 2,
            columns: 3,
            params: CrossEntropyParams::default(),
            logits: logits.ptr,
            target: target.ptr,
            loss: loss.ptr,
            logsumexp: logsumexp.ptr,
            grad: grad.ptr,
        };
        let what = format!("class {class}");
        fixture.fails(&what, ErrorKind::OutOfRange, fixture.driver.cross_entropy(&call))?;
        if fixture.driver.supports(Kernel::CrossEntropyBackward, dtype) {
            fixture.fails(
                &what,
                ErrorKind::OutOfRange,
                fixture.driver.cross_entropy_backward(&call),
            )?;
        }
    }
    Ok(())
}

fn large(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Softmax, dtype)?;
    let inf = f64::INFINITY;
    for row in [
        [1e4, 1e4 - 1.0, -1e4, 0.0],
        [-1e30, -1e30, -1e30, -1e30],
        [0.0, -inf, 1.0, -inf],
        [f64::NAN, 0.0, 1.0, 2.0],
    ] {
        for log in [false, true] {
            let x = listed(dtype, &row)?.reshape(Shape::new(&[1, 4])?)?;
            let (from, to) = (fixture.put(&x)?, fixture.out(dtype, &[1, 4])?);
            let (input, saved, output) = (from.ptr, DevicePtr::NULL, to.ptr);
            fixture.driver.softmax(&Softmax {
                dtype,
                rows: 1,
                columns: 4,
                log,
                input,
                saved,
                output,
            })?;
            fixture.check_op("softmax", &to, &forward(&x, log)?)?;
        }
    }
    Ok(())
}

fn empty(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Softmax, dtype)?;
    let nowhere = DevicePtr::new(3);
    for [rows, columns] in [[0, 4], [4, 0], [0, 0]] {
        let call = Softmax {
            dtype,
            rows,
            columns,
            log: false,
            input: nowhere,
            saved: nowhere,
            output: nowhere,
        };
        fixture.driver.softmax(&call)?;
        if fixture.driver.supports(Kernel::SoftmaxBackward, dtype) {
            fixture.driver.softmax_backward(&call)?;
        }
    }
    Ok(())
}

fn layer_norm(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::LayerNorm, dtype)?;
    for [rows, columns] in SIZES {
        let x = drawn(dtype, &[rows, columns], 1)?;
        let (weight, bias) = (drawn(dtype, &[columns], 2)?, drawn(dtype, &[columns], 3)?);
        let ones = listed(dtype, &vec![1.0; columns])?;
        for (weighted, biased) in [(true, true), (true, false), (false, false), (false, true)] {
            let scale = precise(if weighted { &weight } else { &ones })?;
            let shift = precise(&bias)?;
            let eps = 1e-3;
            let shift = biased.then_some(&shift);
            let (y, mean, rstd) = Reference::layer_norm(&precise(&x)?, Some(&scale), shift, 1, eps)?;
            let (from, to) = (fixture.put(&x)?, fixture.out(dtype, &[rows, columns])?);
            let (to_mean, to_rstd) = (fixture.out(dtype, &[rows])?, fixture.out(dtype, &[rows])?);
            let (w, b) = (fixture.put(&weight)?, fixture.put(&bias)?);
            fixture.driver.layer_norm(&LayerNorm {
                dtype,
                rows,
                columns,
                eps,
                input: from.ptr,
                weight: weighted.then_some(w.ptr),
                bias: biased.then_some(b.ptr),
                output: to.ptr,
                mean: to_mean.ptr,
                rstd: to_rstd.ptr,
            })?;
            fixture.check_op("layer_norm", &to, &host(&y)?)?;
            fixture.check_op("layer_norm", &to_mean, &host(&mean)?)?;
            fixture.check_op("layer_norm", &to_rstd, &host(&rstd)?)?;
        }
    }
    Ok(())
}
