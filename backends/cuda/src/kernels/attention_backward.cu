// The gradient of attention, with the products of matrices.cu. The first launch has blocks of 64 queries, which write
// the queries' gradients and what the second needs of each query; the second has blocks of 64 keys (BY_KEYS), which
// write the gradients of keys and values. So each number is summed by one thread, in one order. For weights P and
// gradients G of the output, D = Σ P (G Vᵀ) of each query, and S = P (G Vᵀ - D), the gradients are scale S K of Q,
// scale Sᵀ Q of K and Pᵀ G of V (Dao and others 2022). The rounded output would give D with too few digits.

// Weights of the second launch are multiplied by this power of two, since f16 has few digits for small numbers.
#if SMALL_RANGE
#define WEIGHT 16384.0f
#else
#define WEIGHT 1.0f
#endif

// Of each query: the logarithm of the sum of the exponentials of its scores, and D.
struct Stats { f32 log_sum, mean; };

struct Args {
    const T* q;
    const T* k;
    const T* v;
    const T* grad;
    T* to_q;
    T* to_k;
    T* to_v;
    Stats* stats;
    i64 seq_q, seq_kv;
    f64 scale;
};

// Multiplies rows of S by powers of two before they are rounded to f16, which S itself may exceed.
struct Units {
    // The exponents of the largest numbers so far, biased by 127.
    u32 top[2];

    __device__ __forceinline__ Units() { top[0] = top[1] = 32; }
    static __device__ __forceinline__ f32 power(u32 biased) {
        return SMALL_RANGE ? __uint_as_float(biased << 23) : 1.0f;
    }
    // This keeps numbers below 2^15.
    __device__ __forceinline__ f32 of(i32 i) const { return power(268 - top[i]); }
    // The inverse of `of`.
    __device__ __forceinline__ f32 back(i32 i) const { return power(top[i] - 14); }
    // Multiplies the next part of S, and the sums so far if the unit changes.
    template<int EIGHTS, int COUNT>
    __device__ __forceinline__ void fit(f32 (&s)[EIGHTS][4], f32 (&sums)[COUNT][4]) {
        if (!SMALL_RANGE) return;
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            f32 largest = 0;
#pragma unroll
            for (i32 t = 0; t < EIGHTS; ++t)
#pragma unroll
                for (i32 n = 2 * i; n < 2 * i + 2; ++n) largest = larger(largest, fabsf(s[t][n]));
            const f32 before = back(i);
            const u32 exponent = __float_as_uint(row_top(largest)) >> 23;
            if (exponent > top[i]) top[i] = exponent;
            stretch(sums, i, before * of(i));
            stretch(s, i, of(i));
        }
    }
};

// G Vᵀ, or its transpose, becomes S, and the product of queries and keys becomes P.
static __device__ __forceinline__ void weigh(f32& product, f32& grad, bool visible, f32 scale, Stats stats) {
    const f32 score = product * scale;
    // A query that sees no key has no sum.
    const bool none = !visible || score == -INFINITE_F32;
    product = none ? 0.0f : EXP(score - stats.log_sum);
    grad = none ? 0.0f : product * (grad - stats.mean);
}

