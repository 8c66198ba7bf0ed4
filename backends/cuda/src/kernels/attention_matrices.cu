// Attention of 64 queries per block of four warps, over 64 keys at a time, computed like attention.cu, with the
// instructions for products of 16-bit matrices (PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix"). A warp
// has 16 queries. A thread has rows `y` and `y + 8` of them, and columns `x` and `x + 1` of each eight. A weight is
// multiplied as two 16-bit numbers, the rounded weight and the rest, so that the output is rounded once.
#define THREADS 128
#define ROWS 64
#define KEYS 64
// Groups of 16 columns of a head, and of values.
#define STEPS ((HEAD + 15) / 16)
#define PARTS ((VALUE + 15) / 16)

struct Args {
    const T* q;
    const T* k;
    const T* v;
    T* output;
    i64 heads, seq_q, seq_kv;
    f64 scale;
};

struct alignas(16) Eight { u16 at[8]; };

// Eight more columns than needed, so that neighbouring rows have no bank conflicts.
template<int COUNT> struct Row { Eight at[2 * COUNT + 1]; };

// Loads four 8 x 8 matrices: lane `8 i + j` passes row `j` of matrix `i`. Each matrix is transposed if TRANSPOSED.
template<bool TRANSPOSED> static __device__ __forceinline__ void load_four(u32 (&out)[4], const Eight* row) {
#ifdef __CUDA_ARCH__
    u32 at;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(row));
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
#else
    emulated_ldmatrix(out, row, TRANSPOSED);
#endif
}

