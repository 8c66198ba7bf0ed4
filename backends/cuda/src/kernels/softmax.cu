// Softmax of one row per block, or its gradient. LOG: log-softmax.
typedef Number<T>::C C;
typedef Adder<C> Rule;

struct Args {
    const T* input;
    const T* saved;
    T* output;
    u64 rows, columns;
};

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
    const u64 n = args.columns, base = (u64)blockIdx.x * n;
    const T* x = args.input + base;
    T* y = args.output + base;
    Rule::State state = Rule::start();
#if BACKWARD
    const T* saved = args.saved + base;
    for (u64 i = threadIdx.x; i < n; i += BLOCK) {
        const C grad = Number<T>::get(x[i]);
        Rule::add(state, LOG ? grad : grad * Number<T>::get(saved[i]));
    }
    const C sum = sum_of(state, all);
    for (u64 i = threadIdx.x; i < n; i += BLOCK) {
        const C grad = Number<T>::get(x[i]), out = Number<T>::get(saved[i]);
        y[i] = Number<T>::put(LOG ? grad - EXP(out) * sum : out * (grad - sum));
    }
#else
    __shared__ C tops[BLOCK];
    C top = -(C)INFINITE_F32;
    for (u64 i = threadIdx.x; i < n; i += BLOCK) top = larger(top, Number<T>::get(x[i]));
    tops[threadIdx.x] = top;
    __syncthreads();
    for (u32 half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) tops[threadIdx.x] = larger(tops[threadIdx.x], tops[threadIdx.x + half]);
        __syncthreads();
    }
    top = tops[0];
    for (u64 i = threadIdx.x; i < n; i += BLOCK) Rule::add(state, EXP(Number<T>::get(x[i]) - top));
    const C sum = sum_of(state, all);
#if LOG
    const C log_sum = LOGARITHM(sum);
    for (u64 i = threadIdx.x; i < n; i += BLOCK) y[i] = Number<T>::put((Number<T>::get(x[i]) - top) - log_sum);
#else
    for (u64 i = threadIdx.x; i < n; i += BLOCK) y[i] = Number<T>::put(EXP(Number<T>::get(x[i]) - top) / sum);
#endif
#endif
}
