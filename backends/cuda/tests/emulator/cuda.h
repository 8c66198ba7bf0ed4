// CUDA C as C++ on a CPU: blocks run one after another, and the threads of a block are contexts that switch at each
// __syncthreads.
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(n)

struct Index { unsigned int x, y, z; };
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;

static inline float __uint_as_float(unsigned int x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned int __float_as_uint(float x) { unsigned int y; memcpy(&y, &x, 4); return y; }
static inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static inline long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
// The threads of a block take turns on one thread, and blocks run one after another, so nothing can interrupt these.
template<class T> static inline T atomicAdd(T* to, T x) { T old = *to; *to = (T)(old + x); return old; }
template<class T> static inline T atomicCAS(T* to, T expected, T wanted) {
    T old = *to;
    if (old == expected) *to = wanted;
    return old;
}

extern "C" {
float fabsf(float); float floorf(float); float ceilf(float); float rintf(float); float truncf(float); float expf(float);
float expm1f(float); float logf(float); float log1pf(float); float sqrtf(float); float sinf(float); float cosf(float);
float tanf(float); float tanhf(float); float erff(float); float fmodf(float, float); float fmaf(float, float, float);
double fabs(double); double floor(double); double ceil(double); double rint(double); double trunc(double); double exp(double);
double expm1(double); double log(double); double log1p(double); double sqrt(double); double sin(double); double cos(double);
double tan(double); double tanh(double); double erf(double); double fmod(double, double); double fma(double, double, double);
double pow(double, double); double atan2(double, double);
}

struct Fiber {
    ucontext_t start;
    jmp_buf place;
    bool begun, done;
    char* stack;
};

static thread_local Fiber* fibers;
static thread_local unsigned int current;
static thread_local jmp_buf scheduler;

static inline void __syncthreads() {
    if (!fibers) return;
    if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
    threadIdx.x = current;
}

// Values that the threads of a warp exchange. The whole block waits, so all its warps must take part.
struct Lane {
    float number;
    unsigned int a[4], b[2];
    const unsigned short* row;
};
static thread_local Lane lanes[1024];

static inline float __shfl_xor_sync(unsigned int, float x, int by) {
    lanes[current].number = x;
    __syncthreads();
    const float got = lanes[current ^ by].number;
    __syncthreads();
    return got;
}

// PTX ISA, "ldmatrix", of four 8 x 8 matrices.
static inline void emulated_ldmatrix(unsigned int (&out)[4], const void* row, bool transposed) {
    if ((unsigned long)row % 16 != 0) abort();
    lanes[current].row = (const unsigned short*)row;
    __syncthreads();
    const unsigned int warp = current & ~31u, lane = current & 31u;
    for (unsigned int i = 0; i < 4; ++i) {
        out[i] = 0;
        for (unsigned int n = 0; n < 2; ++n) {
            const unsigned int down = lane / 4, along = lane % 4 * 2 + n;
            const unsigned int bits = transposed ? lanes[warp + 8 * i + along].row[down] : lanes[warp + 8 * i + down].row[along];
            out[i] |= bits << 16 * n;
        }
    }
    __syncthreads();
}

// PTX ISA, "Matrix fragments for mma.m16n8k16": 16 x 16 numbers of 16 bits times 16 x 8, summed exactly and rounded
// once.
template<class Widen>
static inline void emulated_mma(float (&sums)[4], const unsigned int (&a)[4], const unsigned int (&b)[2], Widen widen) {
    memcpy(lanes[current].a, a, sizeof a);
    memcpy(lanes[current].b, b, sizeof b);
    __syncthreads();
    const unsigned int warp = current & ~31u, lane = current & 31u;
    for (unsigned int i = 0; i < 4; ++i) {
        const unsigned int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = sums[i];
        for (unsigned int k = 0; k < 16; ++k) {
            const unsigned int from = k % 8 / 2, shift = 16 * (k % 2);
            const unsigned int left = lanes[warp + row % 8 * 4 + from].a[row / 8 + k / 8 * 2] >> shift & 0xffff;
            const unsigned int right = lanes[warp + column * 4 + from].b[k / 8] >> shift & 0xffff;
            sum += (double)widen(left) * (double)widen(right);
        }
        sums[i] = (float)sum;
    }
    __syncthreads();
}
