// Cross entropy of one row per block, or, if BACKWARD, one element of its gradient per thread. A class outside the row
// is reported in `status`.
typedef Number<T>::C C;
typedef Adder<C> Rule;

struct Args {
    const T* logits;
    const i64* target;
    i64* status;
    T* loss;
    T* logsumexp;
    T* grad;
    u64 rows, columns;
    i64 ignored;
    f64 kept, spread;
};

static __device__ __forceinline__ bool known(const Args& args, i64 index) {
    return index >= 0 && index < (i64)args.columns;
}

static __device__ __forceinline__ void tell(const Args& args, i64 index) {
    if (atomicCAS((u64*)args.status, 0ull, 1ull) == 0) {
        args.status[1] = index;
        args.status[2] = (i64)args.columns;
    }
}

#if BACKWARD
extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const u64 at = FIRST, row = at / args.columns, column = at - row * args.columns;
    if (row >= args.rows) return;
    const i64 index = args.target[row];
    const bool counts = index != args.ignored;
    if (counts && !known(args, index)) {
        if (column == 0) tell(args, index);
        return;
    }
    const C grad = counts ? Number<T>::get(args.loss[row]) : (C)0;
    C share = EXP(Number<T>::get(args.logits[at]) - Number<T>::get(args.logsumexp[row]));
    share = share - (C)args.spread / (C)args.columns;
    if (counts && (i64)column == index) share = share - (C)args.kept;
    args.grad[at] = Number<T>::put(share * grad);
}
#else
static __device__ __forceinline__ C sum_of(Rule::State state, Rule::State* all) {
    __syncthreads();
    all[threadIdx.x] = state;
    __syncthreads();
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) Rule::merge(all[threadIdx.x], all[threadIdx.x + half]);
        __syncthreads();
    }
    return Rule::value(all[0]);
}

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    __shared__ Rule::State all[BLOCK];
    __shared__ C tops[BLOCK];
    const u64 row = blockIdx.x, n = args.columns;
    const T* x = args.logits + row * n;
    C top = -(C)INFINITE_F32;
    for (u64 i = threadIdx.x; i < n; i += BLOCK) top = larger(top, Number<T>::get(x[i]));
    tops[threadIdx.x] = top;
    __syncthreads();
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tops[threadIdx.x] = larger(tops[threadIdx.x], tops[threadIdx.x + half]);
        __syncthreads();
    }
    top = tops[0];
    Rule::State state = Rule::start();
    for (u64 i = threadIdx.x; i < n; i += BLOCK) Rule::add(state, EXP(Number<T>::get(x[i]) - top));
    const C log_sum = LOGARITHM(sum_of(state, all));
    C below = 0;
    if (args.spread > 0) {
        state = Rule::start();
        for (u64 i = threadIdx.x; i < n; i += BLOCK) Rule::add(state, top - Number<T>::get(x[i]));
        below = sum_of(state, all) / (C)n;
    }
    if (threadIdx.x != 0) return;
    args.logsumexp[row] = Number<T>::put(top + log_sum);
    const i64 index = args.target[row];
    C loss = 0;
    if (index != args.ignored) {
        if (!known(args, index)) {
            tell(args, index);
            return;
        }
        loss = log_sum + (top - Number<T>::get(x[index]));
        if (args.spread > 0) loss = (C)args.kept * loss + (C)args.spread * (log_sum + below);
    }
    args.loss[row] = Number<T>::put(loss);
}
#endif