extern "C" __global__ void __launch_bounds__(THREADS) kernel(const Args args) {
    // Of this block: queries and the output's gradients, or keys and values. Of a tile: the others.
    __shared__ Row<STEPS> own[ROWS], other[TILE];
    __shared__ Row<PARTS> own_wide[ROWS], other_wide[TILE];
    const i32 lane = threadIdx.x % 32, y = threadIdx.x / 32 * 16 + lane / 4, x = lane % 4 * 2;
    const i64 shift = args.seq_kv - args.seq_q;
    const i64 own_rows = BY_KEYS ? args.seq_kv : args.seq_q, other_rows = BY_KEYS ? args.seq_q : args.seq_kv;
    const i64 tiles = (own_rows + ROWS - 1) / ROWS;
    const i64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    const T* from = (BY_KEYS ? args.q : args.k) + head * other_rows * HEAD;
    const T* from_wide = (BY_KEYS ? args.grad : args.v) + head * other_rows * VALUE;
    const f32 scale = (f32)args.scale;
    bring<HEAD>(own, (BY_KEYS ? args.k : args.q) + (head * own_rows + first) * HEAD, own_rows - first);
    bring<VALUE>(own_wide, (BY_KEYS ? args.v : args.grad) + (head * own_rows + first) * VALUE, own_rows - first);
    // Products of own rows and others, which become P; and of those of the wide ones, which become S.
    f32 p[TILE / 8][4], s[TILE / 8][4];
    const auto load = [&](i64 at) {
        __syncthreads();
        bring<HEAD>(other, from + at * HEAD, other_rows - at);
        bring<VALUE>(other_wide, from_wide + at * VALUE, other_rows - at);
        __syncthreads();
        u32 left[STEPS][4];
        as_left(left, own);
        multiply_rows(p, left, other);
        u32 left_wide[PARTS][4];
        as_left(left_wide, own_wide);
        multiply_rows(s, left_wide, other_wide);
    };
    const auto visible = [&](i64 query, i64 key) {
        return query < args.seq_q && key < args.seq_kv && (!CAUSAL || key <= query + shift);
    };
    f32 sums[2 * STEPS][4];
    clear(sums);
    Units units;
    f32 by[2];
#if BY_KEYS
    __shared__ Stats stats[TILE];
    f32 sums_wide[2 * PARTS][4];
    clear(sums_wide);
    // Queries before the first one that sees this block's first key are not read.
    const i64 start = CAUSAL && first > shift ? first - shift : 0;
    for (i64 at = start; at < args.seq_q; at += TILE) {
        load(at);
        const Stats* from_stats = args.stats + head * args.seq_q + at;
        for (i32 e = threadIdx.x; e < TILE && at + e < args.seq_q; e += THREADS) stats[e] = from_stats[e];
        __syncthreads();
#pragma unroll
        for (i32 t = 0; t < TILE / 8; ++t)
#pragma unroll
            for (i32 n = 0; n < 4; ++n) {
                const i32 query = t * 8 + x + n % 2;
                weigh(p[t][n], s[t][n], visible(at + query, first + y + n / 2 * 8), scale, stats[query]);
                p[t][n] *= WEIGHT;
            }
        add_weighted(sums_wide, p, other_wide);
        units.fit(s, sums);
        add_weighted(sums, s, other);
    }
    by[0] = by[1] = 1 / WEIGHT;
    store<VALUE>(args.to_v + (head * args.seq_kv + first) * VALUE, args.seq_kv - first, sums_wide, by);
#else
    // Keys after the last one visible to this block's last query are not read.
    i64 seen = args.seq_kv;
    if (CAUSAL && first + ROWS + shift < seen) seen = first + ROWS + shift;
    const f32 lowest = -INFINITE_F32;
    f32 top[2] = {lowest, lowest};
    // Sums over this thread's keys only: of the exponentials of scores, and of their products with G Vᵀ.
    f32 total[2] = {0, 0}, weighted[2] = {0, 0};
    for (i64 at = 0; at < seen; at += TILE) {
        load(at);
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            f32 best = top[i];
#pragma unroll
            for (i32 t = 0; t < TILE / 8; ++t)
#pragma unroll
                for (i32 n = 2 * i; n < 2 * i + 2; ++n) {
                    p[t][n] = visible(first + y + i * 8, at + t * 8 + x + n % 2) ? p[t][n] * scale : lowest;
                    best = larger(best, p[t][n]);
                }
            best = row_top(best);
            const f32 less = best == lowest ? 1.0f : EXP(top[i] - best);
            total[i] *= less;
            weighted[i] *= less;
#pragma unroll
            for (i32 t = 0; t < TILE / 8; ++t)
#pragma unroll
                for (i32 n = 2 * i; n < 2 * i + 2; ++n) {
                    if (p[t][n] == lowest) continue;
                    const f32 weight = EXP(p[t][n] - best);
                    total[i] += weight;
                    weighted[i] += weight * s[t][n];
                }
            top[i] = best;
        }
    }
    Stats stats[2];
#pragma unroll
    for (i32 i = 0; i < 2; ++i) {
        const f32 all = row_sum(total[i]);
        stats[i].mean = row_sum(weighted[i]) / all;
        stats[i].log_sum = top[i] + LOGARITHM(all);
        if (x == 0 && first + y + i * 8 < args.seq_q) args.stats[head * args.seq_q + first + y + i * 8] = stats[i];
    }
    for (i64 at = 0; at < seen; at += TILE) {
        load(at);
#pragma unroll
        for (i32 t = 0; t < TILE / 8; ++t)
#pragma unroll
            for (i32 n = 0; n < 4; ++n) {
                const i32 i = n / 2;
                const bool is_seen = visible(first + y + i * 8, at + t * 8 + x + n % 2);
                weigh(p[t][n], s[t][n], is_seen, scale, stats[i]);
            }
        units.fit(s, sums);
        add_weighted(sums, s, other);
    }
#endif
    by[0] = scale * units.back(0);
    by[1] = scale * units.back(1);
    T* to = (BY_KEYS ? args.to_k : args.to_q) + (head * own_rows + first) * HEAD;
    store<HEAD>(to, own_rows - first, sums, by);
}
