use super::*;
use crate::Kernels;

/// Pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn next(&mut self, low: usize, high: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) as usize % (high - low + 1)
    }

    /// Bytes of which many are at the ends of the range.
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let byte = |draw: &mut Self| match draw.next(0, 6) {
            0 => 0,
            1 => 255,
            _ => draw.next(0, 255) as u8,
        };
        (0..count).map(|_| byte(self)).collect()
    }

    /// Some convolution.
    fn geometry(&mut self, large: bool) -> Geometry {
        loop {
            let mut axes = |low, high| -> Extents { std::array::from_fn(|axis| self.next(low, high * (axis + 1))) };
            let (input, kernel) = (axes(1, if large { 30 } else { 7 }), axes(1, 2));
            let (stride, dilation) = (axes(1, 2), axes(1, 2));
            let padding = kernel.map(|extent| self.next(0, extent - 1));
            let reach: Extents = std::array::from_fn(|axis| (kernel[axis] - 1) * dilation[axis] + 1);
            if (0..3).any(|axis| input[axis] + 2 * padding[axis] < reach[axis]) {
                continue;
            }
            return Geometry {
                batch: self.next(1, 2),
                groups: self.next(1, 2),
                inputs: self.next(1, if large { 40 } else { 9 }),
                outputs: self.next(1, 27),
                input,
                output: std::array::from_fn(|axis| (input[axis] + 2 * padding[axis] - reach[axis]) / stride[axis] + 1),
                kernel,
                stride,
                padding,
                dilation,
            };
        }
    }
}

/// The sums by definition.
fn expected(of: &Convolution<'_>, weight: &[u8]) -> Vec<i32> {
    let g = of.g;
    let mut sums = Vec::new();
    for plane in 0..g.batch * g.groups * g.outputs {
        let (part, filter) = (plane / g.outputs, plane % (g.groups * g.outputs));
        for at in 0..g.out_plane() {
            let [_, height, width] = g.output;
            let at = [at / (height * width), at / width % height, at % width];
            let mut sum = *of.bias.get(filter).unwrap_or(&of.bias[0]);
            for row in 0..g.rows() {
                let (channel, tap) = (row / g.taps(), row % g.taps());
                let [_, high, wide] = g.kernel;
                let tap = [tap / (high * wide), tap / wide % high, tap % wide];
                let mut from = part * g.inputs + channel;
                let inside = (0..3).all(|axis| {
                    let place =
                        (at[axis] * g.stride[axis] + tap[axis] * g.dilation[axis]).wrapping_sub(g.padding[axis]);
                    from = from * g.input[axis] + place.min(g.input[axis] - 1);
                    place < g.input[axis]
                });
                if inside {
                    let x = i32::from(of.x[from]) - i32::from(of.zero_x);
                    let y = i32::from(weight[filter * g.rows() + row]) - of.zero_weight.get(filter);
                    sum = sum.wrapping_add(x * y);
                }
            }
            sums.push(sum);
        }
    }
    sums
}

/// Compares each way, with one thread and three, with the definition: as sums, and as bytes that are made of them.
fn check(draw: &mut Draw, g: &Geometry) {
    let x = draw.bytes(g.batch * g.groups * g.inputs * g.plane());
    let filters = g.groups * g.outputs;
    let weight = draw.bytes(filters * g.rows());
    let zero_weight = match draw.next(0, 2) {
        0 => vec![128],
        1 => draw.bytes(1),
        _ => draw.bytes(filters),
    };
    let bias: Vec<i32> = match draw.next(0, 1) {
        0 => vec![0],
        _ => (0..filters).map(|_| draw.next(0, 1 << 20) as i32 - (1 << 19)).collect(),
    };
    let scales: Vec<f32> = match draw.next(0, 1) {
        0 => vec![0.01],
        _ => (0..filters)
            .map(|i| [0.003, 0.5, -0.02, f32::NAN, 1e30][i % 5])
            .collect(),
    };
    for threads in [1, 3] {
        let device = CpuDevice::new(threads, Kernels::Simd).unwrap();
        for way in Way::available(device) {
            let packed = Filters::by(device, way, (g.groups, g.outputs, g.inputs), g.kernel, &weight).unwrap();
            let of = Convolution {
                g,
                filters: &packed,
                x: &x,
                zero_x: 7,
                zero_weight: Zeros(&zero_weight),
                bias: &bias,
            };
            let wanted = expected(&of, &weight);
            let mut sums = vec![i32::MIN; wanted.len()];
            // SAFETY: the vectors are as large as the geometry says.
            unsafe { of.run(device, Out::Sums(sums.as_mut_ptr())).unwrap() };
            assert!(sums == wanted, "{g:?} by {way:?}, {threads} threads");
            let mut bytes = vec![0u8; wanted.len()];
            // SAFETY: as above.
            unsafe { of.run(device, Out::Bytes(bytes.as_mut_ptr(), &scales, 100)).unwrap() };
            let wanted = wanted.iter().enumerate().map(|(at, &sum)| {
                let scale = scales.get(at / g.out_plane() % filters).unwrap_or(&scales[0]);
                ((sum as f32 * scale).round_ties_even() + 100.0) as u8
            });
            assert!(
                bytes.into_iter().eq(wanted),
                "{g:?} by {way:?}, {threads} threads, bytes"
            );
        }
    }
}

