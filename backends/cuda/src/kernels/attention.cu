// Attention of ROWS queries by a block, over KEYS keys at a time: what was added up is scaled down where a larger score turns up
// (Milakov and Gimelshein 2018; Dao and others 2022).
typedef Number<T>::C C;

struct Args {
    const T* q;
    const T* k;
    const T* v;
    T* output;
    i64 heads, seq_q, seq_kv;
    f64 scale;
};

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    __shared__ C q[ROWS][HEAD + 1];
    __shared__ C k[KEYS][HEAD + 1];
    __shared__ C v[KEYS][VALUE];
    __shared__ C scores[ROWS][KEYS + 1];
    __shared__ C sums[ROWS][VALUE];
    __shared__ C top[ROWS], total[ROWS], fade[ROWS];
    const i64 tiles = (args.seq_q + ROWS - 1) / ROWS;
    const i64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    const T* from_q = args.q + head * args.seq_q * HEAD;
    const T* from_k = args.k + head * args.seq_kv * HEAD;
    const T* from_v = args.v + head * args.seq_kv * VALUE;
    const C lowest = -(C)INFINITE_F32, scale = (C)args.scale;
    for (i32 e = threadIdx.x; e < ROWS * HEAD; e += BLOCK) {
        const i64 row = first + e / HEAD;
        q[e / HEAD][e % HEAD] = row < args.seq_q ? Number<T>::get(from_q[row * HEAD + e % HEAD]) : (C)0;
    }
    for (i32 e = threadIdx.x; e < ROWS * VALUE; e += BLOCK) sums[e / VALUE][e % VALUE] = 0;
    for (i32 e = threadIdx.x; e < ROWS; e += BLOCK) {
        top[e] = lowest;
        total[e] = 0;
    }
    // Beyond the last key that the last of these queries sees nothing is read.
    i64 seen = args.seq_kv;
#if CAUSAL
    const i64 shift = args.seq_kv - args.seq_q, last = first + ROWS + shift;
    if (last < seen) seen = last < 0 ? 0 : last;
#endif
    for (i64 key = 0; key < seen; key += KEYS) {
        __syncthreads();
        for (i32 e = threadIdx.x; e < KEYS * HEAD; e += BLOCK) {
            const i64 row = key + e / HEAD;
            k[e / HEAD][e % HEAD] = row < args.seq_kv ? Number<T>::get(from_k[row * HEAD + e % HEAD]) : (C)0;
        }
        for (i32 e = threadIdx.x; e < KEYS * VALUE; e += BLOCK) {
            const i64 row = key + e / VALUE;
            v[e / VALUE][e % VALUE] = row < args.seq_kv ? Number<T>::get(from_v[row * VALUE + e % VALUE]) : (C)0;
        }
        __syncthreads();
        for (i32 e = threadIdx.x; e < ROWS * KEYS; e += BLOCK) {
            const i32 row = e / KEYS, column = e % KEYS;
            C score = 0;
            for (i32 d = 0; d < HEAD; ++d) score = FMA(q[row][d], k[column][d], score);
            bool visible = key + column < args.seq_kv;
#if CAUSAL
            visible = visible && key + column <= first + row + shift;
#endif
            scores[row][column] = visible ? score * scale : lowest;
        }
        __syncthreads();
        for (i32 row = threadIdx.x; row < ROWS; row += BLOCK) {
            C best = top[row];
            for (i32 c = 0; c < KEYS; ++c) best = larger(best, scores[row][c]);
            // With nothing but minus infinity so far, differences to it would be NaN.
            const bool none = best == lowest;
            const C less = none ? (C)1 : EXP(top[row] - best);
            C sum = total[row] * less;
            for (i32 c = 0; c < KEYS; ++c) {
                const C e = none ? (C)0 : EXP(scores[row][c] - best);
                scores[row][c] = e;
                sum += e;
            }
            top[row] = best;
            total[row] = sum;
            fade[row] = less;
        }
        __syncthreads();
        for (i32 e = threadIdx.x; e < ROWS * VALUE; e += BLOCK) {
            const i32 row = e / VALUE, column = e % VALUE;
            C sum = sums[row][column] * fade[row];
            for (i32 c = 0; c < KEYS; ++c) {
                const C weight = scores[row][c];
                // A key that is not seen adds nothing, whatever its value is.
                if (weight != 0) sum = FMA(weight, v[c][column], sum);
            }
            sums[row][column] = sum;
        }
    }
    __syncthreads();
    for (i32 e = threadIdx.x; e < ROWS * VALUE; e += BLOCK) {
        const i32 row = e / VALUE, column = e % VALUE;
        if (first + row >= args.seq_q) continue;
        const C sum = total[row] == 0 ? (C)0 : sums[row][column] / total[row];
        args.output[(head * args.seq_q + first + row) * VALUE + column] = Number<T>::put(sum);
    }
}
