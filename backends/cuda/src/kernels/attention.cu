// Attention of ROWS queries per block, over KEYS keys at a time: sums so far are scaled down when a larger score is
// found (Milakov and Gimelshein 2018; Dao and others 2022). A thread computes the scores of PER queries with PER keys.
// Of the output it computes the same queries, in every ACROSS-th group of four columns.
typedef Number<T>::C C;

#define THREADS (ACROSS * DOWN)
#define ROWS (DOWN * PER)
#define KEYS (ACROSS * PER)
#define FOURS ((VALUE + 4 * ACROSS - 1) / (4 * ACROSS))
#define WIDTH (FOURS * ACROSS * 4)

struct Args {
    const T* q;
    const T* k;
    const T* v;
    T* output;
    i64 heads, seq_q, seq_kv;
    f64 scale;
};

// Loaded from shared memory in one access.
struct alignas(PER * sizeof(C)) Few { C at[PER]; };
struct alignas(4 * sizeof(C)) Four { C at[4]; };

// One more column than there are threads, so that threads that write a column have no bank conflicts.
union Tile {
    Few k[HEAD][ACROSS + 1];
    Few tops[ACROSS][DOWN + 1];
    Few weights[KEYS][DOWN + 1];
};

// GUARDED: a key with weight 0 adds nothing, even if its value is not finite.
template<bool GUARDED> static __device__ __forceinline__ void add_values(
    const Few (*weights)[DOWN + 1], const Four (*v)[FOURS * ACROSS], i32 x, i32 y, Four (*sums)[FOURS]
) {
    for (i32 key = 0; key < KEYS; ++key) {
        const Few weight = weights[key][y];
#pragma unroll (FOURS <= 8 ? FOURS : 1)
        for (i32 f = 0; f < FOURS; ++f) {
            const Four value = v[key][f * ACROSS + x];
#pragma unroll
            for (i32 i = 0; i < PER; ++i) {
                if (GUARDED && weight.at[i] == 0) continue;
#pragma unroll
                for (i32 n = 0; n < 4; ++n) sums[i][f].at[n] = FMA(weight.at[i], value.at[n], sums[i][f].at[n]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) kernel(const Args args) {
    __shared__ Few q[HEAD][DOWN + 1];
    __shared__ Tile tile;
    __shared__ Four v[KEYS][FOURS * ACROSS];
    const i32 thread = threadIdx.x, x = thread % ACROSS, y = thread / ACROSS;
    const i64 tiles = (args.seq_q + ROWS - 1) / ROWS;
    const i64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    const T* from_q = args.q + head * args.seq_q * HEAD;
    const T* from_k = args.k + head * args.seq_kv * HEAD;
    const T* from_v = args.v + head * args.seq_kv * VALUE;
    const C lowest = -(C)INFINITE_F32, scale = (C)args.scale;
    for (i32 e = thread; e < ROWS * HEAD; e += THREADS) {
        const i32 row = e / HEAD, d = e % HEAD;
        const i64 query = first + row;
        q[d][row / PER].at[row % PER] = query < args.seq_q ? Number<T>::get(from_q[query * HEAD + d]) : (C)0;
    }
    C top[PER], total[PER];
    Four sums[PER][FOURS];
    for (i32 i = 0; i < PER; ++i) {
        top[i] = lowest;
        // Sums over this thread's keys only.
        total[i] = 0;
        for (i32 f = 0; f < FOURS; ++f)
            for (i32 n = 0; n < 4; ++n) sums[i][f].at[n] = 0;
    }
    // Keys after the last one visible to this block's last query are not read.
    i64 seen = args.seq_kv;
#if CAUSAL
    const i64 shift = args.seq_kv - args.seq_q, last = first + ROWS + shift;
    if (last < seen) seen = last < 0 ? 0 : last;
#endif
    for (i64 from = 0; from < seen; from += KEYS) {
        __syncthreads();
        for (i32 e = thread; e < KEYS * HEAD; e += THREADS) {
            const i32 row = e / HEAD, d = e % HEAD;
            const i64 key = from + row;
            tile.k[d][row % ACROSS].at[row / ACROSS] = key < args.seq_kv ? Number<T>::get(from_k[key * HEAD + d]) : (C)0;
        }
        for (i32 e = thread; e < KEYS * WIDTH; e += THREADS) {
            const i32 row = e / WIDTH, column = e % WIDTH;
            const i64 key = from + row;
            const bool is_there = key < args.seq_kv && column < VALUE;
            v[row][column / 4].at[column % 4] = is_there ? Number<T>::get(from_v[key * VALUE + column]) : (C)0;
        }
        __syncthreads();
        C scores[PER][PER];
        for (i32 i = 0; i < PER; ++i)
            for (i32 j = 0; j < PER; ++j) scores[i][j] = 0;
#pragma unroll 4
        for (i32 d = 0; d < HEAD; ++d) {
            const Few a = q[d][y], b = tile.k[d][x];
#pragma unroll
            for (i32 i = 0; i < PER; ++i)
#pragma unroll
                for (i32 j = 0; j < PER; ++j) scores[i][j] = FMA(a.at[i], b.at[j], scores[i][j]);
        }
        Few best;
#pragma unroll
        for (i32 i = 0; i < PER; ++i) {
            best.at[i] = top[i];
#pragma unroll
            for (i32 j = 0; j < PER; ++j) {
                const i64 key = from + j * ACROSS + x;
                bool visible = key < args.seq_kv;
#if CAUSAL
                visible = visible && key <= first + y * PER + i + shift;
#endif
                scores[i][j] = visible ? scores[i][j] * scale : lowest;
                best.at[i] = larger(best.at[i], scores[i][j]);
            }
        }
        // Keys, maxima and weights share this memory, hence the barriers between them.
        __syncthreads();
        tile.tops[x][y] = best;
        __syncthreads();
        for (i32 other = 0; other < ACROSS; ++other) {
            const Few found = tile.tops[other][y];
#pragma unroll
            for (i32 i = 0; i < PER; ++i) best.at[i] = larger(best.at[i], found.at[i]);
        }
        __syncthreads();
        Few weights[PER];
#pragma unroll
        for (i32 i = 0; i < PER; ++i) {
            // While all scores are minus infinity, differences to the maximum would be NaN.
            const bool none = best.at[i] == lowest;
            const C less = none ? (C)1 : EXP(top[i] - best.at[i]);
            total[i] *= less;
#pragma unroll
            for (i32 j = 0; j < PER; ++j) {
                weights[j].at[i] = none ? (C)0 : EXP(scores[i][j] - best.at[i]);
                total[i] += weights[j].at[i];
            }
#pragma unroll (FOURS <= 8 ? FOURS : 1)
            for (i32 f = 0; f < FOURS; ++f)
#pragma unroll
                for (i32 n = 0; n < 4; ++n) sums[i][f].at[n] *= less;
            top[i] = best.at[i];
        }
#pragma unroll
        for (i32 j = 0; j < PER; ++j) tile.weights[j * ACROSS + x][y] = weights[j];
        __syncthreads();
#if CAUSAL
        if (from + KEYS - 1 > first + shift) add_values<true>(tile.weights, v, x, y, sums);
        else
#endif
            add_values<false>(tile.weights, v, x, y, sums);
    }
    __syncthreads();
    Few all;
    for (i32 i = 0; i < PER; ++i) all.at[i] = total[i];
    tile.tops[x][y] = all;
    __syncthreads();
    for (i32 i = 0; i < PER; ++i) {
        const i64 row = first + y * PER + i;
        if (row >= args.seq_q) continue;
        C sum = 0;
        for (i32 other = 0; other < ACROSS; ++other) sum += tile.tops[other][y].at[i];
        for (i32 f = 0; f < FOURS; ++f)
            for (i32 n = 0; n < 4; ++n) {
                const i32 column = (f * ACROSS + x) * 4 + n;
                if (column >= VALUE) continue;
                const C found = sum == 0 ? (C)0 : sums[i][f].at[n] / sum;
                args.output[(head * args.seq_q + row) * VALUE + column] = Number<T>::put(found);
            }
    }
}
