// Running sums of one line per block: each thread sums up a part, the parts' sums are summed up, and each thread goes
// through its part again.
typedef Number<T>::C C;
typedef Adder<C> Rule;

struct Args {
    const T* input;
    T* output;
    u64 lines, len;
    i64 stride, out_stride, kept[KEPT], kept_strides[KEPT], out_strides[KEPT];
};

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    __shared__ Rule::State parts[BLOCK];
    const u64 line = blockIdx.x;
    const T* from = args.input + place<KEPT>(line, args.kept, args.kept_strides);
    T* to = args.output + place<KEPT>(line, args.kept, args.out_strides);
    const u64 part = (args.len + BLOCK - 1) / BLOCK, begin = part * threadIdx.x;
    const u64 end = begin + part < args.len ? begin + part : args.len;
    Rule::State state = Rule::start();
    for (u64 i = begin; i < end; ++i) Rule::add(state, Number<T>::get(from[(i64)i * args.stride]));
    parts[threadIdx.x] = state;
    __syncthreads();
    if (threadIdx.x == 0) {
        Rule::State before = Rule::start();
        for (u32 i = 0; i < BLOCK; ++i) {
            const Rule::State mine = parts[i];
            parts[i] = before;
            Rule::merge(before, mine);
        }
    }
    __syncthreads();
    state = parts[threadIdx.x];
    for (u64 i = begin; i < end; ++i) {
        Rule::add(state, Number<T>::get(from[(i64)i * args.stride]));
        to[(i64)i * args.out_stride] = Number<T>::put(Rule::value(state));
    }
}
