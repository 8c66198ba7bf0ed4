// Products of 16-bit matrices by tensor cores (PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix"), for blocks
// of four warps over 64 rows. A warp has 16 rows. A thread has rows `y` and `y + 8` of them, and columns `x` and
// `x + 1` of each eight: number `n` of four is in row `y + n / 2 * 8` and column `x + n % 2`.
#define THREADS 128
#define ROWS 64
// Groups of 16 columns of a head, and of values; at least one, since C++ has no empty arrays.
#define STEPS (HEAD == 0 ? 1 : (HEAD + 15) / 16)
#define PARTS (VALUE == 0 ? 1 : (VALUE + 15) / 16)

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

// The sum over the four threads of a row.
static __device__ __forceinline__ f32 row_sum(f32 x) {
    x += across(x, 1);
    return x + across(x, 2);
}

// The larger of `x` and of the numbers of the four threads of a row.
static __device__ __forceinline__ f32 row_top(f32 x) {
    x = larger(x, across(x, 1));
    return larger(x, across(x, 2));
}

static __device__ __forceinline__ u32 pair(u16 low, u16 high) { return (u32)low | (u32)high << 16; }

template<int COUNT> static __device__ __forceinline__ void clear(f32 (&sums)[COUNT][4]) {
#pragma unroll
    for (i32 c = 0; c < COUNT; ++c)
#pragma unroll
        for (i32 n = 0; n < 4; ++n) sums[c][n] = 0;
}

// Multiplies rows `y` and `y + 8`.
template<int COUNT> static __device__ __forceinline__ void stretch(f32 (&sums)[COUNT][4], i32 i, f32 by) {
#pragma unroll
    for (i32 c = 0; c < COUNT; ++c)
#pragma unroll
        for (i32 n = 2 * i; n < 2 * i + 2; ++n) sums[c][n] *= by;
}

// Loads COUNT rows of `WIDTH` columns into shared memory; columns beyond them and rows from `count` on are 0. If
// `infinite` is given, numbers that are not finite become 0 as well, and `*infinite` is then set to `tile`.
template<int WIDTH, int COUNT, int GROUPS>
static __device__ __forceinline__ void
bring(Row<GROUPS> (&to)[COUNT], const T* from, i64 count, i64* infinite = 0, i64 tile = 0) {
    for (i32 e = threadIdx.x; e < COUNT * 2 * GROUPS; e += THREADS) {
        const i32 row = e / (2 * GROUPS), column = e % (2 * GROUPS) * 8;
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

// The warp's 16 rows as left factors.
template<int GROUPS>
static __device__ __forceinline__ void as_left(u32 (&out)[GROUPS][4], const Row<GROUPS> (&rows)[ROWS]) {
    const i32 lane = threadIdx.x % 32, base = threadIdx.x / 32 * 16;
#pragma unroll
    for (i32 s = 0; s < GROUPS; ++s) load_four<false>(out[s], &rows[base + lane % 16].at[2 * s + lane / 16]);
}

// The products of the warp's 16 rows `a` and all others: `out = a rowsᵀ`.
template<int GROUPS, int EIGHTS>
static __device__ __forceinline__ void
multiply_rows(f32 (&out)[EIGHTS][4], const u32 (&a)[GROUPS][4], const Row<GROUPS> (&rows)[EIGHTS * 8]) {
    const i32 lane = threadIdx.x % 32;
    clear(out);
#pragma unroll
    for (i32 t = 0; t < EIGHTS; t += 2)
#pragma unroll
        for (i32 s = 0; s < GROUPS; ++s) {
            u32 b[4];
            load_four<false>(b, &rows[t * 8 + lane / 16 * 8 + lane % 8].at[2 * s + lane / 8 % 2]);
            multiply(out[t], a[s], b[0], b[1]);
            multiply(out[t + 1], a[s], b[2], b[3]);
        }
}

// sums += weights rows. A weight is multiplied as two 16-bit numbers, the rounded weight and the rest, so that the
// result is rounded once.
template<int GROUPS, int EIGHTS>
static __device__ __forceinline__ void add_weighted(
    f32 (&sums)[2 * GROUPS][4], const f32 (&weights)[EIGHTS][4], const Row<GROUPS> (&rows)[EIGHTS * 8]
) {
    const i32 lane = threadIdx.x % 32;
#pragma unroll
    for (i32 t = 0; t < EIGHTS; t += 2) {
        u32 a[4], rest[4];
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            u16 bits[2], lacks[2];
#pragma unroll
            for (i32 n = 0; n < 2; ++n) {
                const f32 weight = weights[t + i / 2][i % 2 * 2 + n];
                const T near = Number<T>::put(weight);
                bits[n] = near.bits;
                lacks[n] = Number<T>::put(weight - Number<T>::get(near)).bits;
            }
            a[i] = pair(bits[0], bits[1]);
            rest[i] = pair(lacks[0], lacks[1]);
        }
#pragma unroll
        for (i32 c = 0; c < GROUPS; ++c) {
            u32 b[4];
            load_four<true>(b, &rows[t * 8 + lane % 16].at[2 * c + lane / 16]);
            multiply(sums[2 * c], a, b[0], b[1]);
            multiply(sums[2 * c], rest, b[0], b[1]);
            multiply(sums[2 * c + 1], a, b[2], b[3]);
            multiply(sums[2 * c + 1], rest, b[2], b[3]);
        }
    }
}

// Writes the block's rows, of which there are `count`, each multiplied by its factor; a factor of 0 gives 0.
template<int WIDTH, int COUNT>
static __device__ __forceinline__ void store(T* to, i64 count, const f32 (&sums)[COUNT][4], const f32 (&by)[2]) {
    const i32 lane = threadIdx.x % 32, y = threadIdx.x / 32 * 16 + lane / 4, x = lane % 4 * 2;
#pragma unroll
    for (i32 i = 0; i < 2; ++i) {
        const i64 row = y + i * 8;
        if (row >= count) continue;
#pragma unroll
        for (i32 c = 0; c < COUNT; ++c)
#pragma unroll
            for (i32 n = 0; n < 2; ++n) {
                const i32 column = c * 8 + x + n;
                if (column >= WIDTH) continue;
                to[row * WIDTH + column] = Number<T>::put(by[i] == 0 ? 0.0f : sums[c][2 * i + n] * by[i]);
            }
    }
}
