// Layer normalisation of one row per block: first the mean, then the variance around it.
typedef Number<T>::C C;
typedef Adder<C> Rule;

struct Args {
    const T* input;
    const T* weight;
    const T* bias;
    T* output;
    T* mean;
    T* rstd;
    u64 rows, columns;
    f64 eps;
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
    const u64 row = blockIdx.x, n = args.columns, base = row * n;
    const T* x = args.input + base;
    T* y = args.output + base;
    Rule::State state = Rule::start();
    for (u64 i = threadIdx.x; i < n; i += BLOCK) Rule::add(state, Number<T>::get(x[i]));
    const C mean = sum_of(state, all) / (C)n;
    state = Rule::start();
    for (u64 i = threadIdx.x; i < n; i += BLOCK) {
        const C d = Number<T>::get(x[i]) - mean;
        Rule::add(state, d * d);
    }
    const C variance = sum_of(state, all) / (C)n;
    const C rstd = (C)1 / ROOT(variance + (C)args.eps);
    for (u64 i = threadIdx.x; i < n; i += BLOCK) {
        C value = (Number<T>::get(x[i]) - mean) * rstd;
        if (args.weight) value = value * Number<T>::get(args.weight[i]);
        if (args.bias) value = value + Number<T>::get(args.bias[i]);
        y[i] = Number<T>::put(value);
    }
    if (threadIdx.x == 0) {
        args.mean[row] = Number<T>::put(mean);
        args.rstd[row] = Number<T>::put(rstd);
    }
}