// sums += a b, for matrices of 16 x 16 and 16 x 8.
static __device__ __forceinline__ void multiply(f32 (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#ifdef __CUDA_ARCH__
    asm("mma.sync.aligned.m16n8k16.row.col." FORMATS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    const u32 b[2] = {b0, b1};
    emulated_mma(sums, a, b, [](u16 bits) { T x; x.bits = bits; return Number<T>::get(x); });
#endif
}

// Value of the lane whose index differs by `by` (a butterfly exchange within the four threads of a row).
static __device__ __forceinline__ f32 across(f32 x, i32 by) { return __shfl_xor_sync(0xffffffffu, x, by); }

static __device__ __forceinline__ u32 pair(u16 low, u16 high) { return (u32)low | (u32)high << 16; }

// Loads rows of `WIDTH` columns into shared memory; columns beyond them and rows from `count` on are 0. If `infinite`
// is given, numbers that are not finite become 0 as well, and `*infinite` is then set to `tile`.
template<int WIDTH, int COUNT>
static __device__ __forceinline__ void bring(Row<COUNT>* to, const T* from, i64 count, i64* infinite = 0, i64 tile = 0) {
    for (i32 e = threadIdx.x; e < KEYS * 2 * COUNT; e += THREADS) {
        const i32 row = e / (2 * COUNT), column = e % (2 * COUNT) * 8;
        const T* at = from + row * (i64)WIDTH + column;
        Eight piece;
#if ALIGNED
        if (row < count && column < WIDTH) piece = *(const Eight*)at;
        else
#endif
#pragma unroll
            for (i32 n = 0; n < 8; ++n) piece.at[n] = !ALIGNED && row < count && column + n < WIDTH ? at[n].bits : 0;
        if (infinite) {
#pragma unroll
            for (i32 n = 0; n < 8; ++n) {
                T x;
                x.bits = piece.at[n];
                if (is_finite(Number<T>::get(x))) continue;
                piece.at[n] = 0;
                *infinite = tile;
            }
        }
        to[row].at[column / 8] = piece;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) kernel(const Args args) {
    __shared__ Row<STEPS> k[KEYS];
    __shared__ Row<PARTS> v[KEYS];
    // The last tile of keys with a value that is not finite, and which weights are not 0.
    __shared__ i64 infinite;
    __shared__ u8 weighs[ROWS][KEYS];
    const i32 lane = threadIdx.x % 32, base = threadIdx.x / 32 * 16, y = base + lane / 4, x = lane % 4 * 2;
    const i64 tiles = (args.seq_q + ROWS - 1) / ROWS;
    const i64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    const T* from_k = args.k + head * args.seq_kv * HEAD;
    const T* from_v = args.v + head * args.seq_kv * VALUE;
    const f32 lowest = -INFINITE_F32, scale = (f32)args.scale;
    if (threadIdx.x == 0) infinite = -1;
    bring<HEAD>(k, args.q + (head * args.seq_q + first) * HEAD, args.seq_q - first);
    __syncthreads();
    u32 q[STEPS][4];
#pragma unroll
    for (i32 s = 0; s < STEPS; ++s) load_four<false>(q[s], &k[base + lane % 16].at[2 * s + lane / 16]);
    f32 top[2] = {lowest, lowest};
    // Sums over this thread's keys only.
    f32 total[2] = {0, 0};
    f32 sums[2 * PARTS][4];
#pragma unroll
    for (i32 c = 0; c < 2 * PARTS; ++c)
#pragma unroll
        for (i32 n = 0; n < 4; ++n) sums[c][n] = 0;
    // Keys after the last one visible to this block's last query are not read.
    i64 seen = args.seq_kv;
#if CAUSAL
    const i64 shift = args.seq_kv - args.seq_q, last = first + ROWS + shift;
    if (last < seen) seen = last < 0 ? 0 : last;
#endif
    for (i64 from = 0; from < seen; from += KEYS) {
        __syncthreads();
        bring<HEAD>(k, from_k + from * HEAD, args.seq_kv - from);
        bring<VALUE>(v, from_v + from * VALUE, args.seq_kv - from, &infinite, from);
        __syncthreads();
        // Scores, later weights.
        f32 p[KEYS / 8][4];
#pragma unroll
        for (i32 t = 0; t < KEYS / 8; t += 2) {
#pragma unroll
            for (i32 n = 0; n < 4; ++n) p[t][n] = p[t + 1][n] = 0;
#pragma unroll
            for (i32 s = 0; s < STEPS; ++s) {
                u32 b[4];
                load_four<false>(b, &k[t * 8 + lane / 16 * 8 + lane % 8].at[2 * s + lane / 8 % 2]);
                multiply(p[t], q[s], b[0], b[1]);
                multiply(p[t + 1], q[s], b[2], b[3]);
            }
        }
        f32 best[2] = {top[0], top[1]};
#pragma unroll
        for (i32 t = 0; t < KEYS / 8; ++t)
#pragma unroll
            for (i32 n = 0; n < 4; ++n) {
                const i64 key = from + t * 8 + x + n % 2;
                bool visible = key < args.seq_kv;
#if CAUSAL
                visible = visible && key <= first + y + n / 2 * 8 + shift;
#endif
                p[t][n] = visible ? p[t][n] * scale : lowest;
                best[n / 2] = larger(best[n / 2], p[t][n]);
            }
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            best[i] = larger(best[i], across(best[i], 1));
            best[i] = larger(best[i], across(best[i], 2));
            // While all scores are minus infinity, differences to the maximum would be NaN.
            const bool none = best[i] == lowest;
            const f32 less = none ? 1.0f : EXP(top[i] - best[i]);
            total[i] *= less;
#pragma unroll
            for (i32 t = 0; t < KEYS / 8; ++t)
#pragma unroll
                for (i32 n = 2 * i; n < 2 * i + 2; ++n) {
                    p[t][n] = none ? 0.0f : EXP(p[t][n] - best[i]);
                    total[i] += p[t][n];
                }
#pragma unroll
            for (i32 c = 0; c < 2 * PARTS; ++c)
#pragma unroll
                for (i32 n = 2 * i; n < 2 * i + 2; ++n) sums[c][n] *= less;
            top[i] = best[i];
        }
#pragma unroll
        for (i32 t = 0; t < KEYS / 8; t += 2) {
            u32 a[4], rest[4];
#pragma unroll
            for (i32 i = 0; i < 4; ++i) {
                u16 bits[2], lacks[2];
#pragma unroll
                for (i32 n = 0; n < 2; ++n) {
                    const f32 weight = p[t + i / 2][i % 2 * 2 + n];
                    const T near = Number<T>::put(weight);
                    bits[n] = near.bits;
                    lacks[n] = Number<T>::put(weight - Number<T>::get(near)).bits;
                }
                a[i] = pair(bits[0], bits[1]);
                rest[i] = pair(lacks[0], lacks[1]);
            }
#pragma unroll
            for (i32 c = 0; c < PARTS; ++c) {
                u32 b[4];
                load_four<true>(b, &v[t * 8 + lane % 16].at[2 * c + lane / 16]);
                multiply(sums[2 * c], a, b[0], b[1]);
                multiply(sums[2 * c], rest, b[0], b[1]);
                multiply(sums[2 * c + 1], a, b[2], b[3]);
                multiply(sums[2 * c + 1], rest, b[2], b[3]);
            }
        }
        // Values that are not finite are added here: multiplied with a weight of 0 or with the rest of a weight they
        // would give NaN.
        if (infinite != from) continue;
#pragma unroll
        for (i32 t = 0; t < KEYS / 8; ++t)
#pragma unroll
            for (i32 n = 0; n < 4; ++n) weighs[y + n / 2 * 8][t * 8 + x + n % 2] = p[t][n] != 0;
        __syncthreads();
        for (i32 j = 0; j < KEYS && from + j < args.seq_kv; ++j)
#pragma unroll
            for (i32 c = 0; c < 2 * PARTS; ++c)
#pragma unroll
                for (i32 n = 0; n < 4; ++n) {
                    const i32 row = y + n / 2 * 8, column = c * 8 + x + n % 2;
                    if (column >= VALUE) continue;
#if CAUSAL
                    if (from + j > first + row + shift) continue;
#endif
                    const f32 value = Number<T>::get(from_v[(from + j) * VALUE + column]);
                    if (!is_finite(value)) sums[c][n] += weighs[row][j] ? value : NAN_F32;
                }
    }
#pragma unroll
    for (i32 i = 0; i < 2; ++i) {
        f32 all = total[i] + across(total[i], 1);
        all += across(all, 2);
        const i64 row = first + y + i * 8;
        if (row >= args.seq_q) continue;
#pragma unroll
        for (i32 c = 0; c < 2 * PARTS; ++c)
#pragma unroll
            for (i32 n = 0; n < 2; ++n) {
                const i32 column = c * 8 + x + n;
                if (column >= VALUE) continue;
                const f32 found = all == 0 ? 0.0f : sums[c][2 * i + n] / all;
                args.output[(head * args.seq_q + row) * VALUE + column] = Number<T>::put(found);
            }
    }
}
