// One window per thread. LARGEST: its largest element and the position of it; else its mean.
typedef Number<T>::C C;

struct Args {
    const T* input;
    T* output;
    i64* positions;
    u64 count;
    i64 height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, step_h, step_w, with_pad;
};

static __device__ __forceinline__ i64 least(i64 a, i64 b) { return a < b ? a : b; }

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const u64 i = FIRST;
    if (i >= args.count) return;
    const i64 column = (i64)(i % (u64)args.out_width), row = (i64)(i / (u64)args.out_width % (u64)args.out_height);
    const T* plane = args.input + i / (u64)(args.out_width * args.out_height) * (u64)(args.height * args.width);
    const i64 top = row * args.stride_h - args.pad_h, left = column * args.stride_w - args.pad_w;
#if LARGEST
    C best = 0;
    i64 at = -1;
#else
    Adder<C>::State state = Adder<C>::start();
    i64 seen = 0;
#endif
    for (i64 r = 0; r < args.kernel_h; ++r) {
        const i64 y = top + r * args.step_h;
        if (y < 0 || y >= args.height) continue;
        for (i64 s = 0; s < args.kernel_w; ++s) {
            const i64 x = left + s * args.step_w;
            if (x < 0 || x >= args.width) continue;
            const C value = Number<T>::get(plane[y * args.width + x]);
#if LARGEST
            if (at < 0 || value > best || (is_nan(value) && !is_nan(best))) {
                best = value;
                at = y * args.width + x;
            }
#else
            Adder<C>::add(state, value);
            seen += 1;
#endif
        }
    }
#if LARGEST
    args.output[i] = Number<T>::put(best);
    args.positions[i] = at;
#else
    if (args.with_pad) {
        const i64 bottom = least(top + args.kernel_h, args.height + args.pad_h);
        const i64 right = least(left + args.kernel_w, args.width + args.pad_w);
        seen = (bottom - top) * (right - left);
    }
    args.output[i] = Number<T>::put(Adder<C>::value(state) / (C)seen);
#endif
}
