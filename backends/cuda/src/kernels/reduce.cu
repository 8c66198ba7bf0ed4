// A reduction of any view: output `o` of each chunk is computed by a block or (COLUMN) by one thread.
// OP: 0 sum, 1 mean, 2 prod, 3 max, 4 min, 5 any, 6 all. FROM 1: the input is the states of an earlier pass.
typedef Number<T>::C C;

struct Extreme {
    typedef Plain<C> State;
    static __device__ __forceinline__ State start() {
        State out;
        out.sum = START;
        return out;
    }
    static __device__ __forceinline__ void add(State& to, C x) {
#if OP == 2
        to.sum = PRODUCT(to.sum, x);
#elif OP == 3
        to.sum = larger(to.sum, x);
#elif OP == 4
        to.sum = smaller(to.sum, x);
#elif OP == 5
        to.sum = to.sum || x;
#else
        to.sum = to.sum && x;
#endif
    }
    static __device__ __forceinline__ void merge(State& to, State x) { add(to, x.sum); }
    static __device__ __forceinline__ C value(State x) { return x.sum; }
};

#if OP < 2
typedef Adder<C> Rule;
#else
typedef Extreme Rule;
#endif

struct Args {
    const void* input;
    void* output;
    u64 outputs, len, chunks, chunk, count;
    i64 kept[KEPT], kept_strides[KEPT], gone[GONE], gone_strides[GONE];
};

static __device__ __forceinline__ void take(Rule::State& state, const Args& args, i64 base, u64 i) {
    const i64 at = base + place<GONE>(i, args.gone, args.gone_strides);
#if FROM
    Rule::merge(state, ((const Rule::State*)args.input)[at]);
#else
    Rule::add(state, Number<T>::get(((const T*)args.input)[at]));
#endif
}

static __device__ __forceinline__ void give(Rule::State state, const Args& args, u64 at) {
#if TO
    ((Rule::State*)args.output)[at] = state;
#elif OP == 1
    ((T*)args.output)[at] = Number<T>::put(Rule::value(state) / (C)args.count);
#else
    ((T*)args.output)[at] = Number<T>::put(Rule::value(state));
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
#if COLUMN
    const u64 at = FIRST;
    if (at >= args.outputs) return;
    Rule::State state = Rule::start();
    const i64 base = place<KEPT>(at, args.kept, args.kept_strides);
    for (u64 i = 0; i < args.len; ++i) take(state, args, base, i);
    give(state, args, at);
#else
    __shared__ Rule::State states[BLOCK];
    const u64 at = blockIdx.x, out = at / args.chunks, begin = (at - out * args.chunks) * args.chunk;
    const u64 end = begin + args.chunk < args.len ? begin + args.chunk : args.len;
    const i64 base = place<KEPT>(out, args.kept, args.kept_strides);
    Rule::State state = Rule::start();
    for (u64 i = begin + threadIdx.x; i < end; i += BLOCK) take(state, args, base, i);
    states[threadIdx.x] = state;
    __syncthreads();
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) Rule::merge(states[threadIdx.x], states[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) give(states[0], args, at);
#endif
}
