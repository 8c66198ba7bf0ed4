// Attention of 64 queries per block, over 64 keys at a time, computed like attention.cu with the products of
// matrices.cu.
#define KEYS 64

struct Args {
    const T* q;
    const T* k;
    const T* v;
    T* output;
    i64 heads, seq_q, seq_kv;
    f64 scale;
};

extern "C" __global__ void __launch_bounds__(THREADS) kernel(const Args args) {
    __shared__ Row<STEPS> k[KEYS];
    __shared__ Row<PARTS> v[KEYS];
    // The last tile of keys with a value that is not finite, and which weights are not 0.
    __shared__ i64 infinite;
    __shared__ u8 weighs[ROWS][KEYS];
    const i32 lane = threadIdx.x % 32, y = threadIdx.x / 32 * 16 + lane / 4, x = lane % 4 * 2;
    const i64 tiles = (args.seq_q + ROWS - 1) / ROWS;
    const i64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    const T* from_k = args.k + head * args.seq_kv * HEAD;
    const T* from_v = args.v + head * args.seq_kv * VALUE;
    const f32 lowest = -INFINITE_F32, scale = (f32)args.scale;
    if (threadIdx.x == 0) infinite = -1;
    bring<HEAD>(k, args.q + (head * args.seq_q + first) * HEAD, args.seq_q - first);
    __syncthreads();
    u32 q[STEPS][4];
    as_left(q, k);
    f32 top[2] = {lowest, lowest};
    // Sums over this thread's keys only.
    f32 total[2] = {0, 0};
    f32 sums[2 * PARTS][4];
    clear(sums);
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
        multiply_rows(p, q, k);
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
            best[i] = row_top(best[i]);
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
            stretch(sums, i, less);
            top[i] = best[i];
        }
        add_weighted(sums, p, v);
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
    f32 by[2];
#pragma unroll
    for (i32 i = 0; i < 2; ++i) {
        const f32 all = row_sum(total[i]);
        by[i] = all == 0 ? 0.0f : 1.0f / all;
    }
    store<VALUE>(args.output + (head * args.seq_q + first) * VALUE, args.seq_q - first, sums, by);
}
