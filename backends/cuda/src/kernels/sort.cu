// A bitonic sort of positions. Positions decide between equal values, so the sort is stable. STEP 0: the start, 1: an
// exchange, 2: the results.
typedef Number<T>::C C;

struct Args {
    const T* input;
    i64* scratch;
    T* values;
    i64* positions;
    u64 lines, len, padded, size, distance;
    i64 stride, out_stride, kept[KEPT], kept_strides[KEPT], out_strides[KEPT];
};

static __device__ __forceinline__ bool before(const T* line, i64 stride, u64 len, i64 i, i64 j) {
    // Padding of the line comes last.
    if (i >= (i64)len || j >= (i64)len) return i < j;
    const C a = Number<T>::get(line[i * stride]), b = Number<T>::get(line[j * stride]);
    const bool nan_a = is_nan(a), nan_b = is_nan(b);
    if (nan_a || nan_b) {
        if (nan_a && nan_b) return i < j;
        return nan_a == (DESCENDING != 0);
    }
    if (a == b) return i < j;
    return DESCENDING ? a > b : a < b;
}

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const u64 at = FIRST;
#if STEP == 0
    if (at < args.lines * args.padded) args.scratch[at] = (i64)(at % args.padded);
#elif STEP == 1
    if (at >= args.lines * (args.padded / 2)) return;
    const u64 line = at / (args.padded / 2), i = at % (args.padded / 2);
    const u64 low = (i / args.distance) * 2 * args.distance + i % args.distance, high = low + args.distance;
    const T* from = args.input + place<KEPT>(line, args.kept, args.kept_strides);
    i64* positions = args.scratch + line * args.padded;
    const i64 a = positions[low], b = positions[high];
    const bool up = (low & args.size) == 0;
    if (before(from, args.stride, args.len, b, a) == up) {
        positions[low] = b;
        positions[high] = a;
    }
#else
    if (at >= args.lines * args.len) return;
    const u64 line = at / args.len, i = at % args.len;
    const i64 position = args.scratch[line * args.padded + i];
    const i64 to = place<KEPT>(line, args.kept, args.out_strides) + (i64)i * args.out_stride;
    args.values[to] = args.input[place<KEPT>(line, args.kept, args.kept_strides) + position * args.stride];
    args.positions[to] = position;
#endif
}
