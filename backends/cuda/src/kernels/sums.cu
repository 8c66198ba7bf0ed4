// States of reductions. A float sum also accumulates the rounding error of each addition (Neumaier 1974); integers
// wrap.
template<class C> struct Total { C sum, lost; };
template<class C> struct Plain { C sum; };

template<class C> static __device__ __forceinline__ void two_sum(Total<C>& to, C x) {
    const C sum = to.sum + x;
    const C a = to.sum < 0 ? -to.sum : to.sum, b = x < 0 ? -x : x;
    to.lost += a >= b ? (to.sum - sum) + x : (x - sum) + to.sum;
    to.sum = sum;
}

template<class C> struct Adder {
    typedef Plain<C> State;
    static __device__ __forceinline__ State start() { State out; out.sum = 0; return out; }
    static __device__ __forceinline__ void add(State& to, C x) { to.sum = (C)((u64)to.sum + (u64)x); }
    static __device__ __forceinline__ void merge(State& to, State x) { add(to, x.sum); }
    static __device__ __forceinline__ C value(State x) { return x.sum; }
};
template<class C> struct FloatAdder {
    typedef Total<C> State;
    static __device__ __forceinline__ State start() { State out; out.sum = 0; out.lost = 0; return out; }
    static __device__ __forceinline__ void add(State& to, C x) { two_sum(to, x); }
    static __device__ __forceinline__ void merge(State& to, State x) { two_sum(to, x.sum); to.lost += x.lost; }
    // Once the sum is infinite, the rounding error is infinity minus infinity.
    static __device__ __forceinline__ C value(State x) { return is_finite(x.sum) ? x.sum + x.lost : x.sum; }
};
template<> struct Adder<f32> : FloatAdder<f32> {};
template<> struct Adder<f64> : FloatAdder<f64> {};
