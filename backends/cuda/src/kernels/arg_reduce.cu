// The position of a line's extreme: the first wins a tie, and NaN counts as the extreme.
typedef Number<T>::C C;

struct Args {
    const T* input;
    i64* output;
    u64 outputs, len;
    i64 stride, kept[KEPT], kept_strides[KEPT];
};

struct Best { C value; i64 at; };

static __device__ __forceinline__ bool beats(C a, i64 i, C b, i64 j) {
    if (j < 0 || i < 0) return j < 0 && i >= 0;
    const bool nan_a = is_nan(a), nan_b = is_nan(b);
    if (nan_a || nan_b) return nan_a && (!nan_b || i < j);
    if (a == b) return i < j;
#if LARGEST
    return a > b;
#else
    return a < b;
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    __shared__ Best all[BLOCK];
    const u64 out = blockIdx.x;
    const T* line = args.input + place<KEPT>(out, args.kept, args.kept_strides);
    Best best;
    best.value = 0;
    best.at = -1;
    for (u64 i = threadIdx.x; i < args.len; i += BLOCK) {
        const C value = Number<T>::get(line[(i64)i * args.stride]);
        if (beats(value, (i64)i, best.value, best.at)) {
            best.value = value;
            best.at = (i64)i;
        }
    }
    all[threadIdx.x] = best;
    __syncthreads();
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const Best other = all[threadIdx.x + half], mine = all[threadIdx.x];
            if (beats(other.value, other.at, mine.value, mine.at)) all[threadIdx.x] = other;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) args.output[out] = all[0].at;
}