#[test]
fn convolutions_are_those_of_the_definition() {
    let mut draw = Draw(7);
    for _ in 0..150 {
        let g = draw.geometry(false);
        check(&mut draw, &g);
    }
}

#[test]
fn large_images_are_cut_into_boxes() {
    let mut draw = Draw(11);
    for channels in [24, 40] {
        let mut g = draw.geometry(true);
        (g.batch, g.groups, g.inputs, g.outputs) = (1, 1, channels, 3);
        (g.input, g.output, g.kernel) = ([1, 70, 90], [1, 70, 90], [1, 3, 3]);
        (g.stride, g.padding, g.dilation) = ([1; 3], [0, 1, 1], [1; 3]);
        check(&mut draw, &g);
        (g.input, g.output, g.kernel, g.padding) = ([1, 1, 9000], [1, 1, 8996], [1, 1, 5], [0; 3]);
        check(&mut draw, &g);
        (g.output, g.kernel) = ([1, 1, 9000], [1; 3]);
        check(&mut draw, &g);
    }
}

#[test]
fn few_channels_share_words_with_taps() {
    let across = |channels, kernel| Grouping::of(channels, kernel, 4).across;
    assert_eq!(across(1, [1, 3, 3]), 3);
    assert_eq!(across(3, [1, 7, 7]), 7);
    assert_eq!(across(32, [1, 3, 3]), 1);
    assert_eq!(across(1, [1, 1, 1]), 1);
}

#[test]
fn sums_beyond_i32_wrap() {
    let g = Geometry {
        batch: 1,
        groups: 1,
        inputs: 40_000,
        outputs: 3,
        input: [1, 1, 2],
        output: [1, 1, 2],
        kernel: [1; 3],
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
    };
    let (x, weight) = (vec![255; 80_000], vec![255; 120_000]);
    let device = CpuDevice::new(1, Kernels::Simd).unwrap();
    for way in Way::available(device) {
        let packed = Filters::by(device, way, (1, 3, 40_000), g.kernel, &weight).unwrap();
        let of = Convolution {
            g: &g,
            filters: &packed,
            x: &x,
            zero_x: 0,
            zero_weight: Zeros(&[0]),
            bias: &[0],
        };
        let mut sums = vec![0; 6];
        // SAFETY: the vectors are as large as the geometry says.
        unsafe { of.run(device, Out::Sums(sums.as_mut_ptr())).unwrap() };
        assert_eq!(sums, expected(&of, &weight), "{way:?}");
    }
}

#[test]
fn narrow_images_fill_their_registers() {
    let mut g = Geometry {
        batch: 1,
        groups: 1,
        inputs: 64,
        outputs: 64,
        input: [1, 4, 4],
        output: [1, 4, 4],
        kernel: [1, 3, 3],
        stride: [1; 3],
        padding: [0, 1, 1],
        dilation: [1; 3],
    };
    let registers = |g: &Geometry, way: Way| {
        let numbers = Grouping::of(g.inputs, g.kernel, way.group());
        let chunks = Layout::new(g, numbers, way, g.output).chunks;
        chunks.iter().map(|chunk| chunk.places.len()).sum::<usize>()
    };
    for way in Way::available(CpuDevice::new(1, Kernels::Simd).unwrap()) {
        for extent in [4, 8, 16] {
            (g.input, g.output) = ([1, extent, extent], [1, extent, extent]);
            assert_eq!(registers(&g, way), (extent * extent).div_ceil(way.lanes()), "{way:?}");
        }
    }
}
