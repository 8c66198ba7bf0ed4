// A convolution as a product of matrices whose elements are looked up where they lie. Each block makes TILE x TILE elements of the result,
// each thread EACH x EACH of them. VARIANT 0: forward, 1: the input's gradient, 2: the weight's, in `splits` parts along the terms.
typedef Number<T>::C C;
#define SIDE (TILE / EACH)

struct Args {
    const T* input;
    const T* weight;
    const T* grad;
    void* output;
    i64 batch, channels, height, width, filters, kernel_h, kernel_w, out_height, out_width;
    i64 stride_h, stride_w, pad_h, pad_w, step_h, step_w, groups, splits, part;
};

// Of one group: rows, columns and terms.
struct Sizes { i64 m, n, k, in, out; };

static __device__ __forceinline__ Sizes sizes(const Args& args) {
    Sizes s;
    s.in = args.channels / args.groups;
    s.out = args.filters / args.groups;
    const i64 window = args.kernel_h * args.kernel_w;
#if VARIANT == 0
    s.m = s.out;
    s.n = args.batch * args.out_height * args.out_width;
    s.k = s.in * window;
#elif VARIANT == 1
    s.m = s.in;
    s.n = args.batch * args.height * args.width;
    s.k = s.out * window;
#else
    s.m = s.out;
    s.n = s.in * window;
    s.k = args.batch * args.out_height * args.out_width;
#endif
    return s;
}

static __device__ __forceinline__ C input_at(const Args& args, i64 image, i64 channel, i64 y, i64 x) {
    if (y < 0 || y >= args.height || x < 0 || x >= args.width) return 0;
    return Number<T>::get(args.input[((image * args.channels + channel) * args.height + y) * args.width + x]);
}

static __device__ __forceinline__ C left(const Args& args, const Sizes& s, i64 group, i64 row, i64 term) {
    const i64 window = args.kernel_h * args.kernel_w;
#if VARIANT == 0
    return Number<T>::get(args.weight[(group * s.out + row) * s.in * window + term]);
#elif VARIANT == 1
    const i64 filter = term / window, tap = term % window;
    return Number<T>::get(args.weight[((group * s.out + filter) * s.in + row) * window + tap]);
#else
    const i64 plane = args.out_height * args.out_width, image = term / plane;
    return Number<T>::get(args.grad[(image * args.filters + group * s.out + row) * plane + term % plane]);
#endif
}

static __device__ __forceinline__ C right(const Args& args, const Sizes& s, i64 group, i64 term, i64 column) {
    const i64 window = args.kernel_h * args.kernel_w;
#if VARIANT == 0
    const i64 plane = args.out_height * args.out_width, image = column / plane, at = column % plane;
    const i64 channel = term / window, tap = term % window;
    const i64 y = at / args.out_width * args.stride_h - args.pad_h + tap / args.kernel_w * args.step_h;
    const i64 x = at % args.out_width * args.stride_w - args.pad_w + tap % args.kernel_w * args.step_w;
    return input_at(args, image, group * s.in + channel, y, x);
#elif VARIANT == 1
    const i64 plane = args.height * args.width, image = column / plane, at = column % plane;
    const i64 filter = term / window, tap = term % window;
    const i64 y = at / args.width + args.pad_h - tap / args.kernel_w * args.step_h;
    const i64 x = at % args.width + args.pad_w - tap % args.kernel_w * args.step_w;
    if (y < 0 || x < 0) return 0;
    const i64 row = y / args.stride_h, col = x / args.stride_w;
    if (row * args.stride_h != y || col * args.stride_w != x || row >= args.out_height || col >= args.out_width) return 0;
    return Number<T>::get(
        args.grad[((image * args.filters + group * s.out + filter) * args.out_height + row) * args.out_width + col]);
#else
    const i64 plane = args.out_height * args.out_width, image = term / plane, at = term % plane;
    const i64 channel = column / window, tap = column % window;
    const i64 y = at / args.out_width * args.stride_h - args.pad_h + tap / args.kernel_w * args.step_h;
    const i64 x = at % args.out_width * args.stride_w - args.pad_w + tap % args.kernel_w * args.step_w;
    return input_at(args, image, group * s.in + channel, y, x);
#endif
}

static __device__ __forceinline__ void store(const Args& args, const Sizes& s, i64 group, i64 split, i64 row, i64 column, C value) {
#if VARIANT == 0
    const i64 plane = args.out_height * args.out_width, image = column / plane;
    ((T*)args.output)[(image * args.filters + group * s.out + row) * plane + column % plane] = Number<T>::put(value);
#elif VARIANT == 1
    const i64 plane = args.height * args.width, image = column / plane;
    ((T*)args.output)[(image * args.channels + group * s.in + row) * plane + column % plane] = Number<T>::put(value);
#else
    const i64 at = (group * s.out + row) * s.n + column;
    if (args.splits == 1) ((T*)args.output)[at] = Number<T>::put(value);
    else ((C*)args.output)[split * args.filters * s.n + at] = value;
#endif
}

extern "C" __global__ void __launch_bounds__(SIDE * SIDE) kernel(const Args args) {
    __shared__ C a[TERMS][TILE + 1];
    __shared__ C b[TERMS][TILE + 1];
    const Sizes s = sizes(args);
    const i64 tiles_m = (s.m + TILE - 1) / TILE, tiles_n = (s.n + TILE - 1) / TILE;
    i64 block = blockIdx.x;
    const i64 first_m = block % tiles_m * TILE;
    block /= tiles_m;
    const i64 first_n = block % tiles_n * TILE;
    block /= tiles_n;
    const i64 group = block % args.groups, split = block / args.groups;
    const i64 begin = split * args.part, end = begin + args.part < s.k ? begin + args.part : s.k;
    const i32 ty = threadIdx.x / SIDE, tx = threadIdx.x % SIDE;
    C sums[EACH][EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j) sums[i][j] = 0;
    for (i64 term = begin; term < end; term += TERMS) {
        for (i32 e = threadIdx.x; e < TERMS * TILE; e += SIDE * SIDE) {
            // Neighbouring threads read what lies side by side.
#if VARIANT == 2
            const i32 t = e % TERMS, r = e / TERMS;
            const i32 u = t, c = r;
#else
            const i32 t = e % TERMS, r = e / TERMS;
            const i32 u = e / TILE, c = e % TILE;
#endif
            a[t][r] = term + t < end && first_m + r < s.m ? left(args, s, group, first_m + r, term + t) : (C)0;
            b[u][c] = term + u < end && first_n + c < s.n ? right(args, s, group, term + u, first_n + c) : (C)0;
        }
        __syncthreads();
#pragma unroll
        for (int t = 0; t < TERMS; ++t) {
            C rows[EACH], columns[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                rows[i] = a[t][ty + i * SIDE];
                columns[i] = b[t][tx + i * SIDE];
            }
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int j = 0; j < EACH; ++j) sums[i][j] = FMA(rows[i], columns[j], sums[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const i64 row = first_m + ty + i * SIDE, column = first_n + tx + j * SIDE;
            if (row < s.m && column < s.n) store(args, s, group, split, row, column, sums[i][j]);
        }
}
